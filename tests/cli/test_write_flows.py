"""Commands for writing flows: `init`, `check` and `schema`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flowengine.cli.commands.init import EXAMPLES
from flowengine.flow.export.file_schema import case_schema, flow_schema
from tests.cli.conftest import CommandLine

SCHEMA = json.loads(json.dumps(flow_schema()))
WAITING = ("approval", "agent")
"""Examples with questions."""
SPARE = "flowengine: 1\nid: spare\nsecrets: {KEY: {env: KEY}}\nsteps: [{id: a}]\n"


@pytest.mark.endurance
@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_of_init_is_valid_and_begins_with_a_command_that_runs(
    flowengine: CommandLine, example: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = flowengine("init", "new", "--example", example)
    monkeypatch.chdir(tmp_path / "new")
    command = done.err.removeprefix("next:    cd new && flowengine ").strip()

    flowengine("check", "--strict", f"{example}.yaml")
    flowengine(*[word.strip("'") for word in command.split()], code=4 * (example in WAITING))

    assert done.out.splitlines()[0] == f"created  new/{example}.yaml"
    assert (tmp_path / "new/.flowengine").stat().st_mode & 0o777 == 0o700


def test_the_agent_of_init_writes_what_it_is_allowed_to(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    flowengine("init", "--example", "agent")
    [call] = flowengine("run", "agent.yaml", code=4).ids

    done = flowengine("approve", call, "--edit", "text=An agent.")

    assert done.out == "answer: The summary is in summary.md.\n"
    assert (tmp_path / "summary.md").read_text() == "An agent."


def test_init_leaves_what_is_there_and_gives_editors_the_schema(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    flowengine.write("hello.yaml", "mine")

    done = flowengine("init")

    assert "kept     hello.yaml\n" in done.out
    assert (tmp_path / "hello.yaml").read_text() == "mine"
    settings = json.loads((tmp_path / ".vscode" / "settings.json").read_text())
    assert settings["yaml.schemas"] == {
        "./.flowengine/flow-1.schema.json": ["*.flow.yaml"],
        "./.flowengine/test-1.schema.json": ["*.test.yaml"],
    }
    made = [json.loads((tmp_path / path).read_text()) for path in settings["yaml.schemas"]]
    assert made == [SCHEMA, json.loads(json.dumps(case_schema()))]


def test_a_valid_file_is_ok_and_its_host_steps_are_named(flowengine: CommandLine) -> None:
    flowengine.write("a.yaml", "flowengine: 1\nid: a\nsteps: [{id: build, run: echo hi}]\n")
    flowengine.write("b.yaml", "flowengine: 1\nid: b\nsteps: [{id: a}]\n")

    done = flowengine("check", "a.yaml", "b.yaml")

    assert done.out == "a.yaml: ok, unsandboxed on this host: build\nb.yaml: ok\n"


def test_what_a_model_writes_without_a_sandbox_is_named(flowengine: CommandLine) -> None:
    """`provider: host` is as valid as `in: host`, for steps and for agents."""
    text = """
flowengine: 1
id: a
environments:
  py: {kind: python, provider: PY}
  box: {kind: bash, provider: [docker, host]}
  safe: {kind: bash, provider: namespace}
tools:
  code: {std: run_python, environments: [py]}
  make: {std: run_command, environments: {shell: safe}}
agents:
  coder:
    model: scripted/none
    instructions: Hi.
    tools: [code, make, std.run_command]
    environments: [box]
steps:
  - {id: one, agent: coder, with: {prompt: hi}}
  - {id: two, run: echo hi, in: box}
  - {id: three, run: echo hi, in: safe}
"""
    flowengine.write("a.yaml", text.replace("PY", "host"))
    flowengine.write("b.yaml", text.replace("PY", "namespace"))

    done = flowengine("check", "a.yaml", "b.yaml")

    step = "unsandboxed on this host: two (if no sandbox starts)"
    assert done.out.splitlines() == [
        f"a.yaml: ok, {step}, what agent coder writes (code, std.run_command)",
        f"b.yaml: ok, {step}, what agent coder writes (std.run_command)",
    ]


def test_warnings_are_errors_when_strict(flowengine: CommandLine) -> None:
    flowengine.write("spare.yaml", SPARE)

    mild = flowengine("check", "spare.yaml")
    strict = flowengine("check", "--strict", "spare.yaml", code=3)
    as_json = flowengine("--json", "check", "--strict", "spare.yaml", code=3).json()

    assert mild.out == "spare.yaml: ok\n"
    assert "1 warning in spare.yaml" in mild.err
    assert (strict.out, strict.err) == ("", mild.err)
    assert as_json["errors"] == []
    assert [one["code"] for one in as_json["warnings"]] == ["W105"]


def test_all_files_are_checked_and_one_with_errors_gives_the_code(flowengine: CommandLine) -> None:
    flowengine.write("bad.yaml", "flowengine: 1\nid: bad\nsteps: [{id: a, next: b}]\n")
    flowengine.write("good.yaml", "flowengine: 1\nid: good\nsteps: [{id: a}]\n")

    done = flowengine("check", "bad.yaml", "good.yaml", code=3)

    assert done.out == "good.yaml: ok\n"
    assert "error[E201]" in done.err
    assert flowengine("check", "none.yaml", code=9).err.startswith("error: cannot read none.yaml")


def test_all_flow_files_of_a_folder_are_checked(flowengine: CommandLine, tmp_path: Path) -> None:
    for folder in ("flows/inner", "flows/.hidden", "none"):
        (tmp_path / folder).mkdir(parents=True)
    flowengine.write("flows/bad.yaml", "flowengine: 1\nid: bad\nsteps: [{id: a, next: b}]\n")
    flowengine.write("flows/inner/good.yml", "flowengine: 1\nid: good\nsteps: [{id: a}]\n")
    flowengine.write("flows/good.test.yaml", "cases: []\n")
    flowengine.write("flows/.hidden/worse.yaml", "flowengine: 1\n")
    flowengine.write("flows/services.yaml", "services: {}\n")
    os.mkfifo(tmp_path / "flows" / "pipe.yaml")

    done = flowengine("check", "flows", "flows/bad.yaml", code=3)

    assert done.out == "flows/inner/good.yml: ok\n"
    assert done.err.startswith(
        "not flow files, since they do not contain 'flowengine: 1': flows/services.yaml\n"
    )
    assert done.err.count("1 error in flows/bad.yaml") == 1
    assert "there is no flow file in none" in flowengine("check", "none", code=9).err


def test_a_file_is_printed_with_short_forms_written_out(flowengine: CommandLine) -> None:
    flowengine.write(
        "short.yaml",
        "flowengine: 1\nid: short\nstate: {level: {type: integer, default: 0, reducer: add}}\n"
        "steps:\n  - {id: a, wait: 3d, set: {level: 1}, next: end}\n"
        "outputs: {level: '${{ state.level }}'}\n",
    )

    printed = flowengine("check", "--print", "short.yaml").out

    assert "    wait:\n      for: 3d\n" in printed
    assert "level: 1  # add\n" in printed
    flowengine.write("long.yaml", printed)
    assert flowengine("check", "--print", "long.yaml").out == printed


def test_the_schema_is_printed_or_written(flowengine: CommandLine, tmp_path: Path) -> None:
    printed = flowengine("schema")
    written = flowengine("schema", "-o", "flow.json")

    assert json.loads(printed.out) == SCHEMA
    assert (tmp_path / "flow.json").read_text() == printed.out
    assert written.err == "written to flow.json\n"
    assert "cannot write" in flowengine("schema", "-o", "none/flow.json", code=2).err


def test_the_schema_of_a_file_knows_its_words(flowengine: CommandLine, hello: Path) -> None:
    schema = flowengine("schema", "--for", hello).json()

    assert "greet" in schema["$defs"]["Target"]["enum"]

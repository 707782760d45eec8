# Shows F5
"""Commands for writing flows: `init`. `check.md` shows `check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowengine.cli.commands.init import EXAMPLES
from flowengine.flow.export.file_schema import case_schema, flow_schema
from tests.cli.conftest import CommandLine

SCHEMA = json.loads(json.dumps(flow_schema()))
WAITING = ("approval", "agent")
"""Examples with questions."""


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

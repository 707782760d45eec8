"""The `std` tools for agents: their schemas, where they run, and their results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flowengine.errors import FlowFileError
from tests.agents.flows import STEPS, Case, call, flow
from tests.envs.containers import skip_without_docker

ENVIRONMENTS = """
flowengine: 1
id: f
inputs: {q: {type: string, default: Repair it.}}
defaults: {model: scripted/test}
environments:
  work: {kind: files, scope: execution, config: {path: project, mode: copy}}
  box: {kind: bash, scope: execution, config: {mounts: {work: /src}}, limits: {time: 100s}}
  py: {kind: python, scope: execution, limits: {time: 100s}}
  db: {kind: sqlite, scope: execution, config: {path: ":memory:"}}
tools:
  read: {std: read_file, environments: [work]}
  edit: {std: edit_file, environments: {files: work}}
  find: {std: search_files, environments: [work], with: {path: sub}}
"""


def project(folder: Path) -> Path:
    path = folder / "project"
    (path / "sub").mkdir(parents=True)
    (path / "sub" / "a.txt").write_text("one\ntwo\n")
    (path / "two.txt").write_text("two\n")
    return path


def test_files_of_an_environment_are_found_read_and_edited(tmp_path: Path) -> None:
    original = project(tmp_path)
    script = [
        {"calls": [call("find", text="two"), call("read", path="sub/a.txt", first_line=2)]},
        {"calls": [call("edit", path="sub/a.txt", old="two", new="2")]},
        {"calls": [call("std.run_command", command="cat /src/sub/a.txt; pwd")]},
        {"text": "done"},
    ]
    agent = "first: {instructions: Work., tools: [find, read, edit, std.run_command]}"
    case = Case(tmp_path, flow(agent, STEPS, ENVIRONMENTS), script)

    assert case.run().status == "succeeded"
    found, read = case.answers(1)
    assert found == "sub/a.txt:2: two"
    assert read == "2\ttwo"
    assert case.answers(2) == ["Replaced the text in line 2 of sub/a.txt."]
    assert case.answers(3) == ["one\n2\n/workspace\n[exit code 0]"]
    assert (original / "sub" / "a.txt").read_text() == "one\ntwo\n"  # only the copy was changed
    offers = {one.name: one for one in case.model.requests[0].tools}
    assert sorted(offers["find"].parameters["properties"]) == [
        *("ignore_case", "limit", "pattern", "text")
    ]
    assert offers["find"].description == "Finds the lines of text files that contain a text."
    assert sorted(offers["std.run_command"].parameters["properties"]) == ["command", "timeout"]


def test_tools_without_a_declaration_work_in_the_environments_of_the_agent(tmp_path: Path) -> None:
    original = project(tmp_path)
    script = [
        {"calls": [call("std.edit_file", path="two.txt", old="two", new="2")]},
        {"calls": [call("std.run_command", command="cat /src/two.txt")]},
        {"text": "done"},
    ]
    head = ENVIRONMENTS.replace("  py:", "  other: {kind: bash}\n  py:")
    agent = """
    first:
      instructions: Work.
      tools: [std.edit_file, std.run_command]
      environments: [work, box]
    """
    case = Case(tmp_path, flow(agent, STEPS, head), script)

    assert case.run().status == "succeeded"
    assert case.answers(2) == ["2\n[exit code 0]"]
    assert (original / "two.txt").read_text() == "two\n"


@pytest.mark.endurance
def test_code_and_databases_are_used_in_their_environments(tmp_path: Path) -> None:
    project(tmp_path)
    script = [
        {
            "calls": [
                call("std.run_python", code="import os\nn = os.getpid()\nprint(n)\n6 * 7"),
                call("std.run_python", code="n == os.getpid()"),
                call("std.run_python", code="1 / 0"),
                call("std.run_python", code="while True: pass", timeout=1),
                call("std.query_database", sql="select :a as b", parameters={"a": 1}),
                call("std.query_database", sql="selekt"),
            ]
        },
        {"text": "done"},
    ]
    agent = "first: {instructions: Work., tools: [std.run_python, std.query_database]}"
    case = Case(tmp_path, flow(agent, STEPS, ENVIRONMENTS), script)

    case.run()

    told = [one["content"] for one in case.sent(1)[-6:]]
    first, second, failed, endless, rows = told[:5]
    assert first.endswith("\n[value] 42\n[exit code 0]")
    assert second == "[value] true\n[exit code 0]"  # variables survive between calls
    assert failed.startswith("[stderr]\n")
    assert failed.endswith("\n[exit code 1]")
    assert "ZeroDivisionError" in failed
    assert "it took longer than 1 s (its timeout) and was stopped" in endless
    assert rows == '{"b": 1}'
    assert told[5].startswith("Error: ")
    assert "syntax error" in told[5]


def test_the_limit_of_the_environment_is_the_most(tmp_path: Path) -> None:
    project(tmp_path)
    script = [
        {"calls": [call("std.run_command", command="sleep 60", timeout=600)]},
        {"text": "done"},
    ]
    head = ENVIRONMENTS.replace(
        "mounts: {work: /src}}, limits: {time: 100s}", "}, limits: {time: 1s}"
    )
    agent = "first: {instructions: Work., tools: [std.run_command]}"
    case = Case(tmp_path, flow(agent, STEPS, head.replace("config: {}}", "config: {}}")), script)

    case.run()

    [told] = case.answers(1)
    assert "it took longer than 1 s (limits.time) and was stopped" in told


@pytest.mark.parametrize(
    ("environments", "said"),
    [
        ("", "takes a Shell or Bash or Containers, and there is no such environment"),
        ("environments: {a: {kind: bash}, b: {kind: shell}}", "'a' and 'b' are such environments"),
        ("environments: {f: {kind: files}}", "and there is no such environment"),
    ],
)
def test_commands_run_in_a_declared_environment_only(
    tmp_path: Path, environments: str, said: str
) -> None:
    head = f"flowengine: 1\nid: f\ndefaults: {{model: scripted/test}}\n{environments}\n"
    head += "inputs: {q: {type: string, default: Hi}}\n"
    case = Case(
        tmp_path, flow("first: {instructions: Hi, tools: [std.run_command]}", STEPS, head), []
    )

    with pytest.raises(FlowFileError) as refused:
        case.run()

    assert said in str(refused.value)


def test_a_glob_gives_nobody_a_shell(tmp_path: Path) -> None:
    project(tmp_path)
    agent = "first: {instructions: Work., tools: [std.*]}"
    case = Case(tmp_path, flow(agent, STEPS, ENVIRONMENTS), [{"text": "done"}])

    case.run()

    offered = {*case.offered(0)}
    assert {"std.glob", "std.read_file", "std.edit_file", "std.search_files"} <= offered
    assert not offered & {"std.ask", "std.query_database"}
    assert not [one for one in offered if one.startswith(("std.run_", "std.brows"))]


def test_a_glob_that_begins_with_their_name_gives_the_tools_of_a_browser(tmp_path: Path) -> None:
    agent = "first: {instructions: Work., tools: ['std.browser_*']}"
    head = "flowengine: 1\nid: f\ndefaults: {model: scripted/test}\n"
    head += "inputs: {q: {type: string, default: Hi}}\n"
    case = Case(tmp_path, flow(agent, STEPS, head), [{"text": "done"}])

    case.run()

    assert {"std.browser_open", "std.browser_click", "std.browser_read"} <= {*case.offered(0)}


def test_a_declared_tool_says_whether_people_are_asked(tmp_path: Path) -> None:
    head = ENVIRONMENTS.replace("files: work}}", "files: work}, approval: ask}")
    original = project(tmp_path)
    script = [{"calls": [call("edit", path="two.txt", old="two", new="2")]}, {"text": "done"}]
    agent = "first: {instructions: Work., tools: [edit]}"
    case = Case(tmp_path, flow(agent, STEPS, head), script)

    result = case.run()

    assert result.status == "waiting"
    with case.engine_open() as engine:
        [wait] = engine.approvals.list(execution=result.execution).items
        assert wait["subject"] == {"path": "two.txt", "old": "two", "new": "2"}
    assert (original / "two.txt").read_text() == "two\n"


def test_an_agent_asks_people(tmp_path: Path) -> None:
    script = [
        {
            "calls": [
                call("std.ask", question="Which colour?"),
                call("std.ask", question="How old?"),
                call("std.ask", form={}),
                call("std.glob", pattern="*.yaml"),
            ]
        },
        {"text": "done"},
    ]
    head = "flowengine: 1\nid: f\ndefaults: {model: scripted/test}\n"
    head += "inputs: {q: {type: string, default: Hi}}\n"
    agent = "first: {instructions: Ask., tools: [std.ask, std.glob]}"
    case = Case(tmp_path, flow(agent, STEPS, head), script)

    assert case.run().status == "waiting"
    with case.engine_open() as engine:  # questions are asked at once, later calls wait
        shown = {one["address"]: one["status"] for one in engine.executions.show(case.id)["steps"]}
        assert shown["ask/first@1/std.glob"] == "waiting"
        waits = {
            wait["title"]: wait["id"] for wait in engine.approvals.list(execution=case.id).items
        }
        engine.approvals.decide(waits["How old?"], "answer", form={"answer": "7"})
        engine.approvals.decide(waits["Which colour?"], "answer", form={"answer": "blue"})
        assert engine.executions.show(case.id)["status"] == "succeeded"

    told = [one["content"] for one in case.sent(1)[-4:]]
    assert told[:2] == ["blue", "7"]
    assert told[2].startswith("Error: The arguments of std.ask do not fit")
    [offer] = [one for one in case.model.requests[0].tools if one.name == "std.ask"]
    assert [*offer.parameters["properties"]] == ["question"]


@pytest.mark.endurance
@pytest.mark.parametrize("kind", ["bash", "shell", "docker"])
def test_commands_run_in_each_kind_that_runs_programs(tmp_path: Path, kind: str) -> None:
    if kind == "docker":
        skip_without_docker()
    if kind == "shell" and not shutil.which("tmux"):
        pytest.skip("no tmux: apt-get install tmux")
    head = ENVIRONMENTS.replace("box: {kind: bash,", f"box: {{kind: {kind},")
    agent = "first: {instructions: Work., tools: [std.run_command], environments: [box]}"
    for seconds in (1, 10, 50):  # on a busy machine, it may start later
        folder = tmp_path / f"{seconds}"
        project(folder)
        slow = "echo begun; sleep 600; echo over"
        script = [
            {
                "calls": [
                    call("std.run_command", command="cat /src/two.txt; echo no >&2; exit 3"),
                    call("std.run_command", command=slow, timeout=seconds),
                    call("std.run_command", command="echo on"),
                ]
            },
            {"text": "done"},
        ]
        case = Case(folder, flow(agent, STEPS, head), script)
        assert case.run().status == "succeeded"
        done, late, on = case.answers(1)
        if "begun" in late:
            break

    assert done.startswith("two\n")
    assert done.endswith("\nno\n[exit code 3]")
    assert not late.endswith("[exit code 0]")
    assert "begun" in late
    assert "\nover" not in late
    assert f"it took longer than {seconds} s (its timeout) and was stopped" in late
    assert on == "on\n[exit code 0]"

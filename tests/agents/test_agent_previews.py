"""Previews of agents' calls, shown with the approval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine.tool_environment import tool
from tests.agents.flows import HEAD, Case, call, flow


def diff(args: dict[str, Any]) -> str:
    return f"+{args['text']}"


@tool(approval="ask", preview=diff)
def put(text: str) -> str:
    """Put a text."""
    return "put " + text


def live() -> Any:
    """Return a tool with a preview that no other process can find."""
    seen: list[Any] = []

    @tool(approval="ask", preview=lambda args: f"live +{args['text']}")
    def put(text: str) -> str:
        """Put a text."""
        seen.append(text)
        return "put " + text

    return put


# Shows T50
def test_an_agents_edit_of_a_file_is_shown_as_a_difference(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    head = HEAD.replace("  add:", "  edit: {std: edit_file, approval: ask}\n  add:")
    edits = [call("edit", path="a.txt", old="two", new="2")]
    text = flow("first: {instructions: Edit., tools: [edit]}", head=head)
    case = Case(tmp_path, text, [{"calls": edits}, {"text": "done"}])
    with case.engine_open() as engine:
        result = engine.run(case.path)
        [wait] = result.waits
        assert "-two\n+2" in engine.approvals.show(wait["id"])["preview"]
        done = engine.approvals.approve(wait["id"]).result
    assert done is not None
    assert done.status == "succeeded"
    assert (tmp_path / "a.txt").read_text() == "one\n2\n"


@pytest.mark.parametrize("exists", [True, False])
# Shows T50
def test_an_edit_in_an_environment_is_shown_as_a_difference(tmp_path: Path, exists: bool) -> None:
    """This includes a write of a whole file, compared with the result of an earlier call."""
    (tmp_path / "work").mkdir()
    if exists:
        (tmp_path / "work" / "a.txt").write_text("one\ntwo\n")
    tools = "  write: {std: write_file, approval: ask}\n  list: {std: glob}\n  add:"
    work = "environments:\n  work: {kind: files, scope: execution, config: {path: work}}\n"
    head = HEAD.replace("  add:", tools).replace("tools:\n", f"{work}tools:\n", 1)
    agent = "first: {instructions: Edit., tools: [write, list], environments: [work]}"
    replies = [
        {"calls": [call("list", pattern="*")]},
        {"calls": [call("write", path="a.txt", text="one\n2\n")]},
        {"text": "done"},
    ]
    case = Case(tmp_path, flow(agent, head=head), replies)

    [wait] = case.run().waits

    with case.engine_open() as engine:
        shown = engine.approvals.show(wait["id"])["preview"]
    assert ("-two\n+2" in shown) == exists
    assert ("--- /dev/null" in shown) == (not exists)

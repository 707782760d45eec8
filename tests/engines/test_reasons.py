"""Groups of exceptions and notes keep their reasons where an exception becomes an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.attempts.failures import failure_of
from flowengine.kernel.errors import may_retry
from flowengine.sdk import Timeout, ToolError, ValidationError
from flowengine.sdk.texts.exception_text import describe
from tests.agents.flows import HEAD, Case, call, flow

RAISED = """
import asyncio

async def failed(error):
    raise error

async def tasks(*errors):
    async with asyncio.TaskGroup() as group:
        for error in errors:
            group.create_task(failed(error))

def noted(error, *notes):
    for note in notes:
        error.add_note(note)
    return error

class Silent(Exception):
    def __str__(self):
        raise SystemExit

class Broken(Exception):
    "Nothing that an engine asks an exception can be read."
    __module__ = None

    @property
    def retryable(self):
        raise KeyError("retryable")

    data = retry_after = __cause__ = __context__ = __traceback__ = __suppress_context__ = retryable

def deep(error, levels):
    return ExceptionGroup(f"level {levels}", [deep(error, levels - 1)]) if levels else error

GROUP = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("one", [KeyError("b")])])
RAISED = {
    "note": lambda: noted(ValueError("a"), "of order 7"),
    "only a note": lambda: noted(ValueError(), "of order 7"),
    "group": lambda: GROUP,
    "notes in a group": lambda: noted(ExceptionGroup("all", [noted(OSError("x"), "b")]), "c"),
    "many": lambda: ExceptionGroup("many", [ValueError(n) for n in range(12)]),
    "no text": lambda: ExceptionGroup("silent", [noted(Silent(), "still")]),
    "broken": lambda: Broken("a"),
    "stop": lambda: StopIteration("no more"),
    "empty": lambda: AssertionError(),
    "blank": lambda: ValueError(" "),
    "deep": lambda: deep(ValueError("a"), 9),
}

async def act(case: str) -> str:
    "Act."
    if case == "task":
        await tasks(ValueError("first"), RuntimeError("second"))
    raise RAISED[case]()

def reduce(old, new):
    raise RAISED["group"]()
"""
REASONS = {
    "task": "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions): "
    "ValueError: first; RuntimeError: second",
    "note": "ValueError: a (of order 7)",
    "only a note": "ValueError: of order 7",
    "group": "ExceptionGroup: two (2 sub-exceptions): ValueError: a; "
    "ExceptionGroup: one (1 sub-exception) [KeyError: 'b']",
    "notes in a group": "ExceptionGroup: all (1 sub-exception) (c): OSError: x (b)",
    "many": "ExceptionGroup: many (12 sub-exceptions): "
    + "; ".join(f"ValueError: {number}" for number in range(10))
    + "; and 2 more",
    "no text": "ExceptionGroup: silent (1 sub-exception): Silent: still",
    "broken": "Broken: a",
    "stop": "StopIteration: no more",
    "empty": "AssertionError: raised without a message",
    "blank": "ValueError: raised without a message",
    "deep": "ExceptionGroup: level 9 (1 sub-exception): "
    + "".join(f"ExceptionGroup: level {level} (1 sub-exception) [" for level in range(8, 3, -1))
    + "ValueError: a]]]]]",
}
STEP = """
flowengine: 1
id: it
inputs: {case: {type: string}}
steps:
  - {id: act, python: "tools:act", with: {case: "${{ inputs.case }}"}, retry: {attempts: 1}}
"""
REDUCER = """
flowengine: 1
id: it
inputs: {case: {type: string}}
state: {sum: {type: integer, default: 0, reducer: {python: "tools:reduce"}}}
steps:
  - {id: act, output: 1, set: {sum: 1}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(RAISED)
    return tmp_path


def failed(folder: Path, text: str, *cases: str) -> list[dict[str, Any]]:
    """Return the error with which a flow fails in each case."""
    (folder / "it.yaml").write_text(text)
    with Engine(None) as engine:
        ends: Any = [engine.run(folder / "it.yaml", {"case": case}) for case in cases]
    return [dict(end.error) for end in ends]


def test_a_step_tells_them(folder: Path) -> None:
    errors = dict(zip(REASONS, failed(folder, STEP, *REASONS), strict=True))
    assert {case: f"{one['type']}: {one['message']}" for case, one in errors.items()} == REASONS
    group = errors["task"]
    assert [each["message"] for each in group["data"]["errors"]] == ["first", "second"]
    assert "tasks" in str(group["data"]["traceback"])


def test_a_group_is_not_retried_if_one_of_its_errors_is_not() -> None:
    for error, retried in (
        (ValueError("a"), True),
        (ToolError("a"), True),
        (ToolError("a", retryable=False), False),
        (ValidationError("a"), False),
        (ExceptionGroup("c", [Timeout("d"), ValidationError("e")]), False),
    ):
        group = ExceptionGroup("all", [OSError("b"), error])
        assert may_retry(failure_of(group, lambda value: value), None) == retried


def test_a_reducer_tells_them(folder: Path) -> None:
    [error] = failed(folder, REDUCER, "group")
    assert REASONS["group"] in error["message"]


def test_the_tool_of_an_agent_tells_the_model(folder: Path) -> None:
    calls = [call("act", case=case) for case in REASONS]
    head = HEAD.partition("tools:")[0] + 'tools: {act: {python: "tools:act"}}'
    text = flow("first: {instructions: You act., tools: [act]}", head=head)
    case = Case(folder, text, [{"calls": calls}, {"text": "so"}])

    assert case.run().outputs["answer"] == "so"
    for reason, content in zip(REASONS.values(), case.results(1), strict=True):
        assert reason in content


def test_what_is_told_of_a_hostile_exception() -> None:
    class Hostile(Exception):
        __notes__: Any = 5

        @property
        def exceptions(self) -> Any:
            raise SystemExit

        def __str__(self) -> str:
            raise KeyboardInterrupt

    assert describe(Hostile()) == "Hostile"
    deep: Exception = ValueError("deep")
    for _ in range(2000):
        deep = ExceptionGroup("in", [deep])
    error = failure_of(deep, lambda value: value)
    data: Any = error["data"]
    assert [each["message"] for each in data["errors"]] == ["deep"]
    assert describe(deep).startswith("ExceptionGroup: in (1 sub-exception): ExceptionGroup: in")

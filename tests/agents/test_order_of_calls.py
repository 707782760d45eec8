"""The calls of a reply run in order, even if some of them need approval."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.flows import HEAD, Case, call, flow

AGENTS = """
first:
  instructions: You add.
  tools: [add, other, beside, along, std.ask]
"""
TOOLS = HEAD.replace(
    'add: {python: "tools:add"}',
    """add: {python: "tools:add", approval: ask}
  other: {python: "tools:add"}
  beside: {python: "tools:add", parallel: true}
  along: {python: "tools:add", parallel: true, approval: ask}""",
)


def case_of(folder: Path, *names: str) -> Case:
    calls = [
        call(name, f"c{n}", question="Sure?")
        if name == "std.ask"
        else call(name, f"c{n}", a=n, b=n)
        for n, name in enumerate(names, 1)
    ]
    return Case(folder, flow(AGENTS, head=TOOLS), [{"calls": calls}, {"text": "done"}])


@pytest.mark.parametrize(
    ("names", "at_once", "later"),
    [
        (["add", "other"], [], ["1", "2"]),
        (["other", "add", "other"], ["1"], ["2", "3"]),
        (["add", "beside", "beside"], [], ["1", "2", "3"]),
        (["along", "beside", "other"], ["2"], ["1", "3"]),
        (["std.ask", "other"], [], ["2"]),
        (["std.ask", "beside"], ["2"], []),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_call_waits_for_those_before_it_and_their_questions(
    tmp_path: Path, names: list[str], at_once: list[str], later: list[str], again: bool
) -> None:
    """Unless both are `parallel`, in one process or across several."""
    case = case_of(tmp_path, *names)
    result = case.run()
    assert result.status == "waiting"
    assert sorted(case.called) == [f"add {n} {n}" for n in at_once]
    if again:
        with case.engine_open() as engine:
            engine.resume(result.execution)
        assert sorted(case.called) == [f"add {n} {n}" for n in at_once]
    with case.engine_open() as engine:
        for wait in result.waits:
            if "tool" in wait:
                engine.approvals.approve(wait["id"])
            else:
                engine.approvals.decide(wait["id"], "answer", form={"answer": "yes"})
        assert engine.executions.result(result.execution).status == "succeeded"
    assert sorted(case.called[: len(at_once)]) == [f"add {n} {n}" for n in at_once]
    rest = case.called[len(at_once) :]
    assert (rest if "beside" not in names[1:] else sorted(rest)) == [f"add {n} {n}" for n in later]


def test_they_are_asked_about_at_once_and_run_in_order_however_they_are_answered(
    tmp_path: Path,
) -> None:
    case = case_of(tmp_path, "add", "add", "other", "add")
    result = case.run()
    first, second, third = result.waits
    with case.engine_open() as engine:
        engine.approvals.approve(third["id"])
        engine.approvals.approve(second["id"])
        assert case.called == []
        engine.approvals.approve(first["id"])
    assert case.called == ["add 1 1", "add 2 2", "add 3 3", "add 4 4"]


def test_a_call_that_is_refused_lets_the_next_one_run(tmp_path: Path) -> None:
    case = case_of(tmp_path, "add", "other")
    [wait] = case.run().waits
    with case.engine_open() as engine:
        result = engine.approvals.reject(wait["id"]).result
    assert result is not None
    assert result.status == "succeeded"
    assert case.called == ["add 2 2"]

"""Cumulative limits: the number of calls of a tool, and rules over previous calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from tests.agents.flows import HEAD, Case, call, flow

AGENTS = "first: {instructions: You add., tools: [add, more]}"
SMALL = "{allow: add, when: \"${{ calls.total('a') <= 100 }}\"}"


def head(rules: str = "", limits: str = "", approval: str = "none") -> str:
    said = f'{{python: "tools:add", approval: {approval}{limits}}}'
    tools = HEAD.replace('add: {python: "tools:add"}', f"add: {said}\n  more: {said}")
    return f"{tools.strip()}\nrules: [{rules}]\n"


def adding(folder: Path, text: str, *amounts: int, tool: str = "add") -> Case:
    calls = [call(tool, f"c{n}", a=amount, b=n) for n, amount in enumerate(amounts)]
    return Case(folder, flow(AGENTS, head=text), [{"calls": calls}, {"text": "done"}])


def host(folder: Path, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    path = folder / "config" / "flowengine" / "rules.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"rules:\n  - {rule}\n")


@pytest.mark.parametrize("whose", ["flow", "host"])
@pytest.mark.parametrize(
    ("amounts", "asked"),
    [
        ([100, 100, 100, 100, 100], [1, 2, 3, 4]),
        ([30, 60, 20], [2]),
        ([100], []),
        ([101], [0]),
        ([-500, 100], [0, 1]),
        ([60, -50, 60], [1, 2]),
    ],
)
def test_a_rule_sees_what_the_calls_add_up_to(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whose: str,
    amounts: list[int],
    asked: list[int],
) -> None:
    """This includes calls in the same reply: each counts those before it."""
    if whose == "host":
        host(tmp_path, monkeypatch, SMALL)
    case = adding(tmp_path, head(SMALL if whose == "flow" else "", approval="ask"), *amounts)
    result = case.run()
    assert [wait["subject"]["b"] for wait in result.waits] == asked
    first = asked[0] if asked else len(amounts)
    assert case.called == [f"add {amounts[n]} {n}" for n in range(first)]


def test_a_sum_beyond_64_bits_is_a_sum(tmp_path: Path) -> None:
    rule = "{ask: add, when: \"${{ calls.total('a') > 10 }}\"}"
    case = adding(tmp_path, head(rule), 5, 2**63 - 1, 2**63 - 1, 2**63 - 1)
    assert [wait["subject"]["b"] for wait in case.run().waits] == [1, 2, 3]
    assert case.called == ["add 5 0"]


def test_what_is_rejected_or_refused_does_not_count_and_an_edit_counts_as_what_runs(
    tmp_path: Path,
) -> None:
    script = [
        {"calls": [call("add", a=500, b=1)]},
        {"calls": [call("add", a=90, b=2)]},
        {"calls": [call("add", a=999, b=3)]},
        {"calls": [call("add", a=5, b=4)]},
        {"text": "done"},
    ]
    rules = f"{{deny: add, when: '${{{{ args.a > 900 }}}}'}}, {SMALL}"
    case = Case(tmp_path, flow(AGENTS, head=head(rules, approval="{edit: true}")), script)
    [wait] = case.run().waits
    with case.engine_open() as engine:
        engine.approvals.reject(wait["id"])
    assert case.called == ["add 90 2", "add 5 4"]  # 95 in total


@pytest.mark.parametrize(
    ("rule", "called"),
    [
        ("{deny: add, when: '${{ calls.count > 2 }}'}", 2),
        ("{deny: add, when: '${{ calls.totals.a > 25 }}'}", 2),
    ],
)
def test_a_rule_of_the_host_sees_how_often_an_agent_has_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, called: int
) -> None:
    host(tmp_path, monkeypatch, rule)
    case = adding(tmp_path, head(), 10, 10, 10, 10)
    assert case.run().status == "succeeded"
    assert len(case.called) == called


def test_a_rule_about_calls_that_are_not_counted_asks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(folder, monkeypatch, "{allow: '*', when: '${{ calls.count < 2 }}'}")
    Path("flow.yaml").write_text(
        "flowengine: 1\nid: f\ntools: {say: {std: print}}\n"
        "steps: [{id: a, call: say, with: {text: hi}}]\n"
    )
    with Engine("store") as engine:
        assert engine.run("flow.yaml").status == "waiting"


def test_a_tool_is_called_as_often_as_its_limit_allows(tmp_path: Path) -> None:
    """The limit applies to all replies together, under each name of the tool."""
    script: list[Any] = [
        {"calls": [call("add", a=1, b=1), call("more", a=2, b=2)]},
        {"calls": [call("add", a=3, b=3)]},
        {"text": "done"},
    ]
    case = Case(tmp_path, flow(AGENTS, head=head(limits=", limits: {calls: 2}")), script)
    assert case.run().status == "succeeded"
    assert case.called == ["add 1 1", "add 2 2"]
    told = case.sent(2)[-1]["content"]
    assert "LimitExceeded: 'add' was not called: its limits.calls allows 2 in an execution" in told


def test_an_agent_makes_as_many_calls_as_its_limit_allows(tmp_path: Path) -> None:
    """The limit covers all tools and steps of an agent. Others have separate limits, or none."""
    agents = """
first: {instructions: You add., tools: [add, more], limits: {calls: 2}}
second: {instructions: You add., tools: [add], limits: {calls: 1}}
"""
    steps = """
steps:
  - {id: one, agent: first, with: {prompt: go}}
  - {id: two, agent: first, with: {prompt: go}}
  - {id: three, agent: second, with: {prompt: go}}
"""
    script: list[Any] = [
        {"calls": [call("add", a=1, b=1)]},
        {"text": "done"},
        {"calls": [call("more", a=2, b=2), call("add", a=3, b=3)]},
        {"text": "done"},
        {"calls": [call("add", a=4, b=4)]},
        {"text": "done"},
    ]
    case = Case(tmp_path, flow(agents, steps, head()), script)
    assert case.run().status == "succeeded"
    assert case.called == ["add 1 1", "add 2 2", "add 4 4"]
    told = case.sent(3)[-1]["content"]
    assert told == (
        "Error: LimitExceeded: 'add' was not called: limits.calls of the agent 'first' allows 2 in"
        " an execution"
    )

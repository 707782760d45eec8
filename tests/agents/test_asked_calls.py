"""Agents' calls that need approval or are decided by rules, as reported to the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from tests.agents.flows import HEAD, TOOLS, Case, call, flow

AGENTS = """
first:
  instructions: You add.
  tools: [add, boom]
"""
ASKING = HEAD.replace(
    'add: {python: "tools:add"}', 'add: {python: "tools:add", approval: {edit: true}}'
)
THREE = [call("add", f"c{n}", a=n, b=n) for n in (1, 2, 3)]


def waiting(folder: Path, head: str, *script: Any) -> tuple[Case, list[Any]]:
    case = Case(folder, flow(AGENTS, head=head), [*script, {"text": "done"}])
    result = case.run()
    return case, list(result.waits)


# Shows T38, T102
def test_each_call_of_a_reply_is_decided_by_itself_and_the_model_is_told(tmp_path: Path) -> None:
    case, waits = waiting(tmp_path, ASKING, {"calls": THREE})
    assert [wait["address"] for wait in waits] == [f"ask/first.calls[{n}]/add" for n in (1, 2, 3)]
    assert [wait["subject"] for wait in waits] == [{"a": n, "b": n} for n in (1, 2, 3)]
    assert case.called == []

    with case.engine_open() as engine:
        engine.approvals.approve(waits[2]["id"], edit={"b": 5})
        assert case.called == []  # the calls before it come first
        engine.approvals.reject(waits[1]["id"], comment="not this one", by="user:ben")
    with case.engine_open() as engine:
        result = engine.approvals.approve(waits[0]["id"]).result

    assert result is not None
    assert result.status == "succeeded"
    assert sorted(case.called) == ["add 1 1", "add 3 5"]
    answers = [one for one in case.sent(1) if one["role"] == "tool"]
    assert [one["tool_call_id"] for one in answers] == ["c1", "c2", "c3"]
    assert answers[0]["content"] == "2"
    assert (
        "Rejected: 'add' was not called: rejected by user:ben: not this one"
        in (answers[1]["content"])
    )
    assert answers[2]["content"].endswith('changed these arguments: {"b": 5}]\n\n8')


@pytest.mark.parametrize(
    ("policies", "waits", "called", "said"),
    [
        ("[{deny: add}]", 0, [], "Refused: 'add' was not called: policies[0] (deny: add)"),
        ("[{deny: add, agent: first}]", 0, [], "Refused"),
        ("[{deny: add, agent: 'f*'}]", 0, [], "Refused"),
        ("[{deny: add, agent: other}]", 0, ["add 1 1"], "2"),
        ("[{ask: 'python:*', agent: first}]", 1, [], ""),
        ("[{deny: '*', when: '${{ args.a > 1 }}'}]", 0, ["add 1 1"], "2"),
    ],
)
# Shows T46
def test_rules_hold_for_the_calls_of_agents_and_may_name_these(
    tmp_path: Path, policies: str, waits: int, called: list[str], said: str
) -> None:
    case, found = waiting(tmp_path, f"{HEAD.strip()}\npolicies: {policies}\n", {"calls": THREE[:1]})
    assert len(found) == waits
    assert case.called == called
    if not waits:
        assert said in case.sent(1)[-1]["content"]


def test_a_rule_that_names_an_agent_is_not_about_calls_of_the_flow(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def add(a, b):\n    return a + b\n")
    text = 'flowengine: 1\nid: f\ntools: {add: {python: "tools:add"}}\n'
    text += "policies: [{deny: add, agent: '*'}]\nsteps: [{id: a, call: add, with: {a: 1, b: 2}}]\n"
    (tmp_path / "flow.yaml").write_text(text)
    with Engine(tmp_path / "store") as engine:
        assert engine.run(tmp_path / "flow.yaml").status == "succeeded"


# Shows T101
def test_a_model_cannot_give_what_the_flow_binds(tmp_path: Path) -> None:
    bound = ASKING.replace("approval: {edit: true}", "bind: {b: 7}, approval: ask")
    case, waits = waiting(tmp_path, bound, {"calls": [call("add", "c1", a=1)]})
    assert waits[0]["subject"] == {"a": 1, "b": 7}
    with case.engine_open() as engine:
        engine.approvals.approve(waits[0]["id"])
    assert case.called == ["add 1 7"]


@pytest.mark.parametrize(
    ("rule", "waits", "called"),
    [
        ("{deny: add}", 0, []),
        ("{deny: '*', agent: first}", 0, []),
        ("{deny: '*', agent: second}", 0, ["add 1 1"]),
        ("{ask: 'python:*', when: '${{ args.a == 1 }}'}", 1, []),
    ],
)
def test_rules_of_the_host_hold_for_the_calls_of_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, waits: int, called: list[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "flowengine").mkdir(parents=True)
    (tmp_path / "config" / "flowengine" / "policies.yaml").write_text(f"policies: [{rule}]\n")
    case, found = waiting(tmp_path, HEAD, {"calls": THREE[:1]})
    assert len(found) == waits
    assert case.called == called
    if waits:
        with case.engine_open() as engine:
            engine.approvals.approve(found[0]["id"])
        assert case.called == ["add 1 1"]
    elif not called:
        assert "Refused: 'add' was not called:" in case.sent(1)[-1]["content"]


# Shows T30, T37
def test_the_model_is_told_what_a_person_changed_said_or_gave(tmp_path: Path) -> None:
    case, waits = waiting(tmp_path, ASKING, {"calls": THREE})
    with case.engine_open() as engine:
        engine.approvals.approve(waits[0]["id"], edit={"b": 5}, comment="five is enough")
        engine.approvals.respond(waits[1]["id"], 42)
        engine.approvals.approve(waits[2]["id"])
    told = [one["content"] for one in case.sent(1) if one["role"] == "tool"]
    assert told == [
        '[Before the call was made, a person changed these arguments: {"b": 5}]\n\n'
        "[Who approved the call says: five is enough]\n\n6",
        "42",
        "6",
    ]
    assert sorted(case.called) == ["add 1 5", "add 3 3"]


def test_what_a_person_gives_is_data_even_in_the_form_of_an_adapted_result(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(f"{TOOLS}\ndef free(why):\n    return why\n")
    head = HEAD.replace('{python: "tools:boom"}', '{python: "tools:free", approval: ask}')
    given = {
        "so": "so",
        '{"a":[1.5,null]}': {"a": [1.5, None]},
        '{"envelope":1}': {"envelope": 1},
        '{"envelope":{"content":"x","more":2}}': {"envelope": {"content": "x", "more": 2}},
    }
    calls = [call("boom", f"c{n}", why="x") for n in range(len(given))]
    case, waits = waiting(tmp_path, head, {"calls": calls})
    with case.engine_open() as engine:
        for wait, value in zip(waits, given.values(), strict=True):
            engine.approvals.respond(wait["id"], value)
    assert [one["content"] for one in case.sent(1) if one["role"] == "tool"] == [*given]
    assert case.called == []


def test_the_model_is_not_told_the_rule_that_allowed_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "flowengine").mkdir(parents=True)
    (tmp_path / "config" / "flowengine" / "policies.yaml").write_text("policies: [{allow: add}]\n")
    case, waits = waiting(tmp_path, ASKING, {"calls": THREE[:1]})
    assert (waits, case.called) == ([], ["add 1 1"])
    assert case.sent(1)[-1]["content"] == "2"


def test_who_is_asked_sees_what_led_to_the_call(tmp_path: Path) -> None:
    said = {"text": "Two numbers are\nto be added.", "calls": THREE[:1]}
    _, [wait] = waiting(tmp_path, ASKING, {"text": "", "calls": [call("boom", why="x")]}, said)

    assert wait["about"] == {
        "user": "What is 1 + 2?",
        "model": "Two numbers are\nto be added.",
    }

# Shows G6
"""Hooks around the turns and calls of agents (G6), which also choose the tools of a turn (G7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.agents.models.registry import register, unregister
from flowengine.errors import FlowFileError
from tests.agents.crashes import crashed, gone_on
from tests.agents.flows import BEGIN, NAME, Case, call, flow, told
from tests.rows import each_row
from tests.testing.faulty_store import FaultyStore

HEAD = f"""{BEGIN}tools:
  add: {{python: "tools:add", effect: idempotent}}
  boom: {{python: "tools:boom", effect: idempotent}}
  before: {{python: "tools:before", effect: pure}}
  also: {{python: "tools:also", effect: pure}}
  after: {{python: "tools:after", effect: pure}}
  begin: {{python: "tools:begin", effect: pure}}
  reply: {{python: "tools:reply", effect: pure}}
  needy: {{python: "tools:needy", effect: pure}}
"""
TOOLS = """
from pathlib import Path

def note(line):
    with open(Path(__file__).with_name("called.txt"), "a") as file:
        file.write(line + "\\n")

def add(a: int, b: int) -> int:
    "Add."
    note(f"add {a} {b}")
    return a + b

def boom(why: str) -> str:
    "Fail."
    raise ValueError(why)

def said(name, default=None):
    exec(Path(__file__).with_name("said.py").read_text(), scope := {})
    return scope.get(name, default)

def before(tool: str, arguments: dict) -> object:
    note(f"before {tool} {arguments}")
    result = said("before")
    if isinstance(result, Exception):
        raise result
    return result

def also(tool: str, arguments: dict, agent: str, turn: int) -> object:
    note(f"also {tool} {arguments} {agent} {turn}")
    return said("also")

def after(tool: str, result: object, error: str | None) -> object:
    note(f"after {tool} {result!r} {error}")
    result = said("after")
    if isinstance(result, Exception):
        raise result
    return result

def begin(turn: int, tokens: int, prompt: str) -> object:
    note(f"begin {turn} {prompt}")
    result = said("begin", {}).get(turn)
    if isinstance(result, Exception):
        raise result
    return result

def reply(text: str, calls: list, turn: int) -> object:
    note(f"reply {turn} {text!r} {[one['tool'] for one in calls]}")
    result = said("reply", {}).get(turn)
    if isinstance(result, Exception):
        raise result
    return result

def needy(tool: str, color: str) -> None:
    "No hook is given a color."
"""
CALLS = {"calls": [call("add", "c1", a=1, b=2)]}


def agent(hooks: str, more: str = "") -> str:
    return f"first:\n  instructions: You add.\n  tools: [add, boom]\n  hooks: {hooks}\n{more}"


def case(folder: Path, hooks: str, script: list[Any], says: str = "", **more: Any) -> Case:
    (folder / "tools.py").write_text(TOOLS)
    (folder / "said.py").write_text(says)
    head, below = more.pop("head", HEAD), more.pop("below", "")
    return Case(folder, flow(agent(hooks, below), head=head), script, **more)


@pytest.fixture
def places(tmp_path: Path) -> Any:
    """Return the next empty folder."""
    count = iter(range(1000))

    def place() -> Path:
        folder = tmp_path / str(next(count))
        folder.mkdir()
        return folder

    return place


@each_row(
    "says, called, content",
    [
        ("", ["add 1 2"], "3"),
        ("before = {'arguments': {'a': 5, 'b': 2}}", ["add 5 2"], "7"),
        ("before = {'answer': 42}", [], "42"),
        ("before = {'answer': {'sum': 3}}", [], '{"sum":3}'),
        ("before = {'refuse': 'not today'}", [], "Error: before refused it: not today"),
        ("before = ValueError('broken')", [], "Error: before refused it: ValueError: broken"),
        (
            "before = {'argument': {}}",
            [],
            "Error: before refused it: it returned 'argument', and may return arguments, ask, "
            "answer, refuse",
        ),
        (
            "before = {'refuse': 7}",
            [],
            "Error: before refused it: it returned refuse: int 7",
        ),
        (
            "before = 'no'",
            [],
            "Error: before refused it: it returned str 'no' instead of nothing or a map of "
            "arguments, ask, answer, refuse",
        ),
        # what it made of the arguments is checked as any call is
        (
            "before = {'arguments': {'a': 'x', 'b': 2}}",
            [],
            "Error: ValidationError: arguments: 'a' must be a whole number, not \"x\"",
        ),
    ],
)
def test_before_a_call_it_may_change_answer_or_refuse(
    places: Any, says: str, called: list[str], content: str
) -> None:
    one = case(places(), "[{before_call: before}]", [CALLS, {"text": "so"}], says)

    assert one.run().status == "succeeded"
    assert one.called == ["before add {'a': 1, 'b': 2}", *called]
    assert one.answers(1) == [content]


@each_row(
    "says, content",
    [
        ("", "3"),
        ("after = {'answer': 'about three'}", "about three"),
        ("after = {'answer': [1, 2]}", "[1,2]"),
        ("after = {'refuse': 'secret'}", "Error: after withheld the result: secret"),
        ("after = KeyError('x')", "Error: after withheld the result: KeyError: 'x'"),
        (
            "after = {'ask': 'me'}",
            "Error: after withheld the result: it returned 'ask', and may return answer, refuse",
        ),
    ],
)
def test_after_a_call_it_may_replace_or_withhold_the_result(
    places: Any, says: str, content: str
) -> None:
    one = case(places(), "[{after_call: after}]", [CALLS, {"text": "so"}], says)

    assert one.run().status == "succeeded"
    assert one.called == ["add 1 2", "after add 3 None"]
    assert one.answers(1) == [content]


def test_it_sees_errors_and_may_answer_in_their_place(tmp_path: Path) -> None:
    script = [{"calls": [call("boom", why="broken")]}, {"text": "so"}]
    one = case(tmp_path, "[{after_call: after}]", script, "after = {'answer': 'all is well'}")

    one.run()

    assert one.called == ["after boom None ValueError: broken"]
    assert one.answers(1) == ["all is well"]


def test_the_first_is_the_outermost_and_globs_choose_the_calls(tmp_path: Path) -> None:
    hooks = "[{before_call: before, tools: [a*]}, {before_call: also}, {after_call: after}]"
    calls = [call("boom", why="x"), call("add", a=1, b=2)]
    says = "before = {'arguments': {'a': 7, 'b': 7}}"
    one = case(tmp_path, hooks, [{"calls": calls}, {"text": "so"}], says)

    one.run()

    assert one.called[:3] == [
        "also boom {'why': 'x'} first 1",
        "before add {'a': 1, 'b': 2}",
        "also add {'a': 7, 'b': 7} first 1",
    ]
    assert "add 7 7" in one.called
    assert one.answers(1)[1] == "14"


def test_after_hooks_run_from_the_inside_out(tmp_path: Path) -> None:
    head = HEAD.replace('"tools:also"', '"tools:after"')
    hooks = "[{after_call: also}, {after_call: after}]"
    one = case(tmp_path, hooks, [CALLS, {"text": "so"}], head=head)

    one.run()

    made = [address.rpartition("/")[2] for address in one.addresses()]
    assert [id for id in made if "after_call" in id] == [
        "first.after_call.after", "first.after_call.also",
    ]  # fmt: skip


def test_rules_have_the_last_word_about_what_it_made_of_the_arguments(places: Any) -> None:
    says = "before = {'arguments': {'a': 99, 'b': 2}}"
    head = f"{HEAD.strip()}\npolicies: [{{deny: add, when: '${{{{ args.a > 9 }}}}'}}]\n"
    one = case(places(), "[{before_call: before}]", [CALLS, {"text": "so"}], says, head=head)

    one.run()

    assert one.answers(1)[0].startswith("Error: Refused: 'add' was not called: policies[0]")
    # an answer in place of the tool is no call, and a rule that allows overrides a question
    one = case(places(), "[{before_call: before}]", [CALLS, {"text": "so"}],
               "before = {'answer': 1}", head=head)  # fmt: skip
    assert one.run().status == "succeeded"
    head = f"{HEAD.strip()}\npolicies: [{{allow: add}}]\n"
    one = case(places(), "[{before_call: before}]", [CALLS, {"text": "so"}],
               "before = {'ask': 'sure?'}", head=head)  # fmt: skip
    assert one.run().status == "succeeded"


def test_it_may_have_approvers_asked_who_see_what_it_made_of_the_call(tmp_path: Path) -> None:
    says = "before = {'arguments': {'a': 5, 'b': 2}, 'ask': 'five is much'}"
    one = case(tmp_path, "[{before_call: before}]", [CALLS, {"text": "so"}], says, by_turn=True)

    assert one.run().status == "waiting"
    with one.engine_open() as engine:
        [wait] = engine.executions.show(one.id)["waits"]
        assert (wait["tool"], wait["subject"]) == ("add", {"a": 5, "b": 2})
        assert wait["about"]["hook"] == "before: five is much"
        engine.approvals.approve(wait["id"])

    assert one.called == ["before add {'a': 1, 'b': 2}", "add 5 2"]


def test_a_call_that_a_person_rejects_is_seen_after_it(tmp_path: Path) -> None:
    hooks = "[{before_call: before}, {after_call: after}]"
    one = case(tmp_path, hooks, [CALLS, {"text": "so"}], "before = {'ask': 'sure?'}", by_turn=True)
    one.run()
    with one.engine_open() as engine:
        [wait] = engine.executions.show(one.id)["waits"]
        engine.approvals.reject(wait["id"], comment="no")

    [seen] = [line for line in one.called if line.startswith("after")]
    assert "Rejected" in seen


def test_a_handoff_is_a_call_that_it_may_refuse(tmp_path: Path) -> None:
    hooks = "[{before_call: before, tools: [transfer_to_*]}]"
    below = "  handoffs: [second]\nsecond: {instructions: You end it.}\n"
    script = [{"calls": [call("transfer_to_second"), call("add", a=1, b=2)]}, {"text": "so"}]
    says = "before = {'refuse': 'stay here'}"
    one = case(tmp_path, hooks, script, says, below=below)

    assert one.run().outputs["agent"] == "first"
    assert one.called == ["before transfer_to_second {}", "add 1 2"]
    assert one.answers(1) == ["Error: before refused it: stay here", "3"]


@each_row(
    "says, agent_outputs, offered",
    [
        ("", "so", [["add", "boom"], ["add", "boom"]]),
        ("begin = {2: {'tools': []}}", "so", [["add", "boom"], []]),
        ("begin = {1: {'tools': ['a*']}}", "so", [["add"], ["add", "boom"]]),
        ("begin = {2: {'answer': 'enough'}}", "enough", [["add", "boom"]]),
        ("begin = {1: {'refuse': 'closed'}}", "NotResolved", []),
        ("begin = {2: ValueError('broken')}", "NotResolved", [["add", "boom"]]),
        ("begin = {2: {'colour': 1}}", "NotResolved", [["add", "boom"]]),
    ],
)
# Shows G7
def test_before_a_turn_it_may_choose_the_tools_answer_or_refuse(
    places: Any, says: str, agent_outputs: str, offered: list[list[str]]
) -> None:
    one = case(places(), "[{before_turn: begin}]", [CALLS, {"text": "so"}], says, by_turn=True)

    result = one.run()

    outcome = result.outputs["answer"] if result.status == "succeeded" else result.error["type"]
    assert outcome == agent_outputs
    assert [one.offered(number) for number in range(len(one.model.requests))] == offered


# Shows G7
def test_before_a_turn_it_may_choose_the_model_and_say_something(tmp_path: Path) -> None:
    says = (
        "begin = {1: {'tool_choice': 'required'}, "
        "2: {'model': 'scripted/other', 'say': 'Be quick.', 'tool_choice': 'none'}}"
    )
    one = case(tmp_path, "[{before_turn: begin}]", [CALLS, {"text": "so"}], says, by_turn=True)
    register("scripted/other", one.model)
    try:
        one.run()
    finally:
        unregister("scripted/other")

    first, second = one.model.requests
    assert (first.model, first.tool_choice) == (NAME, "required")
    assert (second.model, second.tool_choice) == ("scripted/other", "none")
    assert told(one.sent(1))[-1] == ("user", "Be quick.")
    with one.engine_open() as engine:
        steps = engine.executions.show(one.id)["steps"]
    hooks = [step["output"]["choice"] for step in steps if "before_turn" in step["address"]]
    assert [choice.get("model") for choice in hooks] == [None, "scripted/other"]


def test_a_call_of_a_tool_that_is_not_on_offer_in_this_turn_is_told_to_the_model(
    tmp_path: Path,
) -> None:
    says = "begin = {1: {'tools': ['boom']}}"
    one = case(tmp_path, "[{before_turn: begin}]", [CALLS, {"text": "so"}], says)

    one.run()

    assert one.called == ["begin 1 What is 1 + 2?", "begin 2 What is 1 + 2?"]
    assert "add" in one.answers(1)[0]
    assert one.answers(1)[0].startswith("Error: ")


@each_row(
    "says, answer, messages",
    [
        ("", "3!", ["3"]),
        (
            "reply = {1: {'refuse': 'no sums'}}",
            "3!",
            ["Error: reply refused the reply: no sums"],
        ),
        (
            "reply = {1: ValueError('broken')}",
            "3!",
            ["Error: reply refused the reply: ValueError: broken"],
        ),
        (
            "reply = {2: {'refuse': 'no !'}}",
            "then 3",
            ["reply refused the reply: no !\nAnswer again."],
        ),
        ("reply = {2: {'answer': 'three'}}", "three", ["3"]),
        ("reply = {1: {'answer': 'three'}}", "three", []),
    ],
)
def test_after_a_turn_it_may_refuse_the_reply_or_answer(
    places: Any, says: str, answer: str, messages: list[str]
) -> None:
    script = [CALLS, {"text": "3!"}, {"text": "then 3"}]
    one = case(places(), "[{after_turn: reply}]", script, says, by_turn=True)

    assert one.run().outputs["answer"] == answer
    assert one.called[0] == "reply 1 '' ['add']"
    assert ("add 1 2" in one.called) == (
        messages in (["3"], ["reply refused the reply: no !\nAnswer again."])
    )
    if messages:
        assert one.answers(len(one.model.requests) - 1) == messages


def test_checks_still_see_an_answer_that_a_hook_gives(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(
        "def short(answer: str) -> None:\n    assert len(answer) <= 5, 'too long'\n"
    )
    head = f'{HEAD.strip()}\n  short: {{python: "checks:short"}}\n'
    hooks = "[{before_turn: begin}]\n  checks: [{after: short, then: end}]"
    one = case(tmp_path, hooks, [], "begin = {1: {'answer': 'far too long'}}", head=head)

    result = one.run()

    assert "short refused the answer" in result.error["message"]


@each_row(
    "hooks, message",
    [
        ("[{before_call: nothing}]", "no tool 'nothing'"),
        ("[{before_call: before, after_call: after}]", "'before_call' and 'after_call'"),
        ("[{tools: [add]}]", "a hook n"),
        ("[{before_turn: begin, tools: [add]}]", "'tools' is about calls"),
        ("[{before_call: needy}]", "'needy' needs 'color', which no hook 'before_call' is given"),
        ("[{before_call: before}, {before_call: before}]", "'before' is there twice"),
        ("[{before: before}]", "before"),
    ],
)
def test_check_names_what_is_wrong(places: Any, hooks: str, message: str) -> None:
    one = case(places(), hooks, [])

    with pytest.raises(FlowFileError, match=r"flow.yaml:\d+:\d+: error") as error:
        one.run()
    assert message in str(error.value)


def test_a_crash_at_any_write_repeats_nothing_and_decides_nothing_anew(places: Any) -> None:
    hooks = (
        "[{before_turn: begin}, {after_turn: reply}, {before_call: before}, {after_call: after}]"
    )
    says = "before = {'arguments': {'a': 5, 'b': 2}}\nafter = {'answer': 'seven'}"
    calm = case(places(), hooks, [CALLS, {"text": "so"}], says, by_turn=True)
    register(NAME, calm.model)
    try:
        store = FaultyStore()
        with Engine(store, workdir=calm.folder) as engine:
            assert engine.run(calm.path).status == "succeeded"
        for write in range(1, store.writes):
            one = case(places(), hooks, [CALLS, {"text": "so"}], says, by_turn=True)
            register(NAME, one.model)
            there = crashed(one, write, "die before" if write % 2 else "die after")
            # what a hook says from now on counts only where none was asked before
            asked = one.called
            before = next((line for line in asked if line.startswith("add")), None)
            result = gone_on(one, there)
            assert result.status == "succeeded", write
            assert one.sent(len(one.model.requests) - 1)[-1]["content"] == "seven"
            assert before in (None, "add 5 2")
            # a pure or idempotent step that was cut off may run again, one that ended may not
            for line in {*one.called}:
                assert one.called.count(line) <= 2, (write, line)
            assert sum(one.called.count(line) - 1 for line in {*one.called}) <= 1, write
    finally:
        unregister(NAME)

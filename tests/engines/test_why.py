"""Executions stopped on purpose: `why` reports the cause, and what lets each continue (F70)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from tests.engines import world
from tests.testing.faulty_store import FaultyStore, ProcessDied


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(None, user="user:me", linger=0) as engine:
        yield engine


def step(action: str, more: str = "") -> str:
    return f"steps:\n  - id: it\n    {action}\n{more}"


SIGNALS = "signals: {paid: {}, keyed: {key: k7}}\n"
STANDS = {
    "approval": (step("approval: Sure?"), "a decision by anyone: Sure?", "flowengine approve W"),
    "assignees": (
        step('approval: {title: Sure?, assignees: ["group:board", "user:a"]}'),
        "a decision by group:board, user:a",
        "flowengine approve W",
    ),
    "quorum": (
        step("approval: {title: Sure?, need: 3}"),
        r"0 of 3 votes",
        "flowengine approve W",
    ),
    "expiring": (
        step("approval: {title: Sure?, expires: 2h}"),
        "a decision",
        "flowengine approve W",
    ),
    "other choices": (
        step(
            "approval: {title: Which?, choices: [red, blue]}",
            "    next: {outcome: {else: end}}\n",
        ),
        "a decision by anyone: Which",
        "flowengine approvals decide W --choice red",
    ),
    "asked": (
        step('call: std.ask\n    with: {question: "Who?"}'),
        "a decision by anyone: Who",
        "flowengine approve W --form answer=VALUE",
    ),
    "message": (
        SIGNALS + step("wait: {signal: paid}"),
        "a message 'paid'",
        "flowengine signal E paid",
    ),
    "keyed message": (
        SIGNALS + step("wait: {signal: keyed}"),
        "a message 'keyed' with key 'k7'",
        "flowengine signal --key k7 keyed",
    ),
    "either message": (
        SIGNALS
        + step("wait: {first: [{id: a, signal: paid}, {id: b, signal: keyed}]}")
        + "    next: {outcome: {else: end}}\n",
        "a message 'paid' or 'keyed'",
        "flowengine signal E paid",
    ),
    "message in time": (
        SIGNALS + step("wait: {signal: paid}", "    timeout: 2h\n"),
        "a message 'paid'",
        "flowengine signal E paid",
    ),
    "hostile key": (
        'signals: {s: {key: "a b; rm -rf ~"}}\n' + step("wait: {signal: s}"),
        "with key 'a b; rm -rf ~'",
        "flowengine signal --key 'a b; rm -rf ~' s",
    ),
    "message at a join": (
        SIGNALS + step("next: t", "  - {id: t, trigger: paid, join: all}\n"),
        "its join is waiting for a message 'paid'",
        "flowengine signal E paid",
    ),
    "time": (step("wait: 2h"), "waiting until 20", "flowengine resume E"),
    "moment": (
        step('wait: {until: "2100-01-01T00:00:00Z"}'),
        "until 2100-01-01",
        "flowengine resume E",
    ),
    "failed": (
        step('fail: "no more"'),
        "failed with Failed: no more",
        "flowengine retry E --file FILE",
    ),
    "succeeded": (step("output: 1"), "succeeded", None),
}


GROUPS = "groups: {board: [ana, ben], empty: []}\n"
NOBODY = {
    "group:empty, group:none": (
        "[group:empty, group:none]", "[]", "group:empty has no members; group:none has no members",
    ),
    "excluded": ("[user:ana]", "[group:board]", "user:ana is excluded"),
    "group excluded": (
        "[group:board]", "[user:ana, user:ben]", "every member of group:board is excluded",
    ),
    "one is left": ("[group:board]", "[user:ana]", None),
    "anyone": ("[]", "[user:ana]", None),
}  # fmt: skip


@pytest.mark.parametrize("name", NOBODY)
def test_an_approval_that_no_user_may_decide_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "flowengine").mkdir(parents=True)
    (tmp_path / "config" / "flowengine" / "settings.yaml").write_text(GROUPS)
    assignees, exclude, why = NOBODY[name]
    asked = f"approval: {{title: Sure?, assignees: {assignees}, exclude: {exclude}}}"
    with Engine(None, user="user:me", linger=0) as engine:
        id = engine.run(world.make(tmp_path, step(asked))).execution
        (reason,) = engine.why(id)

    assert reason.get("nobody") == why
    assert ("command" in reason) == (why is None)


@pytest.mark.parametrize("name", STANDS)
def test_stand_is_explained(engine: Engine, tmp_path: Path, name: str) -> None:
    text, what, command = STANDS[name]
    id = engine.run(world.make(tmp_path, text)).execution
    (reason,) = engine.why(id)
    assert re.search(what, reason["what"])
    assert reason["wakes"]
    if command is not None:
        command = re.sub(r"\bE\b", engine.store.short_execution(id), command)
        command = command.replace(
            "W", engine.store.short_wait(reason.get("wait", "")) if "W" in command else ""
        )
        assert reason["command"] == command


RECORDED: dict[str, tuple[Callable[[Engine, str], object], str]] = {
    "decision": (
        lambda engine, wait: engine.approve(wait, resume=False),
        "a decision by user:me was recorded",
    ),
    "message": (
        lambda engine, wait: engine.signal(
            "paid", execution=engine.wait(wait)["execution"], resume=False
        ),
        "a message 'paid' was recorded",
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_what_was_recorded_and_not_taken_is_told(engine: Engine, tmp_path: Path, name: str) -> None:
    result = engine.run(world.make(tmp_path, SIGNALS + step("approval: Sure?")))
    record, what = RECORDED[name]
    record(engine, result.waits[0]["id"])
    first = engine.why(result.execution)[0]
    assert first["what"].startswith(what)
    assert first["command"].startswith("flowengine resume ")


def test_execution_that_was_only_recorded_has_not_begun(engine: Engine, tmp_path: Path) -> None:
    (reason,) = engine.why(engine.start(world.make(tmp_path, step("output: 1"))))
    assert reason["what"] == "recorded, but not started yet"


def test_cancelled_execution_says_why(engine: Engine, tmp_path: Path) -> None:
    id = engine.run(world.make(tmp_path, step("approval: Sure?"))).execution
    engine.cancel(id, reason="not needed")
    (reason,) = engine.why(id)
    assert reason["what"] == "cancelled: not needed"


def test_an_idle_execution_names_its_triggers_and_its_end(engine: Engine, tmp_path: Path) -> None:
    triggers = (
        "limits: {idle: 2h}\nsteps: [{id: a, trigger: paid, next: end}, {id: b, trigger: keyed}]\n"
    )
    result = engine.run(world.make(tmp_path, SIGNALS + triggers), id="it")
    first, second, ending = engine.why("it")
    assert result.status == "waiting"
    assert first["command"] == "flowengine signal it paid"
    assert second["command"] == "flowengine signal --key k7 keyed"
    assert "it ends at 20" in ending["what"]
    assert ending["command"] == "flowengine resume it"


def test_tokens_held_at_a_join_name_what_is_missing(engine: Engine, tmp_path: Path) -> None:
    text = """
steps:
  - {id: go, next: {all: [a, b]}}
  - {id: a, output: 1, next: meet}
  - {id: b, approval: Sure?, next: meet}
  - {id: meet, join: all}
"""
    found = {r["address"]: r for r in engine.why(engine.run(world.make(tmp_path, text)).execution)}
    assert found["meet"]["what"] == "its join is waiting for 'b'"
    assert "approve" in found["b"]["command"]


@pytest.mark.parametrize(
    ("effect", "what", "command"),
    [
        ("idempotent", "attempt 1 was running when its process ended", "flowengine resume "),
        ("once", "it was interrupted. Did it take effect", "--choice fail"),
    ],
)
def test_step_whose_process_died_is_told(
    tmp_path: Path, effect: str, what: str, command: str
) -> None:
    file = world.make(tmp_path, step("python: effects:act", f"    effect: {effect}\n"))
    store = FaultyStore()
    with suppress(ProcessDied), Engine(store) as engine:
        engine.subscribe(lambda update: store.die() if update.step is not None else None)
        engine.run(file, id="it")
    store.restart()
    with Engine(store) as engine:
        if effect == "once":
            assert engine.resume("it").status == "stalled"
        (reason,) = engine.why("it")
        assert what in reason["what"]
        assert command in reason["command"]
        if effect == "once":
            decide = f"flowengine approvals decide {reason['wait'][:4]} --choice"
            assert list(reason["commands"].items()) == [
                ("fail", f"{decide} fail"),
                ("result", f"{decide} result --value JSON"),
                ("retry", f"{decide} retry"),
            ]

"""`emit.to`: signals between executions, delivered exactly once (F93)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.results import ExecutionResult, Update
from flowengine.errors import FlowFileError
from tests.engines import world
from tests.testing.faulty_store import FaultyStore, ProcessDied

SENDER = """
inputs: {to: {type: string, default: all}, key: {type: string, default: k}, n: {default: 1}}
signals:
  job: {key: "${{ inputs.key }}"}
  done: {key: "${{ inputs.key }}-done", data: {type: integer}}
steps:
  - {id: ask, emit: {signal: job, data: "${{ inputs.n }}", to: "${{ inputs.to }}"}}
"""
ANSWERED = (
    SENDER
    + """
  - {id: answer, wait: {signal: done}}
outputs: {answer: "${{ steps.answer.output.data }}"}
"""
)
WORKER = """
inputs: {key: {type: string}}
start: [{signal: job, with: {key: "${{ signal.key }}"}}]
signals:
  job: {key: "${{ inputs.key }}", data: {type: integer}}
  done: {data: {type: integer}}
limits: {idle: 1h}
state: {got: {type: array, default: [], reducer: append}}
steps:
  - id: work
    trigger: job
    set: {got: "${{ signal.data }}"}
    emit: {signal: done, key: "${{ inputs.key }}-done", data: "${{ signal.data * 2 }}", to: all}
    next: end
outputs: {got: "${{ state.got }}"}
"""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(None, user="user:me", linger=0) as engine:
        yield engine


def flow(folder: Path, name: str, text: str) -> Path:
    return world.make(folder / name, text).rename(folder / name / f"{name}.yaml")


def worker(folder: Path) -> Path:
    file = flow(folder, "worker", WORKER)
    file.write_text(file.read_text().replace("id: flow", "id: worker"))
    return file


def told(engine: Engine, execution: str) -> list[tuple[str, str, str]]:
    """Return (signal, to, why) for each undelivered signal of an execution."""
    found = engine.show(execution)["undelivered"]
    return [(one["signal"], one["to"], one["why"]) for one in found]


def test_a_request_and_its_answer_between_two_executions(engine: Engine, tmp_path: Path) -> None:
    """Both are driven by the process that started the first one."""
    other = engine.run(worker(tmp_path), {"key": "k"})
    assert other.status == "waiting"
    result = engine.run(flow(tmp_path, "sender", ANSWERED), {"n": 21}, id="it")
    assert (result.status, result.outputs) == ("succeeded", {"answer": 42})
    (message,) = [e for e in engine.events(other.execution) if e["type"] == "message"]
    assert message["by"] == "execution:it"
    assert message["id"].startswith("it/")


def test_all_begins_an_execution_where_none_has_the_key(engine: Engine, tmp_path: Path) -> None:
    engine.deploy(worker(tmp_path))
    sent = engine.run(flow(tmp_path, "sender", SENDER)).execution
    [begun] = engine.executions(flow="worker").items
    assert begun["started_by"] == f"execution:{sent}"
    assert told(engine, sent) == []


@pytest.mark.parametrize("by", ["id", "own id"])
def test_to_an_execution_by_its_id(engine: Engine, tmp_path: Path, by: str) -> None:
    other = engine.run(worker(tmp_path), {"key": "x"}, id="other").execution
    text = SENDER.replace("to: {type: string, default: all}", "to: {type: string, default: it}")
    text = text.replace("  job:", "  back: {}\n  job:") + "  - {id: w, wait: {signal: job}}"
    inputs = {"to": "other"} if by == "id" else {}
    result = engine.run(flow(tmp_path, "sender", text), inputs, id="it")
    assert result.status == ("waiting" if by == "id" else "succeeded")
    assert len([e for e in engine.events(other) if e["type"] == "message"]) == (by == "id")


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("gone", "there is no execution gone"),
        ("all", "no open execution takes signal 'job' with key 'k', and no flow starts one"),
        ("parent", "the sender has no parent"),
        ("ended", "execution ended has succeeded"),
        ("strict", "signal 'job': it must be a whole number, not text"),
        ("deaf", "there is no signal 'job'"),
    ],
)
def test_what_nobody_can_take_is_told_and_kept_with_the_reason(
    engine: Engine, tmp_path: Path, to: str, why: str
) -> None:
    """The step that sent the signal has succeeded, because sending is part of its effects."""
    engine.run(world.make(tmp_path / "ended", "signals: {job: {}}\nsteps: [{id: a}]"), id="ended")
    engine.run(worker(tmp_path), {"key": "x"}, id="strict")
    engine.run(world.make(tmp_path / "deaf", "steps: [{id: a, wait: 1h}]"), id="deaf")
    seen: list[Update] = []
    engine.subscribe(seen.append)
    result = engine.run(flow(tmp_path, "sender", SENDER), {"to": to, "n": "text"}, id="it")
    assert result.status == "succeeded"
    [(signal, where, reason)] = told(engine, "it")
    assert (signal, where) == ("job", to)
    assert reason.startswith(why.split(":", maxsplit=1)[0])
    assert [update.data["why"] for update in seen if update.kind == "undelivered"] == [reason]


def test_a_crash_at_any_write_loses_and_doubles_no_message(tmp_path: Path) -> None:
    """The next process delivers pending signals, even if their sender has ended."""
    sender, receiver = flow(tmp_path, "sender", SENDER), worker(tmp_path)
    for crash in range(60):
        store = FaultyStore()
        with Engine(store) as engine:
            engine.run(receiver, {"key": "k"}, id="other")
        store.faults = {store.writes + crash: "die after" if crash % 2 else "die before"}
        first = store.writes
        with suppress(ProcessDied), Engine(store, linger=0) as engine:
            engine.run(sender, id="it")
        writes, store.faults = store.writes, {}
        store.restart()
        with Engine(store, linger=0) as engine:
            engine.run(sender, id="it")
            result = engine.resume("other")
            assert sum(e["type"] == "message" for e in engine.events("other")) == 1, crash
            assert result.status == "waiting"
            assert [one.why for one in store.undelivered("other")] == [
                "no open execution takes signal 'done' with key 'k-done', and no flow starts one"
            ]
        if writes - first <= crash:
            return
    raise AssertionError("it never came through")


def test_on_one_event_loop_they_talk_while_both_are_at_work(tmp_path: Path) -> None:
    async def talk() -> list[ExecutionResult]:
        async with Engine(None, linger=0) as engine:
            served = await engine.run_async(worker(tmp_path), {"key": "k"})
            asked = await engine.run_async(flow(tmp_path, "sender", ANSWERED), {"n": 4})
            return [asked, engine.result(served.execution)]

    asked, served = asyncio.run(talk())
    assert (asked.outputs, served.status) == ({"answer": 8}, "waiting")


@pytest.mark.parametrize(
    ("emit", "error"),
    [
        ("{signal: plain, to: all}", "E103.*'plain' has no key"),
        ('{signal: job, to: "${{ inputs.n }}"}', "E103.*expected text"),
    ],
)
def test_what_is_refused(tmp_path: Path, emit: str, error: str) -> None:
    text = f"""
inputs: {{n: {{type: integer}}}}
signals: {{plain: {{}}, job: {{key: k}}}}
steps: [{{id: a, emit: {emit}}}]
"""
    with Engine(None) as engine, pytest.raises(FlowFileError, match=f"(?s){error}"):
        engine.load(world.make(tmp_path, text))


def test_a_key_that_is_missing_at_run_time_fails_the_step(engine: Engine, tmp_path: Path) -> None:
    text = """
inputs: {to: {type: string, default: all}}
signals: {plain: {}}
steps: [{id: a, emit: {signal: plain, to: "${{ inputs.to }}"}}]
"""
    error = engine.run(world.make(tmp_path, text)).error
    assert error is not None
    assert (error["type"], error["step"]) == ("ValidationError", "a")

"""Executions in Temporal: same flows, commands and histories as with a store in a folder."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.flows import load
from flowengine.engines.temporal import driving
from flowengine.engines.temporal.address import read_address
from flowengine.engines.temporal.connection import connect
from flowengine.engines.temporal.keys import VARIABLE as KEYS
from flowengine.engines.temporal.objects import VARIABLE, objects
from flowengine.engines.temporal.requests import QUEUE, WORKFLOW
from flowengine.engines.temporal.store import TemporalStore
from flowengine.engines.temporal.support import check_supported
from flowengine.errors import Conflict, FlowFileError, NotFound, StoreError, UsageError
from flowengine.journal.records import ENDED
from flowengine.testing.random_flows import Author
from tests.command_line import flowengine
from tests.engines.temporal_server import RunningWorker, command_line
from tests.flow.examples import EXAMPLES, FILES, compiled

WELCOME = Path(__file__).parents[2] / "examples" / "welcome.yaml"
HEAD = "flowengine: 1\nid: f\n"
RANDOM_FLOWS = 10
TIMES = {"at", "sent", "started_at", "ended_at", "due", "since"}


def without_times(value: Any) -> Any:
    """Return data without its times."""
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [without_times(one) for one in value]
    return value


def shown(engine: Engine, id: str) -> tuple[Any, Any]:
    """Return the results of `show` and `events`, without times."""
    return without_times(engine.show(id)), [*map(without_times, engine.events(id))]


def test_a_flow_outlives_its_worker_and_shows_the_same_as_in_a_folder(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old, new = (f"{name}:{b64encode(os.urandom(64)).decode()}" for name in ("old", "new"))
    monkeypatch.setenv(KEYS, old)
    address, folder = f"{server}/killed", tmp_path / "store"
    begun = ("run", WELCOME, "-i", "name=Ada", "--id", "ada", "--no-interactive")
    with RunningWorker(address):
        in_temporal = command_line("--store", address, *begun)
    in_folder = flowengine("--store", folder, *begun)
    assert (in_temporal.code, in_folder.code) == (4, 4), in_temporal.err

    with Engine(address) as engine, Engine(folder) as other:
        for read in (lists, waits_of):  # no worker is running
            assert read(engine) == read(other)
    monkeypatch.setenv(KEYS, f"{new},{old}")
    with RunningWorker(address):
        [wait] = in_temporal.ids
        approved = command_line("--store", address, "approve", wait)
        fails = write_flow(tmp_path, "steps: [{id: a, call: needs, with: {name: private}}]\n")
        with Engine(address) as engine:
            assert "private" in str(engine.run(fails, id="fails").error)
    with Engine(address) as engine:
        there = shown(engine, "ada")  # nor here
        with pytest.raises(Conflict, match="was already approved by "):
            engine.reject(wait)
        with pytest.raises(Conflict, match="has succeeded"):
            engine.cancel("ada")
    assert b"Ada" not in asyncio.run(history_of(address, "ada"))
    assert b"private" not in asyncio.run(history_of(address, "fails"))
    monkeypatch.setenv(KEYS, new)
    with Engine(address) as engine, pytest.raises(StoreError, match="with the key 'old'"):
        engine.show("ada")
    assert (approved.code, approved.out) == (0, "sent: Ada.txt\n"), approved.err
    assert Path("Ada.txt").read_text() == "Dear Ada, welcome aboard!"
    Path("Ada.txt").unlink()
    flowengine("--store", folder, "approve", in_folder.ids[-1])
    with Engine(folder, durability="power") as engine:
        assert there == shown(engine, "ada")


def lists(engine: Engine) -> Any:
    """Return what `list` tells."""
    return [
        {name: value for name, value in without_times(row).items() if name != "due"}
        for row in engine.executions(flow="welcome", status="waiting").items
    ]


def waits_of(engine: Engine) -> Any:
    """Return what `approvals list` tells."""
    page = engine.waits(kinds=["approval"], flow="welcome", assignee=None)
    return [without_times(wait) for wait in page.items]


MODULE = """\
import time
from pathlib import Path

def double(n: int) -> int:
    return 2 * n

def fail() -> None:
    raise ValueError("no")

def hold(name: str) -> str:
    held = Path(name)
    if not held.exists():
        held.touch()
        while not held.with_suffix(".free").exists():
            time.sleep(0.02)
    return "done"

def long(size: int) -> str:
    return "x" * size

def needs(name: str) -> str:
    return Path(name).read_text()
"""
TOOLS = """\
tools:
  double: {python: "temporal_tools:double", effect: pure}
  fail: {python: "temporal_tools:fail", effect: idempotent}
  again: {python: "temporal_tools:hold", effect: idempotent}
  once: {python: "temporal_tools:hold", effect: once}
  long: {python: "temporal_tools:long", effect: pure}
  fee: {python: "temporal_tools:double", approval: required}
  needs: {python: "temporal_tools:needs", effect: pure}
"""
MIXED = """\
inputs: {count: {type: integer, default: 4}}
steps:
  - {id: first, output: "${{ inputs.count > 2 ? 'many' : 'few' }}"}
  - {id: pause, wait: 20ms}
  - id: each
    map: {over: "${{ inputs.count }}", concurrency: 1}
    call: double
    with: {n: "${{ item }}"}
  - id: fails
    call: fail
    retry: {attempts: 2, delay: 10ms, jitter: none}
    on_error: [{output: "caught ${{ error.message }}"}]
  - {id: sign, approval: {title: Go on?, expires: 20ms, on_expire: approve}}
outputs:
  all: ["${{ steps.first.output }}", "${{ steps.each.output }}", "${{ steps.fails.output }}"]
"""


def write_flow(folder: Path, steps: str) -> Path:
    (folder / "temporal_tools.py").write_text(MODULE)
    path = folder / "flow.yaml"
    path.write_text(HEAD + TOOLS + steps)
    return path


def test_histories_are_those_of_a_folder_and_replay_under_another_hash_seed(
    store: str, tmp_path: Path
) -> None:
    flow = write_flow(tmp_path, MIXED)
    with Engine(store) as there, Engine(tmp_path / "store") as here:
        found, wanted = (engine.run(flow, id="mixed") for engine in (there, here))
        assert (found.status, found.outputs) == (wanted.status, wanted.outputs) == (
            "succeeded", {"all": ["many", [0, 2, 4, 6], "caught no"]}
        )  # fmt: skip
        assert shown(there, "mixed") == shown(here, "mixed")
    asyncio.run(replay(store, "mixed"))


async def replay(store: str, id: str) -> None:
    """Replay a history in this process, which has another hash seed than the worker."""
    from temporalio.worker import Replayer

    from flowengine.engines.temporal.worker import runner_of_workflows
    from flowengine.engines.temporal.workflow import FlowExecution

    client = await connect(read_address(store), objects())
    history = await client.get_workflow_handle(id).fetch_history()
    replayer = Replayer(
        workflows=[FlowExecution],
        workflow_runner=runner_of_workflows(),
        data_converter=client.data_converter,
    )
    await replayer.replay_workflow(history)


def test_what_a_lost_worker_leaves_follows_the_effect(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    address = f"{server}/lost"
    held, free = tmp_path / "a", tmp_path / "a.free"
    flow = write_flow(
        tmp_path,
        "steps:\n  - id: both\n    parallel:\n"
        f"      - {{id: x, call: again, with: {{name: {held}}}}}\n"
        f"      - {{id: y, call: once, with: {{name: {tmp_path / 'b'}}}}}\n"
        f"      - {{id: z, run: 'test -e {tmp_path}/c || {{ echo $$ >{tmp_path}/c; sleep 600; }}',"
        " effect: idempotent}\n",
    )
    short = ("--heartbeat", "1s")
    with Engine(address) as engine:
        with RunningWorker(address, *short):
            engine.start(flow, id="lost")
            until = time.monotonic() + 60
            while (
                not all((tmp_path / name).exists() for name in "abc")
                or not (tmp_path / "c").read_text()
            ):
                assert time.monotonic() < until
                time.sleep(0.02)
            program = Path("/proc", (tmp_path / "c").read_text().strip())
            assert program.exists()
        free.touch()
        wait_until(lambda: not program.exists())  # its guard has ended it
        with RunningWorker(address, *short) as worker:
            result = engine.resume("lost")
            tries = {step["address"]: step["attempts"] for step in engine.show("lost")["steps"]}
            [question] = result.waits
            assert (result.status, question["ran"]) == ("stalled", "maybe")
            assert (tries["both/x"], tries["both/z"]) == (2, 2)
            answered = engine.decide(question["id"], "result", value="seen").result
            assert answered is not None
            assert answered.status == "succeeded"
            large = write_flow(tmp_path, "steps: [{id: a, call: long, with: {size: 1000000}}]\n")
            failed = engine.run(large)
            assert failed.error is not None
            assert (failed.status, failed.error["type"]) == ("failed", "LimitExceeded")
            with pytest.raises(UsageError, match="need an object store"):
                engine.store.put_artifact("lost", b"x", "x")
            assert worker.stop() == 0
    taken = "taken    execution=lost flow=f why=attempt step=both/x\n"
    assert taken in [line.partition("Z ")[2] for line in worker.log]


def test_who_decides_second_learns_who_was_first(store: str, tmp_path: Path) -> None:
    with Engine(store, workdir=tmp_path, user="user:ana") as engine:
        result = engine.run(WELCOME, {"name": "Bob"}, id="decided")
        [wait] = result.waits
        assert engine.approve(wait["id"][:8], resume=False).first
        with pytest.raises(Conflict, match="was already approved by user:ana"):
            engine.reject(wait["id"])
        assert engine.resume("decided").outputs == {"sent": "Bob.txt"}
        assert not engine.approve(wait["id"]).first
        with pytest.raises(Conflict, match="was already approved by user:ana"):
            engine.reject(wait["id"])
        with pytest.raises(Conflict, match="has succeeded"):
            engine.cancel("decided")
        with pytest.raises(Conflict, match="with other inputs"):
            engine.run(WELCOME, {"name": "Cy"}, id="decided")
        with pytest.raises(NotFound, match="there is no execution 'none'"):
            engine.show("none")
    assert asyncio.run(updates_of(store, "decided")) == 1  # what is refused leaves no trace


async def updates_of(store: str, id: str) -> int:
    """Return how many updates are in a history."""
    handle = (await connect(read_address(store))).get_workflow_handle(id)
    events = [event async for event in handle.fetch_history_events()]
    name = "workflow_execution_update_accepted_event_attributes"
    return sum(event.WhichOneof("attributes") == name for event in events)


def test_without_a_worker_an_execution_is_recorded_and_that_is_said(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "WORKER_SECONDS", 0)
    with Engine(f"{server}/idle") as engine:
        with pytest.raises(StoreError, match=r"is recorded, and \S+/idle has no worker"):
            engine.run(WELCOME, {"name": "Bob"})
        monkeypatch.setattr(TemporalStore, "may_rest", interrupt)
        with pytest.raises(KeyboardInterrupt, match="continues in Temporal"):
            engine.run(WELCOME, {"name": "Bob"}, labels={"who": "bob"}, id="held")
        [row] = engine.executions(labels={"who": "bob"}).items
        assert (row["execution"], row["status"]) == ("held", "recorded")


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_workflow_task_that_fails_again_and_again_is_an_error(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Histories that do not match the code cause this. Here, the input is not a flow."""

    async def start() -> None:
        client = await connect(read_address(store))
        await client.start_workflow(WORKFLOW, {}, id="unfit", task_queue=QUEUE)

    monkeypatch.setattr("flowengine.engines.temporal.store.TRIES", 2)  # from 3 on, it takes seconds
    asyncio.run(start())
    with Engine(store) as engine:
        remote = engine.store
        assert isinstance(remote, TemporalStore)
        with pytest.raises(StoreError, match="its workflow task fails again and again"):
            watch(remote, "unfit")


def watch(store: TemporalStore, execution: str) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert not store.may_rest(execution)
        time.sleep(0.05)


def test_failures_are_retried_and_steps_forked(store: str, tmp_path: Path) -> None:
    found, made = [], tmp_path / "made"
    flow = write_flow(
        tmp_path,
        "steps:\n  - {id: first, call: double, with: {n: 2}}\n"
        "  - {id: sign, approval: {title: Go on?}}\n"
        f"  - {{id: last, call: needs, with: {{name: {made}}}}}\n"
        "outputs: {n: '${{ steps.last.output }}'}\n",
    )
    for place in (store, tmp_path / "store"):
        made.unlink(missing_ok=True)
        with Engine(place, user="user:ana") as engine:
            failed = engine.run(flow, id="again")
            engine.approve(failed.waits[0]["id"])
            assert engine.result("again").status == "failed"
            made.write_text("done")
            assert engine.retry("again").outputs == {"n": "done"}
            with pytest.raises(Conflict, match="only a failed execution can be retried"):
                engine.retry("again")
            forked = engine.fork("again", from_step="sign", id="forked")
            engine.approve(forked.waits[0]["id"])
            assert engine.result("forked").outputs == {"n": "done"}
            assert [one["execution"] for one in engine.executions(flow="f").items[:2]] == [
                "forked", "again",
            ]  # fmt: skip
            diff = without_times(engine.diff("again", "forked"))
            found.append([shown(engine, "again"), shown(engine, "forked"), diff])
    assert found[0] == found[1]


LOOP = """\
steps:
  - id: each
    map: {over: 25, concurrency: 1}
    call: double
    with: {n: "${{ item }}"}
  - {id: sign, approval: {title: Go on?}}
  - {id: last, call: double, with: {n: "${{ size(steps.each.output) }}"}}
outputs: {n: "${{ steps.last.output }}"}
"""


def test_long_histories_are_continued_in_other_runs(store: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, LOOP)
    with Engine(store) as there, Engine(tmp_path / "store") as here:
        for engine in (there, here):
            waits = engine.run(flow, id="long").waits
            engine.approve(waits[0]["id"])
        assert asyncio.run(runs_of(store, "long")) > 2
        assert there.result("long").outputs == here.result("long").outputs
        assert shown(there, "long") == shown(here, "long")
        assert len(there.executions(flow="f", status="succeeded").items) > 0


async def runs_of(store: str, id: str) -> int:
    client = await connect(read_address(store))
    return len([row async for row in client.list_workflows(f"WorkflowId = '{id}'")])


def test_lists_have_pages_and_filters(store: str, tmp_path: Path) -> None:
    flow = write_flow(
        tmp_path, "inputs: {n: {type: integer}}\nsteps: [{id: sign, approval: {title: Go}}]\n"
    )
    flow.write_text(flow.read_text().replace("id: f", "id: paged"))
    with Engine(store) as engine:
        for n in range(5):
            engine.run(flow, {"n": n}, id=f"page{n}", labels={"odd": str(n % 2)})
        pages = [engine.executions(flow="paged", limit=2)]
        while pages[-1].next is not None:
            pages.append(engine.executions(flow="paged", limit=2, after=pages[-1].next))
        ids = [[row["execution"] for row in page.items] for page in pages]
        assert ids == [["page4", "page3"], ["page2", "page1"], ["page0"]]
        odd = engine.executions(flow="paged", labels={"odd": "1"}).items
        assert [row["execution"] for row in odd] == ["page3", "page1"]
        waits = engine.waits(flow="paged", limit=3)
        rest = engine.waits(flow="paged", limit=3, after=waits.next)
        found = [wait["execution"] for wait in [*waits.items, *rest.items]]
        assert (found, rest.next) == ([f"page{n}" for n in range(5)], None)
        engine.approve(waits.items[0]["id"])
        wait_until(lambda: len(engine.waits(flow="paged").items) == 4)
        assert engine.due() == []
        assert [one["execution"] for one in engine.waits(execution="page1").items] == ["page1"]


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until the index of the server has caught up."""
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


ORDER = """\
inputs: {order: {type: string}}
signals:
  paid: {key: "${{ inputs.order }}", data: {type: integer}}
  stop: {}
start: [{signal: paid, with: {order: "${{ signal.key }}"}}]
steps:
  - {id: first, wait: {signal: paid}}
  - {id: second, wait: {signal: stop}}
outputs: {n: "${{ steps.first.output.data }}"}
"""


def test_messages_reach_executions_by_id_and_by_key(store: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, ORDER)
    with Engine(store) as engine:
        one = engine.run(flow, {"order": "7"}, id="one").execution
        sent = engine.signal("paid", 5, key="7", id="m1")
        assert (sent.execution, sent.first, sent.began) == (one, True, False)
        assert not engine.signal("paid", 5, key="7", id="m1", resume=False).first
        with pytest.raises(Conflict, match="'data' is 5 there and 6 here"):
            engine.signal("paid", 6, key="7", id="m1")
        assert engine.signal("stop", execution=one, id="m2", resume=False).first
        assert engine.resume(one).outputs == {"n": 5}
        assert not engine.signal("stop", execution=one, id="m2", resume=False).first
        with pytest.raises(Conflict, match="has succeeded"):
            engine.signal("stop", execution=one)
        with pytest.raises(NotFound, match="no open execution takes signal 'paid'"):
            engine.signal("paid", 5, key="7")
        timed = tmp_path / "timed.yaml"
        timed.write_text(f"{HEAD}start: [{{schedule: 0 9 * * *}}]\nsteps: [{{id: a, output: 1}}]\n")
        with pytest.raises(UsageError, match="does not support starting on a schedule"):
            engine.deploy(timed)
        assert engine.deployed() == []
        engine.deploy(flow)
        assert [one["current"] for one in engine.deployed()] == [True]
        assert engine.starts() == [{"flow": "f", "signal": "paid"}]
        begun = engine.signal("paid", 8, key="8")
        assert (begun.began, engine.result(begun.execution).status) == (True, "waiting")
        engine.cancel(begun.execution)
        assert engine.signal("paid", 9, key="8").execution != begun.execution


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_of_two_first_messages_one_starts_the_execution(
    block: int, store: str, tmp_path: Path
) -> None:
    flow = write_flow(tmp_path, ORDER)
    with Engine(store) as one, Engine(store) as other:
        one.deploy(flow)
        keys = [f"race{block}-{n}" for n in range(20)]
        with ThreadPoolExecutor(20) as threads:
            sent = [
                threads.submit(engine.signal, "paid", 1, key=key, resume=False)
                for key in keys
                for engine in (one, other)
            ]
            found = [future.result() for future in sent]
        for first, second in zip(found[::2], found[1::2], strict=True):
            assert first.execution == second.execution
            assert first.began != second.began


SIGNED = """\
steps:
  - id: each
    map: 25
    group:
      - id: sign
        approval: {title: "${{ 'Item ' + string(item) }}"}
        on_error: [{type: Rejected, output: {choice: reject}}]
    output: "${{ steps.sign.output.choice }}"
outputs: {signed: "${{ steps.each.output }}"}
"""


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_of_two_decisions_one_takes_effect(block: int, store: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, SIGNED)

    def decide(engine: Engine, choice: str, wait: str) -> str:
        """Decide, and return the decision that takes effect as this caller learns it."""
        try:
            engine.decide(wait, choice, resume=False)
        except Conflict as refusal:
            return "approve" if "was already approved by" in str(refusal) else "reject"
        return choice

    with Engine(store) as one, Engine(store) as other, ThreadPoolExecutor(10) as threads:
        for number in range(4):
            result = one.run(flow, id=f"raced{block}-{number}")
            told = [
                (
                    threads.submit(decide, one, "approve", wait["id"]),
                    threads.submit(decide, other, "reject", wait["id"]),
                )
                for wait in result.waits
            ]
            learned = [{one.result() for one in pair} for pair in told]
            assert [len(pair) for pair in learned] == [1] * 25
            taken = [choice for pair in learned for choice in pair]
            assert one.resume(result.execution).outputs == {"signed": taken}


DOUBLED = "outputs: {n: '${{ steps.a.output }}'}\n"


def test_calls_are_approved(store: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, "steps: [{id: a, call: fee, with: {n: 2}}]\n" + DOUBLED)
    with Engine(store) as there, Engine(tmp_path / "store", durability="power") as here:
        for engine in (there, here):
            [wait] = engine.run(flow, id="call").waits
            assert engine.approve(wait["id"]).result.outputs == {"n": 4}  # type: ignore[union-attr]
        assert shown(there, "call") == shown(here, "call")


def test_agents_take_turns(store: str, tmp_path: Path) -> None:
    with (
        Engine(store, workdir=EXAMPLES / "triage") as there,
        Engine(tmp_path / "store", workdir=EXAMPLES / "triage") as here,
    ):
        for engine in (there, here):
            result = engine.run(EXAMPLES / "triage" / "triage.yaml", id="triage")
            assert result.error is None
            if result.waits:
                engine.approve(result.waits[0]["id"])
        assert there.result("triage").outputs == here.result("triage").outputs
        assert happened(there, "triage") == happened(here, "triage")  # ids of calls are random


def happened(engine: Engine, id: str) -> list[tuple[str, str]]:
    return [(event["type"], event.get("address", "")) for event in engine.events(id)]


DETACHED = """\
flows:
  child: {inputs: {n: {type: integer}}, steps: [{id: sign, approval: {title: Go on?}}]}
steps: [{id: begin, map: 2, flow: child, detach: true, with: {n: "${{ item }}"}}]
outputs: {ids: "${{ steps.begin.output.map(one, one.execution_id) }}"}
"""


def test_flows_begin_others(store: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, DETACHED)
    with Engine(store) as there, Engine(tmp_path / "store") as here:
        for engine in (there, here):
            outputs = engine.run(flow, id="parent").outputs
            assert outputs is not None
            for child in outputs["ids"]:
                assert [wait["address"] for wait in engine.resume(child).waits] == ["sign"]
        assert there.result("parent").outputs == here.result("parent").outputs


BUDGET = """\
budget: {tool_calls: 1}
steps:
  - {id: a, call: double, with: {n: 1}, compensate: {call: double, with: {n: 2}}}
  - {id: b, call: double, with: {n: 3}}
on_error: compensate
"""


def test_budgets_and_compensations(store: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, BUDGET)
    with Engine(store) as there, Engine(tmp_path / "store") as here:
        for engine in (there, here):
            assert engine.run(flow, id="budget").status == "failed"
        assert shown(there, "budget") == shown(here, "budget")


SECRET = """\
secrets: {KEY: {file: FILE}}
steps:
  - id: a
    run: {script: 'echo "$KEY" | wc -c; echo $KEY', env: {KEY: "${{ secrets.KEY }}"}}
outputs: {printed: "${{ steps.a.output.stdout }}"}
"""


def test_secrets_stay_references(store: str, tmp_path: Path) -> None:
    """A worker resolves them, and nothing of them is in a history."""
    (tmp_path / "key").write_text("hidden-value")
    flow = write_flow(tmp_path, SECRET.replace("FILE", str(tmp_path / "key")))
    with Engine(store) as engine:
        result = engine.run(flow, id="secret")
    assert result.outputs == {"printed": "13\n***\n"}
    assert b"hidden-value" not in asyncio.run(history_of(store, "secret"))


async def history_of(store: str, id: str) -> bytes:
    handle = (await connect(read_address(store))).get_workflow_handle(id)
    return b"".join([event.SerializeToString() async for event in handle.fetch_history_events()])


SENDER = """\
inputs: {to: {type: string}}
signals: {paid: {data: {type: integer}}}
steps:
  - {id: ask, emit: {signal: paid, data: 3, key: "9", to: "${{ inputs.to }}"}}
"""


def test_executions_send_messages_to_each_other(store: str, tmp_path: Path) -> None:
    receiver, sender = write_flow(tmp_path, ORDER), tmp_path / "sender.yaml"
    sender.write_text(HEAD.replace("id: f", "id: sender") + SENDER)
    with Engine(store) as engine:
        waits = engine.run(receiver, {"order": "9"}).execution
        assert engine.run(sender, {"to": "all"}).status == "succeeded"
        assert engine.result(waits).waits[0]["address"] == "second"
        lost = engine.run(sender, {"to": "nobody"})
        [undelivered] = engine.show(lost.execution)["undelivered"]
        assert "there is no execution nobody" in undelivered["why"]


LOCKED = """\
steps:
  - id: g
    lock: {key: a, scope: global}
    group: [{id: sure, approval: {title: Sure?}}]
"""


def test_locks_and_bounds_are_shared_by_executions(store: str, tmp_path: Path) -> None:
    flow, bounded = write_flow(tmp_path, LOCKED), tmp_path / "bounded.yaml"
    steps = "steps: [{id: sure, approval: {title: Sure?}}]\n"
    bounded.write_text(f"{HEAD}concurrency: {{max: 1, then: reject}}\n{steps}")
    with Engine(store, linger=0) as engine:
        one, two = (engine.run(flow).execution for _ in range(2))
        assert (len(engine.result(one).waits), len(engine.result(two).waits)) == (1, 0)
        assert one[:12] in str(engine.why(two))
        engine.approve(engine.result(one).waits[0]["id"])
        wait_until(lambda: len(engine.result(two).waits) == 1)
        first = engine.run(bounded).execution
        with pytest.raises(Conflict, match=f"concurrency limit: execution {first} is open"):
            engine.run(bounded)
        engine.cancel(first)
        assert engine.run(bounded).status == "waiting"


def test_an_execution_is_cancelled(store: str, tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    with Engine(store) as engine:
        engine.run(WELCOME, {"name": "Bob"}, id="cancelled")
        engine.subscribe(lambda update: told.append((update.kind, update.data.status)))
        engine.cancel("cancelled")
        assert told == [("end", "cancelled")]
        assert engine.result("cancelled").status == "cancelled"


def test_temporals_own_page_names_flows_and_steps(store: str, tmp_path: Path) -> None:
    flow = write_flow(
        tmp_path,
        "steps:\n  - {id: pause, wait: 10ms}\n"
        "  - {id: each, map: 2, call: double, with: {n: '${{ item }}'}}\n",
    )
    with Engine(store) as engine:
        assert engine.run(flow, id="named").status == "succeeded"
    assert asyncio.run(summaries_of(store, "named")) == [
        "flow f", "next timer", "each[0] #1", "each[1] #1",
    ]  # fmt: skip


async def summaries_of(store: str, id: str) -> list[str]:
    client = await connect(read_address(store))
    events = [event async for event in client.get_workflow_handle(id).fetch_history_events()]
    found = [event.user_metadata.summary for event in events]
    [*texts] = await client.data_converter.decode([one for one in found if one.data])
    return [str(text) for text in texts]


LARGE = """\
steps:
  - {id: a, call: long, with: {size: 3000000}}
  - {id: b, run: 'head -c 200000 /dev/zero | tr "\\\\0" x'}
outputs: {size: "${{ size(steps.a.output) }}", file: "${{ steps.b.output.stdout_file }}"}
"""


def test_large_values_and_files_are_kept_by_reference(store: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, LARGE)
    with Engine(store) as engine:
        result = engine.run(flow, id="large")
        assert result.outputs is not None, result.error
        file = result.outputs["file"]
        assert (result.outputs["size"], file["size"]) == (3_000_000, 200_000)
        assert Path(file["path"]).read_bytes() == b"x" * 200_000
        with engine.store.open_artifact(file["sha256"], "large") as content:
            assert content.read() == b"x" * 200_000
        with pytest.raises(NotFound, match="execution other has no artifact"):
            engine.store.fetch_artifact(file["sha256"], "other")
    assert len(asyncio.run(history_of(store, "large"))) < 20_000


def test_what_is_not_supported_is_refused_before_it_runs(tmp_path: Path) -> None:
    reducer = (
        'state: {n: {type: integer, default: 0, reducer: {python: "temporal_tools:double"}}}\n'
    )
    flow = write_flow(tmp_path, reducer + "steps: [{id: a, call: double, with: {n: 1}}]\n")
    with pytest.raises(UsageError, match="does not support reducers in Python"):
        check_supported(load(flow).compiled)
    none = pytest.raises(UsageError, match="does not support access to the environments")
    with Engine("temporal://127.0.0.1:1/own") as engine, none:
        _ = engine.environments
    path = tmp_path / "scheduled.yaml"
    path.write_text(f"{HEAD}start: [{{schedule: 0 9 * * *}}]\nsteps: [{{id: a, output: 1}}]\n")
    with pytest.raises(UsageError, match="does not support starting on a schedule"):
        check_supported(load(path).compiled)


ACT = """
def act(value):
    if len(str(value)) % 4 == 0:
        raise ValueError("no")
    return len(str(value))
"""


def random_flow(seed: int, folder: Path, *, wild: bool = False) -> Path | None:
    """Write a random flow whose waits are short. None: the checker refuses it."""
    (folder / "tools.py").write_text(ACT)
    flow = {"flowengine": 1, "id": f"random{seed}", **Author(seed, wild=wild).flow()}
    path = folder / f"{seed}.yaml"
    text = json.dumps(flow)
    path.write_text(re.sub(r'"([12])s"', r'"\g<1>0ms"', text))
    try:
        load(path)
    except FlowFileError:
        return None
    return path


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_random_flows_do_the_same_as_in_a_folder(block: int, store: str, tmp_path: Path) -> None:
    seeds = range(100 * block, 100 * block + RANDOM_FLOWS)
    flows = {seed: path for seed in seeds if (path := random_flow(seed, tmp_path))}
    inputs = {"p": True, "q": False, "r": True}
    with Engine(store) as there, Engine(tmp_path / "store") as here:
        for seed, path in flows.items():
            there.start(path, inputs, id=f"random{seed}")
        for seed, path in flows.items():
            id = f"random{seed}"
            found, wanted = there.resume(id), here.run(path, inputs, id=id)
            assert (found.status, found.outputs) == (wanted.status, wanted.outputs), id
            assert Counter(happened(there, id)) == Counter(happened(here, id)), id
    for seed in flows:  # the hash seed of this process is not that of the worker
        asyncio.run(replay(store, f"random{seed}"))


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_random_flows_with_races_end(block: int, store: str, tmp_path: Path) -> None:
    """With messages, triggers, shared locks, bounds, budgets and compensation."""
    seeds = range(10_000 + 10 * block, 10_000 + 10 * block + 10)
    flows = {seed: path for seed in seeds if (path := random_flow(seed, tmp_path, wild=True))}
    with Engine(store) as engine:
        for seed, path in flows.items():
            engine.start(path, dict.fromkeys("pqr", True), id=f"wild{seed}")
        for seed in flows:
            with suppress(Conflict):  # it has ended
                engine.signal("go", execution=f"wild{seed}", resume=False)
                engine.signal("more", 3, execution=f"wild{seed}", resume=False)
        results = [engine.resume(f"wild{seed}") for seed in flows]
    kinds = {result.error["type"] for result in results if result.error is not None}
    assert {result.status for result in results} <= {*ENDED, "stalled"}
    assert kinds.isdisjoint({"EngineError", "StoreError"})


def test_every_example_runs() -> None:
    for path in FILES:
        check_supported(compiled(path).flow)


@pytest.mark.parametrize("text", ["one", "one:short", ":" + "A" * 88, "one:" + "A" * 88 + ",two"])
def test_keys_are_checked(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS, text)
    wrong = pytest.raises(UsageError, match="each key is NAME:BASE64")
    with Engine("temporal://127.0.0.1:1/own") as engine, wrong:
        engine.show("one")


@pytest.mark.parametrize("text", ["temporal://host/name", "temporal://host:1", "temporal://:1/a b"])
def test_addresses_are_checked(text: str) -> None:
    with pytest.raises(UsageError, match="temporal://HOST:PORT/NAMESPACE"):
        Engine(text)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "temporalio", None)
    with pytest.raises(UsageError, match=r"pip install 'flowengine\[temporal\]'"):
        Engine("temporal://127.0.0.1:1/default")


def test_without_a_server_it_says_so() -> None:
    with Engine("temporal://127.0.0.1:1/default") as engine, pytest.raises(StoreError) as caught:
        engine.show("one")
    assert "cannot connect to Temporal at 127.0.0.1:1" in caught.value.message


def test_credentials_are_those_of_temporals_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    async def no_connection(**arguments: Any) -> None:
        given.update(arguments)
        raise RuntimeError("none")

    monkeypatch.setattr("temporalio.client.Client.connect", no_connection)
    monkeypatch.setenv("TEMPORAL_API_KEY", "hidden")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "elsewhere:1")
    with pytest.raises(StoreError, match="cannot connect"):
        asyncio.run(connect(read_address("temporal://here:2/own")))
    assert (given["target_host"], given["namespace"]) == ("here:2", "own")
    assert (given["api_key"], given["tls"]) == ("hidden", True)


def test_a_worker_refuses_where_policies_of_its_host_would_not_be_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "flowengine").mkdir()
    (tmp_path / "flowengine" / "policies.yaml").write_text("policies: []\n")
    refused = flowengine("--store", "temporal://127.0.0.1:1/default", "worker")
    assert (refused.code, "policies of a host" in refused.err) == (2, True)

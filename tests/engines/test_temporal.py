"""Executions in Temporal: the same flows, commands and histories as with a store in a folder."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.flows import load
from flowengine.engines.temporal import driving
from flowengine.engines.temporal.address import read_address
from flowengine.engines.temporal.requests import QUEUE, WORKFLOW
from flowengine.engines.temporal.store import TemporalStore, connect
from flowengine.engines.temporal.support import check_supported
from flowengine.errors import Conflict, NotFound, StoreError, UsageError
from tests.command_line import flowengine
from tests.engines.temporal_server import RunningWorker, command_line, temporal_server

WELCOME = Path(__file__).parents[2] / "examples" / "welcome.yaml"
HEAD = "flowengine: 1\nid: f\n"
TIMES = {"at", "sent", "started_at", "ended_at", "due", "since"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with temporal_server("shared", "killed", "lost", "idle") as addresses:
        yield addresses


@pytest.fixture(scope="module")
def store(server: str) -> Iterator[str]:
    """A store with a worker that is stopped the ordinary way."""
    address = f"{server}/shared"
    with RunningWorker(address) as worker:
        yield address
        assert worker.stop() == 0


def without_times(value: Any) -> Any:
    """Return data without its times."""
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [without_times(one) for one in value]
    return value


def shown(engine: Engine, id: str) -> tuple[Any, Any]:
    """Return what `show` and `events` tell of an execution, without times."""
    return without_times(engine.show(id)), [*map(without_times, engine.events(id))]


def test_a_flow_outlives_its_worker_and_shows_the_same_as_in_a_folder(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address, folder = f"{server}/killed", tmp_path / "store"
    begun = ("run", WELCOME, "-i", "name=Ada", "--id", "ada", "--no-interactive")
    with RunningWorker(address):
        in_temporal = command_line("--store", address, *begun)
    in_folder = flowengine("--store", folder, *begun)
    assert (in_temporal.code, in_folder.code) == (4, 4), in_temporal.err

    with RunningWorker(address):
        [wait] = in_temporal.ids
        approved = command_line("--store", address, "approve", wait)
        with Engine(address) as engine:
            there = shown(engine, "ada")
    assert (approved.code, approved.out) == (0, "sent: Ada.txt\n"), approved.err
    assert Path("Ada.txt").read_text() == "Dear Ada, welcome aboard!"
    Path("Ada.txt").unlink()
    flowengine("--store", folder, "approve", in_folder.ids[-1])
    with Engine(folder, durability="power") as engine:
        assert there == shown(engine, "ada")


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
"""
TOOLS = """\
tools:
  double: {python: "temporal_tools:double", effect: pure}
  fail: {python: "temporal_tools:fail", effect: idempotent}
  again: {python: "temporal_tools:hold", effect: idempotent}
  once: {python: "temporal_tools:hold", effect: once}
  long: {python: "temporal_tools:long", effect: pure}
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
    """Replay a history in this process, whose hash seed is not that of the worker."""
    from temporalio.worker import Replayer

    from flowengine.engines.temporal.payloads import CONVERTER
    from flowengine.engines.temporal.worker import runner_of_workflows
    from flowengine.engines.temporal.workflow import FlowExecution

    client = await connect(read_address(store))
    history = await client.get_workflow_handle(id).fetch_history()
    replayer = Replayer(
        workflows=[FlowExecution],
        workflow_runner=runner_of_workflows(),
        data_converter=CONVERTER,
    )
    await replayer.replay_workflow(history)


def test_what_a_lost_worker_leaves_follows_the_effect(server: str, tmp_path: Path) -> None:
    address = f"{server}/lost"
    held, free = tmp_path / "a", tmp_path / "a.free"
    flow = write_flow(
        tmp_path,
        "steps:\n  - id: both\n    parallel:\n"
        f"      - {{id: x, call: again, with: {{name: {held}}}}}\n"
        f"      - {{id: y, call: once, with: {{name: {tmp_path / 'b'}}}}}\n",
    )
    short = ("--heartbeat", "1s")
    with Engine(address) as engine:
        with RunningWorker(address, *short):
            engine.start(flow, id="lost")
            until = time.monotonic() + 60
            while not (held.exists() and (tmp_path / "b").exists()):
                assert time.monotonic() < until
                time.sleep(0.02)
        free.touch()
        with RunningWorker(address, *short) as worker:
            result = engine.resume("lost")
            tries = {step["address"]: step["attempts"] for step in engine.show("lost")["steps"]}
            [question] = result.waits
            assert (result.status, question["ran"]) == ("stalled", "maybe")
            assert tries["both/x"] == 2
            answered = engine.decide(question["id"], "result", value="seen").result
            assert answered is not None
            assert answered.status == "succeeded"
            assert worker.stop() == 0
    taken = "taken    execution=lost flow=f why=attempt step=both/x\n"
    assert [line.partition("Z ")[2] for line in worker.log if "taken" in line] == [taken]


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


def test_without_a_worker_an_execution_is_recorded_and_that_is_said(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "WORKER_SECONDS", 0)
    with Engine(f"{server}/idle") as engine:
        with pytest.raises(StoreError, match=r"is recorded, and \S+/idle has no worker"):
            engine.run(WELCOME, {"name": "Bob"})
        monkeypatch.setattr(TemporalStore, "may_rest", interrupt)
        with pytest.raises(KeyboardInterrupt, match="continues in Temporal"):
            engine.run(WELCOME, {"name": "Bob"})


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_workflow_task_that_fails_again_and_again_is_an_error(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It happens when a history does not fit the code; here, what begins it is no flow."""

    async def start() -> None:
        client = await connect(read_address(store))
        await client.start_workflow(WORKFLOW, {}, id="unfit", task_queue=QUEUE)

    monkeypatch.setattr("flowengine.engines.temporal.store.TRIES", 2)  # from 3 on it takes seconds
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


def test_an_execution_is_cancelled(store: str, tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    with Engine(store) as engine:
        engine.run(WELCOME, {"name": "Bob"}, id="cancelled")
        engine.subscribe(lambda update: told.append((update.kind, update.data.status)))
        engine.cancel("cancelled")
        assert told == [("end", "cancelled")]
        assert engine.result("cancelled").status == "cancelled"


def test_values_that_are_too_large_fail_their_step(store: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, "steps: [{id: a, call: long, with: {size: 1000000}}]\n")
    with Engine(store) as engine:
        result = engine.run(flow)
        assert result.error is not None
        assert (result.status, result.error["type"]) == ("failed", "LimitExceeded")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("steps: [{id: a, run: ls}]", "steps of kind 'run'"),
        ("signals: {go: {}}\nsteps: [{id: a, wait: {signal: go}}]", "signals"),
        ("budget: {tool_calls: 3}\nsteps: [{id: a, output: 1}]", "budgets"),
        ("steps: [{id: a, output: 1, lock: {key: x, scope: global}}]", "locks that executions"),
        ("concurrency: {max: 1}\nsteps: [{id: a, output: 1}]", "'concurrency'"),
        (
            "environments: {box: {kind: shell}}\nsteps: [{id: a, run: ls, in: box}]",
            "environments",
        ),
        (
            "tools: {w: {std: write_file, approval: required}}\n"
            "steps: [{id: a, call: w, with: {path: a, text: b}}]",
            "calls that people approve",
        ),
    ],
)
def test_what_is_not_supported_is_refused_before_it_runs(
    tmp_path: Path, text: str, what: str
) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(f"{HEAD}{text}\n")
    with pytest.raises(UsageError, match=f"does not support {what}"):
        check_supported(load(path).compiled)


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


def test_a_worker_refuses_where_policies_of_its_host_would_not_be_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "flowengine").mkdir()
    (tmp_path / "flowengine" / "policies.yaml").write_text("policies: []\n")
    refused = flowengine("--store", "temporal://127.0.0.1:1/default", "worker")
    assert (refused.code, "policies of a host" in refused.err) == (2, True)

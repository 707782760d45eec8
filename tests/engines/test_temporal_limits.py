"""What a server of Temporal limits, and what fits nevertheless. Commands without a worker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.engines.results import WaitInfo
from flowengine.engines.temporal.objects import VARIABLE
from flowengine.errors import NotFound, UsageError
from tests.engines import world
from tests.engines.temporal_server import SECONDS, RunningWorker, command_line, temporal_server

pytestmark = pytest.mark.endurance

QUESTIONS = """\
inputs: {count: {type: integer}, title: {type: string}}
steps:
  - id: ask
    map: {over: "${{ inputs.count }}", concurrency: 100}
    approval: {title: "${{ inputs.title }}"}
"""
VALUES = """\
inputs: {large: {type: integer}, small: {type: integer}}
steps:
  - id: large
    map: {over: "${{ inputs.large }}", concurrency: 100}
    python: values:large
  - id: small
    map: {over: "${{ inputs.small }}"}
    python: values:small
  - {id: pause, approval: {title: Continue?}}
  - {id: last, python: values:large}
outputs:
  sizes: "${{ steps.large.output.map(text, size(text)) }}"
  small: "${{ steps.small.output }}"
"""
FUNCTIONS = """
def large() -> str:
    return "x" * 900_000

def small() -> int:
    return 1
"""


@pytest.fixture(scope="module")
def limited() -> Iterator[str]:
    """A server with the limits of Temporal Cloud, and without an object store."""
    limits = {"limit.memoSize.error": 40_960, "limit.historyCount.suggestContinueAsNew": 60}
    with temporal_server(
        "limited", "idle", "logs", "deployed", workers=False, short=False, limits=limits
    ) as server:
        yield f"{server}/limited"


@pytest.fixture(autouse=True)
def _no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


# Shows D5
def test_open_waits_of_any_size_and_number_are_listed_and_decided(
    limited: str, tmp_path: Path
) -> None:
    """A memo has room for about 38 KB of them, and the index for the ids of the newest 60."""
    file = world.make(tmp_path, QUESTIONS)
    sizes = [(1, 37_000), (2, 38_500), (3, 300_000), (43, 700), (52, 700), (61, 500), (64, 1)]
    with RunningWorker(limited), Engine(limited) as engine:
        ids = set()
        for count, size in sizes:
            result = engine.run(file, {"count": count, "title": "t" * size}, id=f"asks-{count}")
            assert (result.status, len(result.waits)) == ("waiting", count)
            ids |= {wait["id"] for wait in result.waits}
            assert len(engine.approvals.list(execution=result.execution, limit=200).items) == count
            assert len(engine.executions.why(result.execution)) == count
            oldest = result.waits[0]["id"]
            assert engine.approvals.show(oldest[:8])["execution"] == result.execution
        world.until(lambda: len(engine.approvals.list(flow="flow", limit=500).items) == len(ids))
        listed: list[WaitInfo] = []
        after = None
        while after or not listed:  # page by page
            page = engine.approvals.list(limit=50, after=after)
            listed, after = [*listed, *page.items], page.next
        assert sorted(wait["id"] for wait in listed) == sorted(ids)
        turns = engine.approvals.list(in_turn=True, limit=500).items
        assert {wait["id"] for wait in turns} == ids
        engine.approvals.approve(oldest, resume=False)
        done = command_line("--store", limited, "approve", "--all", "--execution", "asks-64")
        assert done.code == 0, done.err
        assert engine.executions.result("asks-64").status == "succeeded"
        with pytest.raises(NotFound):
            engine.approvals.show("0" * 16)


# Shows D6, D7
def test_values_that_fit_into_no_other_history_stay_in_theirs(limited: str, tmp_path: Path) -> None:
    """Each value is allowed. Together they are more than a history can begin with."""
    file = world.make(tmp_path, VALUES)
    (tmp_path / "values.py").write_text(FUNCTIONS)
    with RunningWorker(limited), Engine(limited) as engine:
        result = engine.run(file, {"large": 8, "small": 60}, id="fits")
        result = engine.approvals.approve(result.waits[0]["id"]).result or result
        assert result.outputs == {"sizes": [900_000] * 8, "small": [1] * 60}

        taking = world.make(
            tmp_path / "t", "inputs: {t: {type: string}}\nsteps: [{id: a, output: 1}]\n"
        )
        with pytest.raises(UsageError, match="at most 1,000,000 bytes are possible") as refused:
            engine.start(taking, {"t": "t" * 1_100_000})
        assert refused.value.hint == f"set ${VARIABLE} for all processes"
        for labels in ({"long": "l" * 40_000}, {f"l{n}": "x" for n in range(101)}):
            with pytest.raises(UsageError, match="at most 100 and 38,000 bytes are possible"):
                engine.start(taking, {"t": ""}, labels=labels)

        result = engine.run(file, {"large": 120, "small": 0}, id="full")
        assert result.status == "failed"
        assert result.error is not None
        assert "the history of the execution is full" in result.error["message"]
        assert f"${VARIABLE}" in result.error["message"]
        assert engine.executions.show("full")["status"] == "failed"


HEARS = """\
signals: {go: {}}
steps: [{id: hear, wait: {signal: go}}]
"""
REPORT = """\
start:
  - {schedule: 0 9 * * *, timezone: UTC}
steps: [{id: log, python: values:logs}]
"""
LOGS = """
import logging

def logs() -> None:
    logging.getLogger("mine").warning("careful\\nnow")
"""


# Shows D4
def test_messages_without_a_worker_are_recorded(limited: str, tmp_path: Path) -> None:
    address = limited.replace("limited", "idle")
    file = world.make(tmp_path, HEARS)
    with Engine(address) as engine:
        heard, ended = engine.start(file, id="heard"), engine.start(file, id="ended")
    done = command_line("--store", address, "signal", heard, "go")
    assert (done.code, done.out) == (0, "")
    assert f"start one: flowengine worker --store {address}\n" in done.err
    done = command_line("--store", address, "cancel", ended)
    assert (done.code, "cancellation requested" in done.err) == (0, True)
    done = command_line("--store", address, "run", file, "--json")
    assert (done.code, done.json()["status"]) == (4, "recorded")
    assert "is recorded, and" in done.err

    with RunningWorker(address), Engine(address) as engine:
        world.until(lambda: engine.executions.result(heard).status == "succeeded")
        world.until(lambda: engine.executions.result(ended).status == "cancelled")


# Shows D1
def test_a_worker_logs_everything_in_one_form_and_past_times_run(
    limited: str, tmp_path: Path
) -> None:
    address = limited.replace("limited", "logs")
    file = world.make(tmp_path, REPORT)
    (tmp_path / "values.py").write_text(FUNCTIONS + LOGS)
    with RunningWorker(address, "--log-format", "json") as worker:
        done = command_line("--store", address, "deploy", file)
        assert done.code == 0, done.err
        done = command_line("--store", address, "flows", "schedule", "flow", "--since", "3d")
        assert (done.code, done.out.count("succeeded")) == (0, 3), done.err
        with Engine(address) as engine:
            engine.run(world.make(tmp_path, VALUES), {"large": 1, "small": 0})
        worker.stop()
    lines = [json.loads(line) for line in worker.log]
    messages = {line["message"] for line in lines if line["event"] == "warning"}
    assert "careful\nnow" in messages
    assert any("payloads" in message for message in messages)
    assert any(VARIABLE in message for message in messages)


BEGUN = """\
flowengine: 1
id: f%d
inputs: {order: {type: string}}
signals: {begin: {key: "${{ inputs.order }}"}}
start: [{signal: begin, with: {order: "${{ signal.key }}"}}]
steps: [{id: hear, wait: {signal: begin}}]
outputs: {text: %s}
"""


# Shows D5
def test_the_forms_of_deployed_flows_have_a_history_each(limited: str, tmp_path: Path) -> None:
    """Together, they are larger than a history can begin with, and there are enough to need one."""
    address, file = limited.replace("limited", "deployed"), tmp_path / "flow.yaml"
    with RunningWorker(address), Engine(address) as engine:
        for number in range(30):
            file.write_text(BEGUN % (number, "t" * 100_000))
            engine.flows.deploy(file)
        file.write_text(BEGUN % (0, "other"))
        engine.flows.deploy(file)
    with RunningWorker(address), Engine(address) as engine:  # which has seen no flow
        assert len(engine.flows.versions()) == 30
        assert len(engine.flows.find("f7").compiled["outputs"]["text"]["value"][1]) == 100_000
        for number in range(1, 30):
            engine.flows.undeploy(f"f{number}")
        sent = engine.signal("begin", key="a")
        assert engine.executions.result(sent.execution).flow == "f0"


PROGRAM = """
import sys, threading
from flowengine import Engine

engine = Engine(sys.argv[1])
engine.executions.list()

def look():
    while True:
        engine.executions.list()

threading.Thread(target=look, daemon=True).start()
"""


def test_a_program_may_end_without_closing_its_engine(limited: str) -> None:
    with RunningWorker(limited):
        for _ in range(3):
            command = [sys.executable, "-c", PROGRAM, limited]
            assert subprocess.run(command, check=False, timeout=SECONDS).returncode == 0


def test_next_commands_are_those_of_temporal(limited: str, tmp_path: Path) -> None:
    file = world.make(tmp_path, "steps: [{id: pause, wait: 1h}]\n")
    with RunningWorker(limited):
        done = command_line("--store", limited, "run", file, "--id", "pauses")
        assert " resume " not in done.err
        assert "; a worker resumes it after " in done.err
        with Engine(limited) as engine:
            [reason] = engine.executions.why("pauses")
        assert reason["wakes"].startswith("a worker after ")
        assert "command" not in reason

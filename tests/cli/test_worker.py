# Shows F5
"""`flowengine worker` as an operator sees it (V4, V5)."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.execution_environment import EnvironmentManager
from flowengine.worker import loop
from tests.cli.conftest import CommandLine

ASKING = "flowengine: 1\nid: asking\nsteps: [{id: ask, approval: {title: Go?}}]\n"
FAILING = "flowengine: 1\nid: failing\nsteps: [{id: it, fail: {type: Bad, message: no}}]\n"
LONG = """
flowengine: 1
id: long
steps:
  - {id: sleep, run: sleep 60, effect: idempotent}
"""


def read(worker: subprocess.Popen[str], count: int) -> list[dict[str, Any]]:
    """Read lines of its log."""
    assert worker.stderr is not None
    return [json.loads(worker.stderr.readline()) for _ in range(count)]


def ask(address: str, path: str, method: str = "GET") -> tuple[int, str]:
    """Send a request."""
    with closing(HTTPConnection(address, timeout=60)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


# Shows V5
def test_each_thing_taken_is_a_line_and_sigterm_ends_it_in_order(flowengine: CommandLine) -> None:
    file = flowengine.write("asking.yaml", ASKING)
    flowengine("run", file, "--id", "it", code=4)
    flowengine("approve", "--all", "--no-resume")
    failing = flowengine.write("failing.yaml", FAILING)
    flowengine("run", failing, "--id", "bad", "--no-resume")
    words = ["worker", "--log-format", "json", "--drain", "1m", "--http", "0"]
    with flowengine.spawn(*words) as worker:
        lines = read(worker, 5)
        address = lines[0]["address"]
        while "flowengine_worker_running 0\n" not in (metrics := ask(address, "/metrics"))[1]:
            assert worker.poll() is None
        answers = [ask(address, "/healthz"), ask(address, "/readyz")]
        refused = [ask(address, "/healthz", "POST")[0], ask(address, "/executions")[0]]
        worker.send_signal(signal.SIGTERM)
        assert worker.stderr is not None
        lines += [json.loads(line) for line in worker.stderr]

    assert worker.returncode == 0
    failed = next(line for line in lines if line["event"] == "failed")
    taken = {line["execution"]: line for line in lines if line["event"] == "taken"}
    assert [line["event"] for line in lines if line["event"] not in {"taken", "failed"}] == [
        "http", "started", "draining", "stopped",
    ]  # fmt: skip
    assert taken.keys() == {"it", "bad"}
    assert taken["it"].keys() == {"at", "event", "execution", "flow", "why"}
    assert (taken["it"]["flow"], taken["it"]["why"]) == ("asking", "message")
    assert lines.index(taken["bad"]) < lines.index(failed)
    assert (failed["execution"], failed["error"]) == ("bad", "Bad: no")
    assert answers == [(200, "ok\n"), (200, "ready\n")]
    assert refused == [405, 404]
    assert metrics[0] == 200
    assert (
        "# TYPE flowengine_worker_taken_total counter\nflowengine_worker_taken_total 2\n"
        in metrics[1]
    )
    assert "\nflowengine_worker_failed_total 1\n" in metrics[1]
    assert "\nflowengine_worker_open_waiting 0\n" in metrics[1]
    assert flowengine("--json", "show", "it").json()["status"] == "succeeded"


# Shows V4, V5
def test_it_is_not_ready_while_it_drains_and_a_second_signal_stops_it_now(
    flowengine: CommandLine,
) -> None:
    file = flowengine.write("long.yaml", LONG)
    with Engine(flowengine.folder / ".flowengine") as engine:
        engine.start(file, id="it")
    with flowengine.spawn("worker", "--log-format", "json", "--http", "0") as worker:
        address = read(worker, 3)[0]["address"]
        flowengine.wait_until_running(worker)
        worker.send_signal(signal.SIGTERM)
        assert read(worker, 1)[0]["event"] == "draining"
        while ask(address, "/readyz") != (503, "not ready\n"):
            assert worker.poll() is None
        assert ask(address, "/healthz")[0] == 200
        worker.send_signal(signal.SIGTERM)
        worker.wait()

    assert worker.returncode == 128 + signal.SIGTERM
    assert flowengine("--json", "show", "it").json()["status"] == "interrupted"


@pytest.mark.parametrize("reported", [True, False])
def test_the_doctor_says_how_soon_a_worker_notices_writes(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch, reported: bool
) -> None:
    monkeypatch.setattr(EnvironmentManager, "examine", lambda manager: [])
    if not reported:
        monkeypatch.setattr(loop, "reports_of", lambda folder: None)
    flowengine("run", flowengine.write("asking.yaml", ASKING), code=4)

    said = flowengine("doctor").out.splitlines()[-1]

    assert said.startswith("a worker notices writes to ")
    assert said.endswith(" at once" if reported else " within a second: its files give no notice")


@pytest.mark.parametrize(
    ("store", "option", "error"),
    [
        (
            "temporal://127.0.0.1:1/default",
            "--concurrency=3",
            "--concurrency without --offers, apply to",
        ),
        (
            "temporal://127.0.0.1:1/default",
            "--per-flow=3",
            "--per-flow, and --concurrency without --offers",
        ),
        ("store", "--heartbeat=3s", "--heartbeat applies to stores in Temporal"),
        ("store", "--deployment=own", "--deployment applies to stores in Temporal"),
        ("store", "--http=8080x", "'8080x' is not an address such as 8080 or 0.0.0.0:8080"),
    ],
)
def test_what_does_not_apply_is_refused(
    flowengine: CommandLine, store: str, option: str, error: str
) -> None:
    done = flowengine("--store", store, "worker", option, code=2)

    assert error in done.err
    if "--http" not in option:  # known before there is a log
        told = flowengine("--store", store, "worker", option, "--log-format=json", code=2).err
        assert (line := json.loads(told))["event"] == "error"
        assert error in line["message"]
    assert not (flowengine.folder / "store").exists()

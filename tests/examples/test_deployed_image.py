# Shows V7
"""The image of `examples/deploy`: killed, started and stopped (V7)."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from tests.examples.deployed import LONGEST, docker


def logs(worker: str) -> str:
    command = ["docker", "logs", worker]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.stdout.decode()


def status(worker: str, execution: str) -> str:
    shown = docker("exec", worker, "flowengine", "--json", "show", execution)
    return str(json.loads(shown)["status"])


def wait_until_healthy(worker: str) -> None:
    check = "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/readyz', timeout=3)"
    asking = ("exec", worker, "sh", "-c", f'python3 -c "{check}" && echo ready')
    limit = time.monotonic() + LONGEST
    while docker(*asking, fails=True) != "ready\n":
        assert time.monotonic() < limit, logs(worker)


@pytest.mark.endurance
def test_a_worker_in_a_container_outlives_a_kill_and_ends_in_order(worker_image: str) -> None:
    worker = docker("run", "--detach", "--network", "none", worker_image).strip()
    try:
        wait_until_healthy(worker)
        desk = ("flowengine", "run", "desk.yaml", "--id", "d1", "--no-resume")
        docker("exec", worker, *desk)
        limit = time.monotonic() + LONGEST
        while status(worker, "d1") != "waiting":
            assert time.monotonic() < limit, logs(worker)
        docker("kill", worker)
        docker("start", worker)
        wait_until_healthy(worker)
        listed = docker("exec", worker, "flowengine", "--json", "approvals", "list")
        [wait] = json.loads(listed)
        docker("exec", worker, "flowengine", "approve", wait["id"], "--no-resume")
        while status(worker, "d1") != "succeeded":
            assert time.monotonic() < limit, logs(worker)
        assert docker("exec", worker, "cat", "/store/booked") == "booked\n"
        assert docker("exec", worker, "id", "--user") == "900\n"
        docker("stop", "--timeout", "330", worker)
        assert docker("inspect", "--format", "{{.State.ExitCode}}", worker) == "0\n"
        events = [json.loads(line)["event"] for line in logs(worker).splitlines()]
        assert events.count("started") == 2
        assert events[-2:] == ["draining", "stopped"]
    finally:
        docker("rm", "--force", "--volumes", worker)

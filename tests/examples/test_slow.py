"""The README's demonstration: kill -9 midway, resume, and completed work is not repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

from flowengine import Engine
from tests.examples.conftest import EXAMPLES, PROGRAM, Shell
from tests.execution_environment.toy import until


def test_a_killed_run_is_resumed_without_repeating_finished_parts(flowengine: Shell) -> None:
    command = [str(PROGRAM), "run", str(EXAMPLES / "slow.yaml"), "--id", "slow1"]
    running = subprocess.Popen(
        command,
        cwd=flowengine.folder,
        env=flowengine.env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until_done(flowengine, 2)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    finished = [step["status"] == "succeeded" for step in parts(flowengine)]
    assert 2 <= sum(finished) < 5

    done = flowengine("--json", "resume", "slow1").json()

    assert done["outputs"] == {"parts": ["done"] * 5}
    again = [step["attempts"] - 1 for step in parts(flowengine)]
    assert again == [int(n == sum(finished)) for n in range(5)]


def until_done(flowengine: Shell, count: int) -> None:
    """Wait until at least that many parts are done, and the next one has started."""
    until((flowengine.folder / ".flowengine" / "flowengine.db").exists)
    with Engine(flowengine.folder / ".flowengine") as engine:

        def reached() -> bool:
            time.sleep(0.2)
            if not engine.executions.list().items:
                return False
            steps = engine.executions.show("slow1")["steps"]
            statuses = [step["status"] for step in steps if is_part(step["address"])]
            return statuses.count("succeeded") >= count and "running" in statuses

        until(reached)


def parts(flowengine: Shell) -> list[dict[str, Any]]:
    listed = flowengine("--json", "list").json()
    if not listed:
        return []
    steps: list[dict[str, Any]] = flowengine("--json", "show", "slow1").json()["steps"]
    return [step for step in steps if is_part(step["address"])]


def is_part(address: object) -> bool:
    return str(address).startswith("part[")

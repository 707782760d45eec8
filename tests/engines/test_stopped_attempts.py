"""Attempts that are being stopped: none runs beside the next one, or outlives its execution."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from flowengine import Engine
from tests.engines import child

FLOW = """
flowengine: 1
id: stopped
steps:
  - id: slow
    effect: idempotent
    timeout: 2s
    retry: {attempts: 2, delay: 1ms}
    run:
      script: |
        trap '' TERM
        cd PLACE
        echo $$ >> pids
        while [ "$(wc -l < pids)" = 1 ]; do sleep 0.05; done
        grep -qs 'State:.[RSD]' "/proc/$(head -n 1 pids)/status" && echo beside || echo alone
outputs: {second: "${{ steps.slow.output.stdout }}"}
"""


@pytest.mark.parametrize("delay", ["1ms", "2s"])
def test_its_script_has_ended_before_the_next_attempt(tmp_path: Path, delay: str) -> None:
    """A script that ignores SIGTERM still runs when its timeout is on disk and its engine dies."""
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW.replace("PLACE", str(tmp_path)).replace("1ms", delay))
    with Engine(tmp_path / "store") as engine:
        engine.start(file, id="e")
        process = child.start(child.begin, str(tmp_path / "store"), file, "e")
        while not timed_out(engine):
            time.sleep(0.01)
        assert child.kill(process)

        assert engine.resume("e").outputs == {"second": "alone\n"}


@pytest.mark.endurance
def test_an_execution_ends_after_all_its_attempts(tmp_path: Path) -> None:
    """The second attempt is stopped, too, while it waits for the end of the first one."""
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW.replace("PLACE", str(tmp_path)).replace("timeout: 2s", "timeout: 300ms"))
    with Engine(tmp_path / "store") as engine:
        result = engine.run(file)

    assert result.error is not None
    assert result.error["type"] == "Timeout"
    [pid] = (tmp_path / "pids").read_text().split()
    assert not Path("/proc", pid).exists()


def timed_out(engine: Engine) -> bool:
    """Return whether the timeout of the first attempt is recorded."""
    return any(event["type"] == "timer" for event in engine.executions.events("e"))

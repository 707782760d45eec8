"""A program of 200 calls, one of which waits for a person, whose process is killed at random."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CALLS = 200
KILLS = 5
TOOLS = """
import os
from pathlib import Path

def add(a: int, b: int) -> int:
    "Add."
    log = os.open(Path(__file__).with_name("called.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, f"{b}\\n".encode())
    os.close(log)
    return a + b
"""
CODE = f"total = 0\nfor n in range({CALLS}):\n    total = await add(total, b=n)\ntotal"
FLOW = """
flowengine: 1
id: f
defaults: {model: scripted/script.json}
environments: {box: {kind: python, provider: host}}
tools: {add: {python: "tools:add", effect: idempotent, approval: {when: "${{ args.b == 120 }}"}}}
agents:
  first: {instructions: You add., tools: [add], environments: [box], code: box}
steps: [{id: ask, agent: first, with: {prompt: Add.}}]
outputs: {answer: "${{ steps.ask.output }}"}
"""
SCRIPT = [
    {"calls": [{"name": "run_program", "id": "p", "arguments": {"code": CODE}}]},
    {"text": "done", "when": {"contains": str(sum(range(CALLS)))}},
]


@pytest.mark.endurance
# Shows G13
def test_200_calls_one_waiting_over_kills(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    chance = random.Random(5)

    def begun(*words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "flowengine", *words, "--store", "store"]
        return subprocess.Popen(
            argv, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def called() -> list[int]:
        log = tmp_path / "called.txt"
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    process, killed = begun("run", "flow.yaml", "--id", "it"), 0
    approved = False
    deadline = time.monotonic() + 400
    while True:
        assert time.monotonic() < deadline
        seen, more = len(called()), chance.randrange(5, 40)
        if killed < KILLS:
            while process.poll() is None and len(called()) < seen + more:
                time.sleep(0.01)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                killed += 1
        told, _ = process.communicate(timeout=300)
        waits = re.search(r"approve +flowengine .*approve (\w+)", told)
        if waits is not None and not approved:
            assert called()[-1] == 119
            approved = True
            process = begun("approve", waits[1])
        elif "answer: done" in told:
            break
        else:
            process = begun("resume", "it")

    assert approved
    assert killed >= 3
    assert list(dict.fromkeys(called())) == [*range(CALLS)]
    assert len(called()) <= CALLS + killed  # only calls that a kill cut off are made again

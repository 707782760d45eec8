# Shows F7
"""The example that is built in Python: `examples/support.py`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from flowengine import Engine

EXAMPLE = Path(__file__).parents[2] / "examples" / "support.py"


def python(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "support.py", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_refunds_are_asked_about_and_another_process_goes_on(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)

    status, *questions = python(cwd=tmp_path).splitlines()
    assert status == "waiting"
    assert sorted(questions) == ["Refund 12 EUR to cleo?", "Refund 34.9 EUR to ana?"]
    with Engine(tmp_path / ".flowengine") as engine:
        waits = {
            wait["address"]: wait["id"] for wait in engine.approvals.list(flow="support").items
        }
        engine.approvals.approve(waits["each[ana]/ask"], edit={"amount": 30.0})
        result = engine.approvals.reject(waits["each[cleo]/ask"]).result

    assert result is not None
    assert result.outputs == {
        "answers": [
            "ana: 30 EUR are on their way.",
            "ben: from 9 to 18 o'clock.",
            "cleo: we cannot refund this.",
        ]
    }

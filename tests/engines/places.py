"""The step of the racing executions: it occupies a place until the gate opens.

The file is next to the flow files, like a user's modules. A place is a lock of the operating
system, and therefore independent of the engine.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from pathlib import Path

HERE = Path(__file__).parent


def note(what: str, place: str, name: str, more: str = "") -> None:
    """Append a line in one write, so that a kill leaves a whole line or none."""
    line = json.dumps([what, place, name, more]) + "\n"
    file = os.open(HERE / "notes.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)


async def stand(place: str, name: str) -> None:
    """Occupy a place until the gate opens. The kernel frees the places of a killed process."""
    with (HERE / f"{place}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("met another", place, name)
        note("entered", place, name)
        try:
            while not (HERE / "open").exists():  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
        finally:
            note("left", place, name)

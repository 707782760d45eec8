"""Whether a process lives, of which a test knows only the number."""

from __future__ import annotations

from pathlib import Path


def state(pid: int) -> str:
    """Return the letter of the state of a process; `X` if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it may also end between the opening of the file and the reading
        return "X"


def alive(pid: int) -> bool:
    """Return whether a process runs: one that has ended may wait to be reaped."""
    return state(pid) not in {"Z", "X"}

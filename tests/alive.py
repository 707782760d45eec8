"""The state of processes that a test knows only by their ID."""

from __future__ import annotations

from pathlib import Path


def state(pid: int) -> str:
    """Return the state of a process as a letter, or `X` if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it may also end between opening and reading the file
        return "X"


def alive(pid: int) -> bool:
    """Return whether a process runs. Zombies do not count."""
    return state(pid) not in {"Z", "X"}

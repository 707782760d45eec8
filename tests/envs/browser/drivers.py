"""The drivers of Playwright that this process has started."""

from __future__ import annotations

from pathlib import Path

from tests.alive import alive


def command(pid: int) -> str:
    """The command line of a process, nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def drivers() -> set[int]:
    """Return the drivers that run."""
    tasks = Path("/proc/self/task").glob("*/children")
    children = {int(pid) for task in tasks for pid in task.read_text().split()}
    return {pid for pid in children if alive(pid) and "run-driver" in command(pid)}

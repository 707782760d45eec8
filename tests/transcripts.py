"""Transcripts of commands in the docs, compared without IDs, times and durations."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from flowengine.settings import current_user
from tests.command_line import flowengine, python

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAIT = re.compile(r"(?:approval|question) ([0-9a-f]{4,})\b")
"""The ID of a wait at its first appearance in a transcript."""


class Exchange(NamedTuple):
    """A command of a transcript, and its output."""

    command: str
    output: str


def typed(command: str) -> str:
    """Run a command line, and return its output on both streams."""
    program, *words = shlex.split(command)
    known = {"flowengine": flowengine, "python": python}
    if program not in known:
        return subprocess.check_output(["sh", "-c", command], text=True)
    done = known[program](*words)
    return done.err + done.out


def play(page: Path, waits: dict[str, str], run: Callable[[str], str] = typed) -> None:
    """Write the files of a page, and check that each command prints the output on the page.

    Args:
        page: The page. Files are written to the current directory.
        waits: Ids of waits in the page → the real ones. It is completed.
        run: Runs a command line.
    """
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if named := re.match(r"# ([\w.]+)\n", text):
            Path(named[1]).write_text(text)
        for command, expected in exchanges(text) if language == "console" else []:
            printed = run(_with_real_ids(command, waits))
            waits |= zip(WAIT.findall(expected), WAIT.findall(printed), strict=True)
            assert plain(printed, waits) == plain(expected, waits), f"{page.stem}: {command}"


def _with_real_ids(command: str, waits: dict[str, str]) -> str:
    for shown, real in waits.items():
        command = command.replace(shown, real)
    return command


def exchanges(block: str) -> list[Exchange]:
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return [Exchange(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]


def plain(text: str, waits: dict[str, str]) -> list[str]:
    """Return lines without varying parts.

    Items of a map end in any order, and the widest so far determines the width of a column.
    """
    for shown, real in waits.items():
        text = re.sub(rf"\b({shown}|{real})\b", "WAIT", text)
    text = text.replace(current_user(), "user:ana")  # the user who runs the tests
    text = re.sub(r"\b01[0-9a-z]{6,24}\b", "EXECUTION", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "HASH", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"(\d+[dhm] )*\b[\d.]+[ms]?s\b|(\d+m \d+s)", "DURATION", text)
    return sorted(" ".join(line.split()) for line in text.splitlines())

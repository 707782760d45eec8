"""Transcripts of commands in the docs, compared without IDs, times and durations."""

from __future__ import annotations

import re
from typing import NamedTuple

from flowengine.settings import current_user

WAIT = re.compile(r"(?:approval|question) ([0-9a-f]{4,})\b")
"""The ID of a wait at its first appearance in a transcript."""


class Exchange(NamedTuple):
    """A command of a transcript, and its output."""

    command: str
    output: str


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
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"(\d+[dhm] )*\b[\d.]+[ms]?s\b|(\d+m \d+s)", "DURATION", text)
    return sorted(" ".join(line.split()) for line in text.splitlines())

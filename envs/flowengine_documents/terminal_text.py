"""Converts the output of a terminal to readable text, without control sequences."""

from __future__ import annotations

import re

_ALTERNATE = re.compile(rb"\x1b\[\?(?:1049|1047|47)h.*?(?:\x1b\[\?(?:1049|1047|47)l|\Z)", re.S)
_CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|\Z)"
    r"|\x1b[PX^_].*?(?:\x1b\\|\Z)"
    r"|\x1b\[(?![0-9]*K)[0-?]*[ -/]*[@-~]"
    r"|\x1b[()*+][0-~]|\x1b[ #%][ -~]|\x1b[0-Z\\-~]"
    r"|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]",
    re.S,
)
_ERASE = re.compile(r"\x1b\[([0-9]*)K|\x1b\[[0-?]*\Z|\x1b\Z")
_EDITS = re.compile(r"(\r|\x08|\x1b\[[0-9]*K)")


def clean(raw: bytes) -> str:
    """Return the readable text in the output of a terminal.

    It omits colors, titles and cursor movements, text overwritten by a progress bar, and the second
    screen of full-screen programs.

    Args:
        raw: The output.

    Returns:
        Lines that end with a line feed. Invalid bytes are replaced visibly.
    """
    if b"\x1b[?" in raw:
        raw = _ALTERNATE.sub(b"", raw)
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n")
    text = _CONTROL.sub("", text)
    if "\r" not in text and "\x08" not in text and "\x1b" not in text:
        return text
    return "\n".join(_folded(line) for line in text.split("\n"))


def _folded(line: str) -> str:
    """Return a line as it appears after carriage returns, backspaces and erasures."""
    line = line.rstrip("\r")
    if not _EDITS.search(line):
        return _ERASE.sub("", line)
    cells: list[str] = []
    at = 0
    for part in _EDITS.split(line):
        if part == "\r":
            at = 0
        elif part == "\x08":
            at = max(0, at - 1)
        elif part.startswith("\x1b["):
            way = part[2:-1] or "0"
            if way == "0":
                del cells[at:]
            else:
                end = len(cells) if way == "2" else min(at + 1, len(cells))
                cells[:end] = [" "] * end
        else:
            text = _ERASE.sub("", part)
            cells[at : at + len(text)] = text
            at += len(text)
    return "".join(cells).rstrip() if "\x1b" in line else "".join(cells)

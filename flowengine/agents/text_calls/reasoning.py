"""Tags with which models mark their reasoning."""

from __future__ import annotations

import re

PAIRS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<budget:thinking>": "</budget:thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "\u25c1think\u25b7": "\u25c1/think\u25b7",
}
_ALIKE = ("<think>", "<thinking>", "<budget:thinking>")
"""Any of their closing tags closes any of them, as in the library for providers."""
OPENING = re.compile("|".join(map(re.escape, PAIRS)))
"""Opens reasoning."""
STRAY = re.compile("|".join(map(re.escape, PAIRS.values())))
"""Closes reasoning. If the opening tag is missing, a chat template wrote it."""
TAG = re.compile(f"{OPENING.pattern}|{STRAY.pattern}")
CLOSINGS = {
    opening: re.compile(
        "|".join(re.escape(PAIRS[mark]) for mark in (_ALIKE if opening in _ALIKE else (opening,)))
    )
    for opening in PAIRS
}

"""How models mark what they think before they answer."""

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
"""Each of these is closed by the end of any: the library that asks providers reads them so."""
OPENING = re.compile("|".join(map(re.escape, PAIRS)))
"""Opens reasoning."""
STRAY = re.compile("|".join(map(re.escape, PAIRS.values())))
"""Closes reasoning; without an opening, a chat template wrote that one."""
TAG = re.compile(f"{OPENING.pattern}|{STRAY.pattern}")
CLOSINGS = {
    opening: re.compile(
        "|".join(re.escape(PAIRS[one]) for one in (_ALIKE if opening in _ALIKE else (opening,)))
    )
    for opening in PAIRS
}

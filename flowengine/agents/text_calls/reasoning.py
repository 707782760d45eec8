"""How models mark what they think before they answer."""

from __future__ import annotations

import re

PAIRS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "\u25c1think\u25b7": "\u25c1/think\u25b7",
}
OPENING = re.compile("|".join(map(re.escape, PAIRS)))
"""Opens reasoning."""
STRAY = re.compile("|".join(map(re.escape, PAIRS.values())))
"""Closes reasoning; without an opening, a chat template wrote that one."""
CLOSINGS = {opening: re.compile(re.escape(closing)) for opening, closing in PAIRS.items()}

"""How models mark what they think before they answer."""

from __future__ import annotations

import re

from flowengine.agents.text_calls.formats.base import literal

_PAIRS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "\u25c1think\u25b7": "\u25c1/think\u25b7",
}
OPENING = re.compile("|".join(map(re.escape, _PAIRS)))
"""Opens reasoning."""
STRAY = re.compile("|".join(map(re.escape, _PAIRS.values())))
"""Closes reasoning; without an opening, a chat template wrote that one."""
CLOSINGS = {opening: re.compile(re.escape(closing)) for opening, closing in _PAIRS.items()}
BEGUN = tuple(literal(tag).begun for tag in (*_PAIRS, *_PAIRS.values()))
"""The beginnings of either."""

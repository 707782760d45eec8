"""Parsing of activation addresses such as `each[a/b@c]/read@2#3` (docs/language.md: Steps).

Keys of items are arbitrary text, so separators in them have no meaning.
"""

from __future__ import annotations

import re

_KEY = r"\[.*?\](?=[/@#]|$)"
# Compiled on first use: most starts of the program need none. A dot also stands for a line break.
_PART = rf"(?s:{_KEY}|[^/])+"
_PLAIN = rf"(?s:{_KEY}|[^#@])*"
_BOUND = rf"(?s:({_KEY})|[/@])"
_NUMBERS = rf"(?s:{_KEY}|@\d+|#\d+)"
_AGAIN = rf"(?s:({_KEY})|#\d+)"
_INNER = r"[/\[@]"


def steps_in(address: str) -> list[str]:
    """Return the ids of the steps in an address, outermost first."""
    return re.sub(_NUMBERS, "", address).split("/")


def around(address: str) -> list[str]:
    """Return an address and those whose item, round or part it is, outermost first."""
    return [*(address[: match.start()] for match in re.finditer(_BOUND, address)), address]


def is_part(address: str) -> bool:
    """Return whether an address is that of an item, a round or a part of a step."""
    return re.search(_INNER, address) is not None


def without_repetition(address: str) -> str:
    """Return an address without the numbers of repeated activations."""
    return re.sub(_AGAIN, lambda match: match[1] or "", address)


def place(address: str) -> str:
    """Return an address without the numbers that can repeat: rounds and activations."""
    plain = (re.match(_PLAIN, part) for part in re.findall(_PART, address))
    return "/".join(match[0] for match in plain if match)

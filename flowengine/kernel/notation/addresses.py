"""Parsing of activation addresses such as `each[a/b@c]/read@2#3` (docs/language.md: Steps).

Keys of items are arbitrary text, so separators in them have no meaning.
"""

from __future__ import annotations

import re

_KEY = r"\[.*?\](?=[/@#]|$)"
_PART = re.compile(rf"(?:{_KEY}|[^/])+", re.DOTALL)
_PLAIN = re.compile(rf"(?:{_KEY}|[^#@])*", re.DOTALL)
_BOUND = re.compile(rf"({_KEY})|[/@]", re.DOTALL)
_NUMBERS = re.compile(rf"{_KEY}|@\d+|#\d+", re.DOTALL)
_AGAIN = re.compile(rf"({_KEY})|#\d+", re.DOTALL)
_INNER = re.compile(r"[/\[@]")


def steps_in(address: str) -> list[str]:
    """Return the ids of the steps in an address, outermost first."""
    return _NUMBERS.sub("", address).split("/")


def around(address: str) -> list[str]:
    """Return an address and those whose item, round or part it is, outermost first."""
    return [*(address[: match.start()] for match in _BOUND.finditer(address)), address]


def is_part(address: str) -> bool:
    """Return whether an address is that of an item, a round or a part of a step."""
    return _INNER.search(address) is not None


def without_repetition(address: str) -> str:
    """Return an address without the numbers of repeated activations."""
    return _AGAIN.sub(lambda match: match[1] or "", address)


def place(address: str) -> str:
    """Return an address without the numbers that can repeat: rounds and activations."""
    plain = (_PLAIN.match(part) for part in _PART.findall(address))
    return "/".join(match[0] for match in plain if match)

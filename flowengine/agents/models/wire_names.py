"""Wire names of tools: letters, digits, `_` and `-`, at most 64 characters."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flowengine.agents.models.errors import ModelError

LONGEST = 64
_TAKEN_AS_IT_IS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHERS = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8
"""Digits of the digest that distinguishes long names with the same beginning."""


def wire_name(name: str) -> str:
    """Return the wire name of a tool, which is the same in every process.

    A dot becomes `__`. Other invalid characters become `_`. After such a replacement, or if the
    name is too long, a digest of the name is appended.

    Args:
        name: Flow name of the tool.
    """
    if _TAKEN_AS_IT_IS.fullmatch(name):
        return name
    dotted = name.replace(".", "__")
    if _TAKEN_AS_IT_IS.fullmatch(dotted):
        return dotted
    from hashlib import sha256

    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    return f"{_OTHERS.sub('_', dotted)[: LONGEST - _DIGEST - 1]}_{digest}"


def clash(names: Iterable[str]) -> tuple[str, str, str] | None:
    """Return two names with the same wire name, and that wire name, if there are any.

    Args:
        names: Flow names of tools.
    """
    known: dict[str, str] = {}
    for name in names:
        called = wire_name(name)
        other = known.setdefault(called, name)
        if other != name:
            return other, name, called
    return None


class WireNames:
    """The names of the tools on offer, by their wire names.

    Args:
        names: Flow names of the tools.

    Raises:
        ModelError: Two of them have the same wire name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        names = list(names)
        both = clash(names)
        if both is not None:
            one, other, called = both
            raise ModelError(
                f"the tools '{one}' and '{other}' would both be called '{called}' by models, which "
                "allow no dots in names: rename one of them",
                retryable=False,
            )
        self._known = {wire_name(name): name for name in names}

    def from_wire(self, name: str) -> str:
        """Return the flow name of a tool. A name that is not on offer is returned unchanged."""
        return self._known.get(name, name)

"""Names of tools on the wire: letters, digits, `_` and `-`, 64 characters at most."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flowengine.agents.models.errors import ModelError

LONGEST = 64
_TAKEN_AS_IT_IS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHERS = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8
"""Digits of the digest that tells long names with one beginning apart."""


def wire_name(name: str) -> str:
    """Return how a tool is called on the wire; the same name gives the same in every process.

    A dot becomes `__`. What else no provider takes becomes `_`, and then, as with a name that is
    too long, a digest of the name is put at its end.

    Args:
        name: As the flow knows it.
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
    """Return two names that models would know as one, and that one; None: there are none.

    Args:
        names: Of tools, as the flow knows them.
    """
    known: dict[str, str] = {}
    for name in names:
        called = wire_name(name)
        other = known.setdefault(called, name)
        if other != name:
            return other, name, called
    return None


class WireNames:
    """The names of the tools on offer, there and back.

    Args:
        names: As the flow knows them.

    Raises:
        ModelError: Two of them would have one name on the wire.
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

    def to_wire(self, name: str) -> str:
        """Return the name of a tool on the wire; earlier calls may name tools not on offer."""
        return wire_name(name)

    def from_wire(self, name: str) -> str:
        """Return the tool that a model named; what is not on offer is returned as it is."""
        return self._known.get(name, name)

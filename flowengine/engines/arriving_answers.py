"""Answers of agents that return data, while they arrive."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

_RARER = 50
"""An answer is read each time it has grown by this part of its length, so that a long one costs no
more than its length times this number."""


class ArrivingAnswers:
    """Reads the objects and lists of answers that are not complete yet.

    Args:
        agents: Names of the agents that return data.
    """

    def __init__(self, agents: Collection[str]) -> None:
        self._agents = agents
        self._texts: dict[str, str] = {}
        """Address of a turn → the text of its reply so far."""
        self._read: dict[str, tuple[int, Any]] = {}
        """Address of a turn → the length at which its text is read next, and the last value."""

    def feed(self, part: Mapping[str, Any]) -> Any:
        """Return the answer so far if a part of a reply has changed it, or None.

        Args:
            part: The data of an update `part`.
        """
        address, kind = part["address"], part["part"]
        if part.get("agent") not in self._agents:
            return None
        if kind == "start":
            self._texts[address] = ""
        elif kind == "restart":
            self._forget(address)
        elif kind == "end":
            value = self._changed(address, 0)
            self._forget(address)
            return value
        elif kind == "text" and address in self._texts:
            self._texts[address] += part["text"]
            return self._changed(address, self._read.get(address, (0, None))[0])
        return None

    def missed(self) -> None:
        """Note that parts are missing, so that the replies that arrive cannot be read."""
        for address in [*self._texts]:
            self._forget(address)

    def _forget(self, address: str) -> None:
        self._texts.pop(address, None)
        self._read.pop(address, None)

    def _changed(self, address: str, least: int) -> Any:
        """Return the answer so far if it has changed, and the text is at least so long."""
        text = self._texts.get(address, "")
        if len(text) < least:
            return None
        _, before = self._read.get(address, (0, None))
        value = partial_value(text)
        self._read[address] = len(text) + len(text) // _RARER, value
        return None if value == before else value


def partial_value(text: str) -> dict[str, Any] | list[Any] | None:
    """Return the object or list whose JSON begins with a text, or None if there is none.

    Args:
        text: The text, which can be in a code fence.
    """
    from pydantic_core import from_json

    text = text.strip()
    if text.startswith("```"):
        text = text.partition("\n")[2].rstrip("`").strip()
    if not text.startswith(("{", "[")):
        return None
    try:
        value = from_json(text, allow_partial="trailing-strings", allow_inf_nan=False)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None

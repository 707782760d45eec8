"""Sessions in a store: their executions, and the places at which they wait for messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from flowengine.engines.host import Host
from flowengine.engines.starting.beginning import exists
from flowengine.kernel.graph.specs import CompiledFlow

SESSION = "session"
"""The label that contains the name of a session, and the kind of its waits."""
SESSIONS = "sessions"
"""Id of the flow of all sessions, by which they are listed."""
STEP = "run"
"""The step that runs the agents, in the flow of runs in Python."""
_LONGEST = 60


class Place(NamedTuple):
    """A place at which a session waits for the next message of the user."""

    wait: str
    """Id of the wait."""
    step: str
    """Id of the step, in the flow of the agents."""
    number: int
    """How many times the session has waited, this time included."""

    @classmethod
    def of(cls, waits: Sequence[Mapping[str, Any]]) -> Place | None:
        """Return the place of a session with these waits, or None if it waits for no message."""
        for wait in waits:
            if wait.get("chat") and wait["address"].rpartition("/")[0] == STEP:
                return cls.at(wait["address"], wait["id"])
        return None

    @classmethod
    def at(cls, address: str, wait: str = "") -> Place:
        """Return the place with an address.

        Args:
            address: Address of an activation of the step.
            wait: Id of the wait.
        """
        step, _, number = address.rpartition("/")[2].partition("#")
        return cls(wait, step, int(number or 1))

    @property
    def address(self) -> str:
        """Address of the activation."""
        return f"{STEP}/{self.step}" + (f"#{self.number}" if self.number > 1 else "")

    def back(self, messages: int) -> Place | None:
        """Return the place some messages earlier, or None if there is none."""
        number = self.number - messages
        return self._replace(wait="", number=number) if 0 < number <= self.number else None

    def next(self) -> Place:
        """Return the place after the answer to the next message."""
        return self._replace(wait="", number=self.number + 1)


def messages_sent(
    flow: CompiledFlow, entries: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[int, Place]]:
    """Yield the messages after the first of a session, with the numbers of their events.

    Args:
        flow: The flow of the session.
        entries: Its journal.
    """
    steps = {f"{STEP}/{spec['id']}" for spec in flow["steps"] if "chat" in spec}
    for entry in entries:
        address = entry.get("address") or ""
        if entry["type"] == "decided" and address.partition("#")[0] in steps:
            yield entry["seq"], Place.at(address)


def session_id(name: str) -> str:
    """Return the id of a session's execution.

    Args:
        name: Name of the session.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:_LONGEST]
    if plain != name:
        plain += f"-{sha256(name.encode()).hexdigest()[:8]}"
    return f"session-{plain}"


def session_of(host: Host, name: str) -> tuple[str, bool]:
    """Return the id of a session's execution, and whether it exists.

    A client may have taken an id, but it cannot set the label.

    Args:
        host: Provides the store.
        name: Name of the session.
    """
    id = session_id(name)
    while exists(host, id):
        if host.store.execution(id).labels.get(SESSION) == name:
            return id, True
        id += ".x"
    return id, False

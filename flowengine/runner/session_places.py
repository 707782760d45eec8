"""Sessions in a store: their executions, and the places at which they wait for messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from flowengine.engines.host import Host
from flowengine.engines.starting.beginning import exists

SESSION = "session"
"""The label that contains the name of a session, and the kind of its waits."""
SESSIONS = "sessions"
"""Id of the flow of all sessions, by which they are listed."""
STEP = "run"
"""The step that runs the agents, in the flow of runs in Python."""
_PLACE = re.compile(rf"{STEP}/(.+?)(#\d+)?@\d+/\1\.person")
_LONGEST = 60


class Place(NamedTuple):
    """A place at which a session waits for the next message of the user."""

    wait: str
    """Id of the wait."""
    address: str
    """Address of the question to the user, in a round of the agent that has answered."""

    @classmethod
    def of(cls, waits: Sequence[Mapping[str, Any]]) -> Place | None:
        """Return the place of a session with these waits, or None if it waits for no message."""
        for wait in waits:
            if wait.get("chat") and _PLACE.fullmatch(wait["address"]):
                return cls(wait["id"], wait["address"])
        return None


def messages_sent(entries: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """Yield the messages after the first of a session.

    Args:
        entries: Its journal.

    Yields:
        The numbers of their events, and the addresses of the places where they were awaited.
    """
    for entry in entries:
        if entry["type"] == "decided" and _PLACE.fullmatch(entry["address"]):
            yield entry["seq"], entry["address"]


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

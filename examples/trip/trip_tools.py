"""Airline, hotel and mail of the trip example: a small world in a JSON file.

The file, `trip-world.json` or what `TRIP_WORLD` says, holds what is reserved, the tickets, the
mails and every call that was made, so that anybody can see what a crash, a retry or a compensation
did. To make a call fail, write `"broken": {"reserve_hotel": "no room left"}` into it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

World = dict[str, Any]


class Reservation(TypedDict):
    """Something held for a booking."""

    id: str
    held: bool


class Unavailable(Exception):
    """The other side cannot do this, now or later."""

    retryable = False


def reserve_flight(booking: str) -> Reservation:
    """Reserve the flight of a booking, once however often it is asked for."""
    return reserve("flight", booking)


def release_flight(id: str) -> None:
    """Give the flight back."""
    release("flight", id)


def reserve_hotel(booking: str) -> Reservation:
    """Reserve the hotel of a booking, once however often it is asked for."""
    return reserve("hotel", booking)


def release_hotel(id: str) -> None:
    """Give the room back."""
    release("hotel", id)


def issue_tickets(flight: str, hotel: str) -> list[str]:
    """Issue the tickets for two reservations; the same ones again for the same reservations."""
    with world("issue_tickets") as now:
        for id in (flight, hotel):
            if id not in now["tickets"]:
                now["tickets"].append(id)
        return [flight, hotel]


def mail(to: str, text: str) -> None:
    """Write to the traveller."""
    with world("mail") as now:
        now["mails"].append({"to": to, "text": text})


def reserve(what: str, booking: str) -> Reservation:
    """Hold something for a booking."""
    with world(f"reserve_{what}") as now:
        id = f"{what}-{booking}"
        now["reservations"][id] = True
        return {"id": id, "held": True}


def release(what: str, id: str) -> None:
    """Give something back; what is free stays free."""
    with world(f"release_{what}") as now:
        now["reservations"][id] = False


@contextmanager
def world(call: str) -> Iterator[World]:
    """Open the world for one call, alone; what is changed is written when the call ends.

    Args:
        call: The name of the call; it is counted, and fails if the world says so.

    Yields:
        The world.

    Raises:
        Unavailable: The world says that this call is broken.
    """
    path = Path(os.environ.get("TRIP_WORLD", "trip-world.json"))
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        now: World = {"reservations": {}, "tickets": [], "mails": [], "calls": [], "broken": {}}
        now |= json.loads(file.read() or "{}")
        now["calls"].append(call)
        try:
            if call in now["broken"]:
                raise Unavailable(now["broken"][call])
            yield now
        finally:
            file.truncate(0)
            json.dump(now, file, indent=2)

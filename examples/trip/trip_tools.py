"""Airline, hotel and mail of the trip example: a small world in a JSON file.

The file, `trip-world.json` or the path in `TRIP_WORLD`, contains the reservations, the tickets, the
mails and all calls, which shows the effects of a crash, a retry or a compensation. To make a call
fail, write `"broken": {"reserve_hotel": "no room left"}` into it.
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
    """The service cannot do this, now or later."""

    retryable = False


def reserve_flight(booking: str) -> Reservation:
    """Reserve the flight of a booking. Repeated calls have no further effect."""
    return reserve("flight", booking)


def release_flight(id: str) -> None:
    """Cancel the reservation of a flight."""
    release("flight", id)


def reserve_hotel(booking: str) -> Reservation:
    """Reserve the hotel of a booking. Repeated calls have no further effect."""
    return reserve("hotel", booking)


def release_hotel(id: str) -> None:
    """Cancel the reservation of a room."""
    release("hotel", id)


def issue_tickets(flight: str, hotel: str) -> list[str]:
    """Issue the tickets for two reservations. The same reservations yield the same tickets."""
    with world("issue_tickets") as now:
        for id in (flight, hotel):
            if id not in now["tickets"]:
                now["tickets"].append(id)
        return [flight, hotel]


def mail(to: str, text: str) -> None:
    """Send a mail to the traveler."""
    with world("mail") as now:
        now["mails"].append({"to": to, "text": text})


def reserve(what: str, booking: str) -> Reservation:
    """Reserve something for a booking."""
    with world(f"reserve_{what}") as now:
        id = f"{what}-{booking}"
        now["reservations"][id] = True
        return {"id": id, "held": True}


def release(what: str, id: str) -> None:
    """Cancel a reservation. Repeated calls have no further effect."""
    with world(f"release_{what}") as now:
        now["reservations"][id] = False


@contextmanager
def world(call: str) -> Iterator[World]:
    """Open the world exclusively for one call, and write the changes when it ends.

    Args:
        call: The name of the call, which is recorded, and fails if the world marks it as broken.

    Yields:
        The world.

    Raises:
        Unavailable: The world marks this call as broken.
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

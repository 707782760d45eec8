"""The trip: reserved, held, and paid or released. The world's file counts every effect."""

from __future__ import annotations

import json
from typing import Any

from tests.examples.conftest import EXAMPLES, Shell

TRIP = EXAMPLES / "trip" / "trip.yaml"
INPUTS = ["-i", "booking=B7", "-i", "traveller=ana@example.com"]


def world(flowengine: Shell) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((flowengine.folder / "trip-world.json").read_text())
    return loaded


def held(flowengine: Shell) -> list[str]:
    reserved = world(flowengine)["reservations"]
    return sorted(name for name, is_held in reserved.items() if is_held)


def test_a_paid_trip_is_issued_once_and_confirmed(flowengine: Shell) -> None:
    run = flowengine("--json", "run", TRIP, *INPUTS, code=4).json()

    assert held(flowengine) == ["flight-B7", "hotel-B7"]
    [wait] = run["waits"]
    assert (wait["address"], wait["kind"]) == ("book/hold", "signal")

    done = flowengine("signal", "--key", "B7", "payment", "--data", '{"reference": "X1"}')

    assert done.out.endswith("booked: true\n")
    now = world(flowengine)
    assert now["tickets"] == ["flight-B7", "hotel-B7"]
    assert sorted(now["calls"]) == ["issue_tickets", "mail", "reserve_flight", "reserve_hotel"]
    assert [mail["text"] for mail in now["mails"]] == ["Your trip is booked."]

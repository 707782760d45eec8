"""The trip: reserved, held, and paid or released. The world's file counts every effect."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
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


def test_who_changes_his_mind_gets_everything_released_newest_first(flowengine: Shell) -> None:
    flowengine("run", TRIP, *INPUTS, code=4)

    done = flowengine("signal", "--key", "B7", "cancel_trip")

    assert done.out.endswith("booked: false\n")
    assert held(flowengine) == []
    calls = world(flowengine)["calls"]
    reserved = [call.removeprefix("reserve_") for call in calls if call.startswith("reserve_")]
    released = [call.removeprefix("release_") for call in calls if call.startswith("release_")]
    assert sorted(reserved) == sorted(released) == ["flight", "hotel"]
    assert calls[-1] == "mail"


def test_a_message_that_does_not_fit_is_refused_and_moves_nothing(flowengine: Shell) -> None:
    flowengine("run", TRIP, *INPUTS, code=4)

    refused = flowengine("signal", "--key", "B7", "payment", "--data", '{"ref": 1}', code=3)

    assert "reference" in refused.err
    assert held(flowengine) == ["flight-B7", "hotel-B7"]


def test_a_failed_reservation_releases_the_other(flowengine: Shell) -> None:
    broken = {"broken": {"reserve_hotel": "no room left"}}
    (flowengine.folder / "trip-world.json").write_text(json.dumps(broken))

    done = flowengine("--json", "run", TRIP, *INPUTS, code=1).json()

    assert done["status"] == "failed"
    assert done["error"]["type"] == "trip_tools.Unavailable"
    assert "no room left" in done["error"]["message"]
    assert held(flowengine) == []
    assert world(flowengine)["mails"] == []


def test_tickets_that_cannot_be_issued_release_everything(flowengine: Shell) -> None:
    flowengine("run", TRIP, *INPUTS, code=4)
    now = world(flowengine) | {"broken": {"issue_tickets": "the airline is closed"}}
    (flowengine.folder / "trip-world.json").write_text(json.dumps(now))

    flowengine("signal", "--key", "B7", "payment", "--data", '{"reference": "X1"}', code=1)

    assert held(flowengine) == []
    assert world(flowengine)["tickets"] == []


class Clock:
    """The time of this machine, some hours later."""

    def __init__(self) -> None:
        self.hours = 0.0

    def now(self) -> int:
        return int((time.time() + self.hours * 3600) * 1000)


def test_who_does_not_pay_is_reminded_and_loses_the_reservation_a_day_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIP_WORLD", str(tmp_path / "trip-world.json"))
    clock, shell = Clock(), Shell(tmp_path)
    with Engine(tmp_path / "store", clock=clock) as engine:
        inputs = {"booking": "B7", "traveller": "ana@example.com"}
        trip = engine.run(TRIP, inputs).execution

        clock.hours = 19.9
        assert engine.resume(trip).waits[0]["address"] == "book/hold"
        assert world(shell)["mails"] == []

        clock.hours = 20.1
        assert engine.resume(trip).waits[0]["address"] == "book/last_chance"
        assert [mail["text"] for mail in world(shell)["mails"]] == [
            "Your reservation ends in four hours."
        ]

        clock.hours = 24.2
        ended = engine.resume(trip)

    assert (ended.status, ended.outputs) == ("succeeded", {"booked": False})
    assert held(shell) == []
    assert world(shell)["mails"][-1]["text"] == "We have released your reservation."

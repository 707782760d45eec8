"""Races of starts with the same key (V13), and a judge that reads only the notes.

For each place, several processes start executions at once: directly, by signal and by hook.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow
from flowengine.errors import Conflict
from tests.engines import world

DOOMED = "doomed"
"""The racer that is killed."""
PLACES = Path(__file__).with_name("places.py")
FLOW = """
inputs: {place: {type: string}, name: {type: string}}
concurrency: {key: "${{ inputs.place }}", max: 1, then: THEN}
start:
  - signal: arrived
    with: {place: "${{ signal.data.place }}", name: "${{ signal.key }}"}
signals:
  arrived:
    key: ${{ inputs.name }}
    data: {type: object, properties: {place: {type: string}}, required: [place]}
steps:
  - id: stand
    python: "places:stand"
    with: {place: "${{ inputs.place }}", name: "${{ inputs.name }}"}
    effect: idempotent
"""
SECRET = "known to the sender"
SETTINGS = """
hooks:
  - {name: door, scheme: hmac, header: X-Sig, secret: {env: DOOR}, signal: arrived, key: name}
"""


def make(folder: Path, then: str) -> Path:
    """Write the flow and its module, and the settings of the hook, and return the flow's file."""
    file = world.make(folder, FLOW.replace("THEN", then))
    shutil.copy(PLACES, folder)
    (folder / "flowengine").mkdir()
    (folder / "flowengine" / "settings.yaml").write_text(SETTINGS)
    return file


class Racer:
    """Starts executions, and notes each request and its answer.

    Args:
        engine: Starts them.
        flow: The file that `make` has written.
        who: Its name.
    """

    def __init__(self, engine: Engine, flow: Path, who: str) -> None:
        spec = importlib.util.spec_from_file_location("places", flow.parent / "places.py")
        assert spec is not None
        assert spec.loader is not None
        places = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(places)
        self._note: Callable[..., None] = places.note
        self._engine = engine
        self._flow: LoadedFlow = engine.load(flow)
        self._who = who
        self._ways = itertools.cycle((self._start, self._signal, self._deliver))
        self._count = 0

    def race(self, place: str) -> None:
        """Start an execution for a place, each time in another way."""
        self._count += 1
        name = f"{self._who}-{self._count}"
        self._note("requested", place, name)
        try:
            next(self._ways)(place, name)
        except Conflict as error:
            self._note("refused", place, name, str(error))
        else:
            self._note("accepted", place, name)

    def _start(self, place: str, name: str) -> None:
        self._engine.start(self._flow, {"place": place, "name": name})

    def _signal(self, place: str, name: str) -> None:
        self._engine.signal("arrived", {"place": place}, key=name, resume=False)

    def _deliver(self, place: str, name: str) -> None:
        from flowengine.server.hooks import receive, signed_delivery

        body = json.dumps({"name": name, "place": place}).encode()
        signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        receive(signed_delivery(self._engine, "door", {"x-sig": signature}, body))


def run(store: str, flow: Path, who: str, places: Sequence[str], barrier: Any) -> None:
    """Race in this process, for each place at the same moment as others (with a barrier)."""
    os.environ |= {"XDG_CONFIG_HOME": str(flow.parent), "DOOR": SECRET}
    with Engine(store, durability="process") as engine:
        racer = Racer(engine, flow, who)
        for place in places:
            if barrier is not None:
                barrier.wait(300)
            racer.race(place)


class Note(NamedTuple):
    """A line of the notes, which are in order of time."""

    what: str
    place: str
    name: str
    more: str


def notes(flow: Path) -> list[Note]:
    """Return the notes so far, without one that is being written: a page of it may be visible."""
    file = flow.parent / "notes.txt"
    whole = file.read_text().rpartition("\n")[0] if file.exists() else ""
    return [Note(*json.loads(line)) for line in whole.splitlines()]


def judge(then: str, flow: Path, ends: Mapping[str, Mapping[str, str]]) -> None:
    """Check all races.

    Args:
        then: The mode of the flow.
        flow: Its file.
        ends: How each execution has ended, by place and name.
    """
    seen = notes(flow)
    for place in {note.place for note in seen}:
        race = Race([note for note in seen if note.place == place], ends.get(place, {}))
        {"queue": race.check_queue, "cancel": race.check_cancel, "reject": race.check_reject}[
            then
        ]()


class Race:
    """The race for a place.

    Args:
        seen: The notes about it.
        ends: How each execution has ended, by name.
    """

    def __init__(self, seen: Sequence[Note], ends: Mapping[str, str]) -> None:
        self._seen = seen
        self._ends = ends
        self._requested, self._accepted, self._refused, self._entered, self._left = map(
            self._first, ("requested", "accepted", "refused", "entered", "left")
        )
        self._check_places()
        self._check_answers()

    def _first(self, what: str) -> dict[str, int]:
        """Return the position of the first such note, by name."""
        found: dict[str, int] = {}
        for at, note in enumerate(self._seen):
            if note.what == what:
                found.setdefault(note.name, at)
        return found

    def _check_places(self) -> None:
        """Two were never inside at once, and none came back after another."""
        assert not [note for note in self._seen if note.what == "met another"]
        inside = [note.name for note in self._seen if note.what == "entered"]
        visits = [name for name, _ in itertools.groupby(inside)]
        assert len(visits) == len(set(visits)), visits

    def _check_answers(self) -> None:
        """Every accepted execution exists. The killed racer got no answer to its last request."""
        unknown = self._requested.keys() - self._accepted.keys() - self._refused.keys()
        assert len(unknown) <= 1
        assert all(name.startswith(DOOMED) for name in unknown)
        assert self._accepted.keys() <= self._ends.keys() <= self._accepted.keys() | unknown

    def _ordered(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of executions: the first was accepted before the second was requested."""
        for one, other in itertools.permutations(self._ends, 2):
            if one in self._accepted and self._accepted[one] < self._requested[other]:
                yield one, other

    def check_queue(self) -> None:
        """All entered, in the order of their requests."""
        assert {*self._ends.values()} == {"succeeded"}
        assert self._entered.keys() == self._left.keys() == self._ends.keys()
        assert all(self._entered[one] < self._entered[other] for one, other in self._ordered())
        assert not self._refused

    def check_cancel(self) -> None:
        """Only the newest succeeded."""
        [last] = [name for name, end in self._ends.items() if end == "succeeded"]
        assert {*self._ends.values()} <= {"succeeded", "cancelled"}
        assert last in self._left
        assert last not in [one for one, _ in self._ordered()]
        assert not self._refused

    def check_reject(self) -> None:
        """One was accepted. The error of all others names the limit."""
        [(name, end)] = self._ends.items()
        assert end == "succeeded"
        assert name in self._left
        for note in self._seen:
            if note.what != "refused":
                continue
            limit = "flow flow is at its concurrency limit"
            if note.more != limit:  # which deliveries read: the place is content
                assert note.more.startswith(f"{limit} for {note.place!r}: execution "), note.more
                assert note.more.endswith(" is open"), note.more

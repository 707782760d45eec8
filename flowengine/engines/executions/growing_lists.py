"""Append-only lists of the state, such as the messages of a conversation, in snapshots.

A snapshot leaves them out. Their new items are written separately, once, so the cost of a snapshot
is proportional to the changes, regardless of list length. Their texts usually occur in an event
already. In that case only a reference to the text is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import is_
from typing import Any, Protocol

from flowengine.errors import StoreError
from flowengine.journal.encoding import (
    pack_placed,
    text_at,
    text_places,
    unpack,
    unpack_place,
    unpack_placed,
)
from flowengine.journal.records import JournalEntry, ListPart
from flowengine.kernel import Graph
from flowengine.kernel.state.records import State
from flowengine.kernel.view import View, state_name
from flowengine.util.garbage import CollectedLater

LEFT_OUT = "lists"
"""Key of a packed state with the lists that it leaves out, each with its length."""
STORED = "stored"
"""Key of a packed state with the bytes of the events before it."""
FLOW = "flow"
"""Key of a packed state with the hash of the flow that the execution ran."""
_GAP = 8
"""Number of unneeded events to read if that saves a query."""


class Read(Protocol):
    """Reads events of an execution."""

    def __call__(self, since: int, limit: int) -> list[JournalEntry]:
        """Return at most this many events, starting at a number."""


class GrowingLists:
    """The stored part of the append-only lists of one execution.

    Args:
        read: Reads its events.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._stored: dict[str, list[Any]] = {}
        """Each list as stored."""
        self._events: list[tuple[int, bytes]] = []
        """The events since the last snapshot."""

    def add_event(self, number: int, packed: bytes) -> None:
        """Note an event since the last snapshot."""
        self._events.append((number, packed))

    def split(self, graph: Graph, state: Any) -> tuple[dict[str, Any], list[ListPart]]:
        """Return a state without its append-only lists, and the parts that are not stored yet.

        Args:
            graph: The flow.
            state: Not changed.
        """
        lists = dict(_growing(graph, state))
        parts = [ListPart(name, 0, b"") for name in self._stored if name not in lists]
        for name, items in lists.items():
            stored = self._stored.get(name, [])
            # Items never change, so it has grown if it begins with the same objects.
            has_grown = len(stored) <= len(items) and all(map(is_, stored, items))
            first = len(stored) if has_grown else 0
            if first < len(items) or first < len(stored):
                places = partial(text_places, self._events)
                new = pack_placed(items[first:], places) if first < len(items) else b""
                parts.append(ListPart(name, first, new))
        self._stored = lists
        self._events.clear()
        lengths = {name: len(items) for name, items in lists.items()}
        return {**_without(state, lists), LEFT_OUT: lengths}, parts

    def load(self, snapshot: bytes, parts: Sequence[ListPart]) -> tuple[State, int, str]:
        """Return the state of a snapshot, with the lists that it leaves out.

        Args:
            snapshot: The state as `split` returned it, packed.
            parts: All stored parts.

        Returns:
            The state, the bytes of the events before, and the hash of the flow.
        """
        with CollectedLater():  # all that is made here stays referenced
            packed: Any = unpack(snapshot)
        stored, hash = packed.pop(STORED), packed.pop(FLOW)
        state: State = packed
        self._join(state, parts)
        return state, stored, hash

    def _join(self, state: Any, parts: Sequence[ListPart]) -> None:
        lengths: dict[str, int] = state.pop(LEFT_OUT, {})
        # A damaged snapshot may have left parts of lists that the state does not name.
        of_state = [part for part in parts if part.name in lengths]
        texts = self._texts(of_state)
        for name, of_list in groupby(of_state, key=lambda part: part.name):
            items = _items(of_list, texts.__getitem__)[
                : lengths[name]
            ]  # later ones are of a later snapshot
            if len(items) != lengths[name]:
                raise ValueError(f"{name} has {len(items)} items in place of {lengths[name]}")
            cells, key = _cells(state, name)
            cells[key][0] = items
            self._stored[name] = items
        if missing := lengths.keys() - self._stored.keys():
            raise ValueError(f"{min(missing)} is missing")

    def forget(self) -> None:
        """Forget the stored parts, so that they are read again."""
        self._stored, self._events = {}, []

    def _texts(self, parts: Sequence[ListPart]) -> dict[bytes, str]:
        """Return the texts of all places in parts, by the bytes of the place."""
        wanted: set[bytes] = set()
        for part in parts:
            _unpacked(part, wanted.add)
        places = {packed: unpack_place(packed) for packed in wanted}
        runs = runs_of(place.event for place in places.values())
        entries = (entry for run in runs for entry in self._read(*run))
        events = {entry.seq: entry.payload for entry in entries}
        return {packed: text_at(place, events[place.event]) for packed, place in places.items()}


def runs_of(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield what to read to have some events: the number of a first one, and how many.

    Args:
        numbers: Numbers of the events. Others may be read along with them.
    """
    since = before = None
    for number in sorted(set(numbers)):
        if since is None or before is None:
            since = number
        elif number > before + _GAP:
            yield since, before + 1 - since
            since = number
        before = number
    if since is not None and before is not None:
        yield since, before + 1 - since


def grows(graph: Graph) -> bool:
    """Return whether a flow has append-only lists."""
    return any(_appended(flow.state) for flow in graph.flows)


def _appended(declared: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [key for key, spec in declared.items() if spec.get("reducer") == "append"]


def _growing(graph: Graph, state: State) -> Iterator[tuple[str, list[Any]]]:
    """Yield the name and the items of each append-only list."""
    view = View(graph, state)
    for frame in (0, *state.get("frames", ())):
        cells = view.vars_of(frame)
        for key in _appended(view.flow_of(frame).state):
            if key in cells and type(cells[key][0]) is list and cells[key][0]:
                yield state_name(frame, key), cells[key][0]


def _without(state: State, lists: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return a state without lists, sharing everything else without changing it."""
    whole: dict[str, Any] = {**state}
    if not lists:
        return whole
    whole["vars"] = dict(state["vars"])
    if "frames" in state:
        whole["frames"] = {
            number: {**frame, "vars": dict(frame["vars"])}
            for number, frame in state["frames"].items()
        }
    for name in lists:
        cells, key = _cells(whole, name)
        cells[key] = [None, *cells[key][1:]]
    return whole


def _cells(state: Mapping[str, Any], name: str) -> tuple[dict[str, list[Any]], str]:
    """Return the cells that contain a key, and the key, given the name of the list."""
    frame, slash, key = name.partition("/")
    return (state["frames"][int(frame)]["vars"], key) if slash else (state["vars"], name)


def _items(parts: Iterable[ListPart], text: Callable[[bytes], Any]) -> list[Any]:
    items: list[Any] = []
    for part in parts:
        if part.first != len(items):
            raise ValueError(f"a part of {part.name} begins at {part.first}")
        items += _unpacked(part, text)
    return items


def _unpacked(part: ListPart, text: Callable[[bytes], Any]) -> list[Any]:
    try:
        items = unpack_placed(part.items, text)
    except StoreError as error:  # the loader adds the execution
        raise ValueError(f"{part.name} from item {part.first} on: {error.message}") from None
    if type(items) is not list:
        raise ValueError(f"{part.name} from item {part.first} on is not a list")
    return items

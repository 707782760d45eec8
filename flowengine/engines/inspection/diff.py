"""Comparison of two executions: where their histories diverge, and the differences.

Histories are aligned by the subject of each fact - address, attempt, number of occurrences - and
not by the position in the journal, because parallel branches may end in any order. Ids and times
always differ and are ignored. Events discarded by `retry` are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.executions.linked_flows import apply, first_form, line, read
from flowengine.engines.host import Host
from flowengine.engines.infos import Difference, ForkInfo, Parting, Side, StepPair
from flowengine.engines.snapshots import read_snapshot, walk_since
from flowengine.engines.step_queries import rows_before
from flowengine.errors import InputError
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import ExecutionRecord, StepRow
from flowengine.journal.shapes import Sound, unpack_error, unpack_outputs
from flowengine.kernel import Graph, new_state
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Event
from flowengine.kernel.graph.compiled import SecretText
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.state.records import State

ENDS = frozenset({"succeeded", "skipped", "failed", "cancelled", "retrying"})
MOST = 50
"""Maximum number of differing paths to list for two values."""
MOST_STEPS = 200
"""Maximum number of differing steps to list. Others are counted."""
_WAIT_ID = re.compile(r"\b[0-9a-f]{16}\b")
_TIME_IN_BYTES = re.compile(rb"-\d\dT\d\d:\d\d:\d\d")
_AS_HEX = bytes(ord("h") if byte in b"0123456789abcdef" else 0 for byte in range(256))
_SIXTEEN = b"h" * 16
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


class Fact(NamedTuple):
    """One recorded fact of an execution."""

    address: str
    what: str
    """The kind of fact: `input`, `end`, `signal paid`."""
    number: int
    """How many facts of this kind there are of this address, up to this one."""
    packed: bytes
    """Its content. Equal: the content is the same, in the same order of keys."""
    seq: int

    @property
    def key(self) -> tuple[Any, ...]:
        """The subject of the fact, which is the same in both executions."""
        return self[:3]

    @property
    def content(self) -> dict[str, Any]:
        """Its content, without ids and times."""
        content: dict[str, Any] = unpack(self.packed)
        return content


class History(NamedTuple):
    """The history of one execution, in order."""

    record: ExecutionRecord
    entries: int
    """Length of its journal, without discarded events."""
    inputs: dict[str, Any]
    forked_at: int
    own: _Own
    earlier: int
    """Number of facts in the past that a fork shares, which are not among the others."""
    facts: list[Fact]
    places: dict[tuple[Any, ...], int]
    """Key → position in `facts`, without those that both begin with."""

    @property
    def outputs(self) -> Any:
        return unpack_outputs(self.record.outputs, f"execution {self.record.id}")

    @property
    def error(self) -> Any:
        return unpack_error(self.record.error, f"execution {self.record.id}")


def diff(host: Host, left: str, right: str) -> Difference:
    """Compare two executions.

    Args:
        host: Provides the store.
        left: Full id.
        right: Full id.

    Returns:
        See `Difference`.
    """
    records = [host.store.execution(id) for id in (left, right)]
    journals = [read(host.store, record.id) for record in records]
    straight = [line(journal, len(journal) - 1) for journal in journals]
    pasts = _shared_pasts(host, records, journals, straight)
    first, other = map(partial(_history, host), records, straight, pasts)
    begin = _common_beginning(first.facts, other.facts)
    for history in (first, other):
        facts = enumerate(islice(history.facts, begin, None), begin)
        history.places.update((fact.key, place) for place, fact in facts)
    shared, shared_by_other = _shared(first, other, begin), _shared(other, first, begin)
    point = _parting(first, other, shared, shared_by_other)
    steps, more = _pairs(first, other, begin, point)
    outputs = _places(first.own.plain(first.outputs), other.own.plain(other.outputs))
    alike = first.record.status == other.record.status and not outputs
    difference: Difference = {
        "same": point is None and alike,
        "same_flow": first.record.hash == other.record.hash,
        "left": _side(first),
        "right": _side(other),
        "shared": first.earlier + shared,
        "fork": _fork(first, other, shared, shared_by_other),
        "parting": point,
        "steps": steps,
        "inputs": _places(first.inputs, other.inputs),
        "outputs": outputs,
        "errors": _places(first.own.plain(first.error), other.own.plain(other.error)),
    }
    if more:
        difference["more_steps"] = more
    return difference


class _SharedPast(NamedTuple):
    """An execution after the events that both have in common."""

    graph: Graph
    state: State
    number: int
    """Number of the first event since."""
    facts: int
    """Number of facts before, without those of `open`."""
    open: list[str]
    """The steps that had not ended."""


def _shared_pasts(
    host: Host,
    records: Sequence[ExecutionRecord],
    journals: Sequence[Sequence[Event]],
    straight: Sequence[Sequence[Event]],
) -> Sequence[_SharedPast | None]:
    """Return the past of each that need not be replayed, because its events are the same.

    None: they have none in common, or it has no rows. The past of a fork is that of its original.
    """
    old, new = records
    fork = 0 if _came_from(old, new) else 1 if _came_from(new, old) else None
    original = 1 if fork == 0 else 0
    rewritten = (journals[original],) if fork is not None else journals
    if old.hash != new.hash or any("back" in event for journal in rewritten for event in journal):
        return None, None
    pairs = enumerate(zip(*straight, strict=False))
    differ = (number for number, (a, b) in pairs if not _is_same_event(a, b))
    common = next(differ, min(map(len, straight)))
    past = _past_before(host, records[original], journals[original], common)
    if past is None or fork is not None:
        return past, past
    graph, state = _state_after(host, new, past.number)
    return past, past._replace(graph=graph, state=state)


def _is_same_event(one: Any, other: Any) -> bool:
    """Return whether events are equal, except for their times."""
    if one["type"] == "started":
        return pack(one["inputs"]) == pack(other.get("inputs"))
    return pack({**one, "at": 0}) == pack({**other, "at": 0})


def _past_before(
    host: Host, record: ExecutionRecord, journal: Sequence[Event], number: int
) -> _SharedPast | None:
    """Return an execution before all attempts that ran at an event began.

    Groups may have begun earlier: they have no input.
    """
    table = host.store.steps(record.id)
    rows = [] if table is None else rows_before(table, number)
    if not rows or (rows[0].step and not rows[0].number):  # it was upgraded
        return None
    rows = [row for row in rows if row.number]
    counted = [row for row in rows if row.attempt]
    until = min(
        (row.began_by or 0 for row in counted if not _has_ended(row, number)), default=number
    )
    begun = [row for row in rows if row.began_by is not None and row.began_by < until]
    ended = sum(_has_ended(row, until) for row in rows if row.status != "interrupted")
    open_ = [row.address for row in begun if not _has_ended(row, until)]
    outside = sum(len(_outside(event)) for event in journal[:until])
    facts = outside + len(begun) + ended - len(open_)
    return _SharedPast(*_state_after(host, record, until), until, facts, open_)


def _state_after(host: Host, record: ExecutionRecord, count: int) -> tuple[Graph, State]:
    """Return the flow and the state of an execution after a number of events."""
    near = read_snapshot(host.store, host.flows, record.id, count)
    graph, state = near.graph, near.state
    for moment in walk_since(host.store, host.flows, record.id, near):
        graph, state = moment.graph, moment.state
    return graph, state


def _has_ended(row: StepRow, number: int) -> bool:
    return row.ended_by is not None and row.ended_by < number


def _history(
    host: Host, record: ExecutionRecord, straight: list[Any], past: _SharedPast | None
) -> History:
    """Return an execution.

    Args:
        host: Provides the flows.
        record: The execution.
        straight: Its events, without those discarded by retries.
        past: The past that need not be replayed. None: all is.
    """
    first: Any = straight[0] if straight else {"inputs": {}}
    seen: list[Observation] = []
    old = (record.forked_from or "").partition(" ")[0]
    own = _Own(record.id, *([old] if old else []))
    facts = _Facts(own)
    if past is None:
        graph, state = host.flows.by_hash(first_form(straight, record.hash)).graph, new_state()
        begin = 0
    else:
        begin, graph = past.number, past.graph
        state = copy(past.state)
        state["execution"] = first["execution"]
        facts.begin(begin, past.open)
        own.share(state)
    for number, event in enumerate(islice(straight, begin, None), begin):
        with Sound(f"entry {number} of a journal of flow {record.hash}"):
            graph = apply(host.flows, graph, state, event, seen)
        own.note_waits(state)
        facts.see(number, event, seen)
        seen.clear()
    return History(
        *(record, len(straight), own.plain(first["inputs"]), _forked_at(straight), own),
        *(0 if past is None else past.facts, facts.found, {}),
    )


class _Own:
    """Makes values of two executions comparable by replacing their ids and times.

    Args:
        ids: Id of the execution, and of the one that was forked: the past has values with it.
    """

    def __init__(self, *ids: str) -> None:
        self._ids = ids
        self._in_bytes = [id.encode() for id in ids]
        self._word = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, ids))})(?!\w)")
        self._last = 0
        """The last number that the execution has assigned, such as that of a wait."""
        self._new: list[int] = []
        """The numbers of waits whose ids are not known yet."""
        self._waits: set[str] = set()

    def share(self, state: State) -> None:
        """Begin with a past, in which any number may be that of a wait."""
        self._last = state["last"]
        self._new += range(self._last + 1)

    def note_waits(self, state: State) -> None:
        """Note the waits that an event has opened."""
        last, waits = state["last"], state["waits"]
        if waits:
            self._new += (number for number in range(self._last + 1, last + 1) if number in waits)
        self._last = last

    def packed(self, content: dict[str, Any]) -> bytes:
        """Return what `plain` returns of a content, packed. Most have no ids and no times."""
        try:
            packed = pack(content)
        except InputError:  # it names secrets
            return pack(self.plain(content))
        for id in self._in_bytes:
            if id in packed:
                return pack(self.plain(content))
        if _TIME_IN_BYTES.search(packed) or self._names_a_wait(packed):
            return pack(self.plain(content))
        return packed

    def _names_a_wait(self, packed: bytes) -> bool:
        if not self._new and not self._waits:  # most executions have none
            return False
        waits = self._all_waits()
        digits, at = packed.translate(_AS_HEX), -1
        while (at := digits.find(_SIXTEEN, at + 1)) >= 0:
            if packed[at : at + len(_SIXTEEN)].decode() in waits:
                return True
        return False

    def plain(self, value: Any) -> Any:
        """Return a value without ids and times of this execution, and with secrets masked."""
        if isinstance(value, str):
            text = value
            if any(id in text for id in self._ids):
                text = self._word.sub("(id)", text)
            if "Z" in text and ":" in text:  # most texts contain no time
                text = _TIME.sub("(time)", text)
            return _WAIT_ID.sub(self._without_wait, text)
        if isinstance(value, list):
            return [self.plain(item) for item in value]
        if isinstance(value, dict):
            return {key: self.plain(item) for key, item in value.items()}
        return "***" if isinstance(value, SecretText) else value

    def _without_wait(self, found: re.Match[str]) -> str:
        return "(id)" if found[0] in self._all_waits() else found[0]

    def _all_waits(self) -> set[str]:
        """Return the ids of the waits. A fork has different ids for the waits of its past."""
        self._waits.update(wait_id(id, number) for number in self._new for id in self._ids)
        self._new.clear()
        return self._waits


class _Facts:
    """The facts of a journal, in order.

    An attempt that was interrupted, or restarted by an operator, adds no separate fact. Only its
    input and its final result are compared.

    Args:
        own: Makes values comparable.
    """

    def __init__(self, own: _Own) -> None:
        self.found: list[Fact] = []
        self._own = own
        self._counts: dict[tuple[str, str], int] = {}
        self._open: dict[str, int] = {}
        """Address → position of the input of its running attempt."""

    def begin(self, number: int, steps: Iterable[str]) -> None:
        """Begin before an event, with steps that contain others and have not ended."""
        for address in steps:
            self._open[address] = len(self.found)
            self.found.append(self._fact(address, "input", {"input": None}, number - 1))

    def see(self, seq: int, event: Event, seen: list[Observation]) -> None:
        """Add the facts of an event."""
        for what, content in _outside(event):
            self._add("", what, content, seq)
        for observation in seen:
            if observation.status == "running":
                before = self._open.get(observation.address)
                content = {"input": observation.input}
                fact = self._fact(observation.address, "input", content, seq)
                if before is None:
                    self._open[observation.address] = len(self.found)
                    self.found.append(fact)
                else:
                    self.found[before] = self.found[before]._replace(packed=fact.packed)
            elif observation.status in ENDS:
                self._open.pop(observation.address, None)
                self._add(observation.address, "end", _end(observation), seq)

    def _add(self, address: str, what: str, content: dict[str, Any], seq: int) -> None:
        self.found.append(self._fact(address, what, content, seq))
        self._counts[address, what] = self._counts.get((address, what), 0) + 1

    def _fact(self, address: str, what: str, content: dict[str, Any], seq: int) -> Fact:
        number = self._counts.get((address, "end" if address else what), 0) + 1
        return Fact(address, what, number, self._own.packed(content), seq)


def _end(seen: Observation) -> dict[str, Any]:
    error: Any = seen.error
    if error is not None:
        error = {key: error.get(key) for key in ("type", "message", "data")}
    return {
        "status": seen.status,
        "outcome": seen.outcome,
        "output": seen.output,
        "error": error,
    }


def _outside(event: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the external facts of an event that is not about a step."""
    kind = event["type"]
    if kind == "started":
        return [("inputs", {"inputs": event["inputs"]})]
    if kind == "message":
        return [(f"signal {event['signal']}", {"key": event["key"], "data": event["data"]})]
    if kind == "state" and event["values"]:
        return [("state that was written", {"state": event["values"]})]
    if kind == "cancel":
        return [("request to cancel", {"reason": event["reason"], "now": event["now"]})]
    return []


def _parting(left: History, right: History, shared: int, shared_by_right: int) -> Parting | None:
    """Return the first point at which the facts of the two sides differ, if any."""
    a = left.facts[shared] if shared < len(left.facts) else None
    b = right.facts[shared_by_right] if shared_by_right < len(right.facts) else None
    if a is not None and b is not None and a.key != b.key:
        a, b = _earlier(left, right, a, b)
    elif a is not None:
        b = _counterpart(right, a)
    elif b is not None:
        a = _counterpart(left, b)
    fact = a or b
    if fact is None:
        return None
    one, another = _shown(a), _shown(b)
    differ = []
    if a is not None and b is not None:
        differ = _places(a.content, b.content)
    return {
        "address": fact.address,
        "what": fact.what,
        "left": one,
        "right": another,
        "differ": differ,
    }


def _shown(fact: Fact | None) -> dict[str, Any] | None:
    return None if fact is None else {"seq": fact.seq, "address": fact.address, **fact.content}


def _earlier(left: History, right: History, a: Fact, b: Fact) -> tuple[Fact | None, Fact | None]:
    """Return the earlier of two points, or both if each is missing on the other side."""
    in_right, in_left = right.places.get(a.key), left.places.get(b.key)
    if in_right is None and in_left is None:
        return a, b
    if in_left is None:  # a difference on the left, or an earlier fact that only the right side has
        assert in_right is not None
        return (a, right.facts[in_right]) if in_right < right.places[b.key] else (None, b)
    if in_right is None:
        return (left.facts[in_left], b) if in_left < left.places[a.key] else (a, None)
    return a, right.facts[in_right]


def _counterpart(history: History, fact: Fact) -> Fact | None:
    place = history.places.get(fact.key)
    return None if place is None else history.facts[place]


def _are_same(left: Any, right: Any) -> bool:
    """Return whether values are equal and have equal types. Key order is ignored."""
    return pack(left) == pack(right) or pack(_sorted(left)) == pack(_sorted(right))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _common_beginning(left: list[Fact], right: list[Fact]) -> int:
    """Return the number of facts with which both sides begin, in the same order."""
    pairs = enumerate(zip(left, right, strict=False))
    differ = (number for number, (one, other) in pairs if one[:4] != other[:4])
    return next(differ, min(len(left), len(right)))


def _shared(left: History, right: History, begin: int) -> int:
    """Return the number of facts before the first one that is missing or different.

    Args:
        left: One side.
        right: The other side.
        begin: The number of facts with which both begin.
    """
    for number, fact in enumerate(islice(left.facts, begin, None), begin):
        place = right.places.get(fact.key)
        if place is None or (
            right.facts[place].packed != fact.packed
            and not _are_same(right.facts[place].content, fact.content)
        ):
            return number
    return len(left.facts)


def _last_facts(history: History, among: set[str]) -> dict[str, dict[str, int]]:
    """Return address → the positions of the last facts of each kind of its step.

    Args:
        history: One side.
        among: The addresses.
    """
    last: dict[str, dict[str, int]] = {}
    for place, fact in enumerate(history.facts if among else ()):
        if fact.address in among:
            last.setdefault(fact.address, {})[fact.what] = place
    return last


def _step(history: History, last: Mapping[str, int]) -> dict[str, Any]:
    """Return the last run of a step: status, outcome, output, error, input."""
    step: dict[str, Any] = {"status": "open"}
    for place in sorted(last.values()):
        step |= history.facts[place].content
    return step


def _pairs(
    left: History, right: History, begin: int, point: Parting | None
) -> tuple[list[StepPair], int]:
    """Return the steps that ended differently on the other side, or ran on one side only.

    Args:
        left: One side.
        right: The other side.
        begin: The number of facts with which both begin.
        point: Where they differ first. Its step is returned in any case.

    Returns:
        The first `MOST_STEPS` of them, and how many others there are.
    """
    pairs: list[StepPair] = []
    more = 0
    later = (islice(history.facts, begin, None) for history in (left, right))
    addresses = {fact.address for fact in chain(*later) if fact.address}
    of_left, of_right = _last_facts(left, addresses), _last_facts(right, addresses)
    for address in dict.fromkeys([*of_left, *of_right]):
        one, other = of_left.get(address), of_right.get(address)
        if one is not None and other is not None and _packed(left, one) == _packed(right, other):
            continue
        if len(pairs) >= MOST_STEPS and (point is None or address != point["address"]):
            more += 1
            continue
        a = None if one is None else _step(left, one)
        b = None if other is None else _step(right, other)
        differ = _places(a, b) if a is not None and b is not None else []
        if a is None or b is None or differ:
            pairs.append({"address": address, "left": a, "right": b, "differ": differ})
    return pairs, more


def _packed(history: History, last: Mapping[str, int]) -> dict[str, bytes]:
    return {what: history.facts[place].packed for what, place in last.items()}


def _places(left: Any, right: Any) -> list[dict[str, Any]]:
    """Return the paths at which two values differ: `{path, left, right}` each."""
    differences: list[dict[str, Any]] = []
    if pack(left) != pack(right):
        _compare("", left, right, differences)
    return differences[:MOST]


_ABSENT = object()


def _compare(path: str, left: Any, right: Any, differences: list[dict[str, Any]]) -> None:
    if len(differences) >= MOST:
        return
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys([*left, *right]):
            inner = f"{path}.{key}" if path else str(key)
            _compare(inner, left.get(key, _ABSENT), right.get(key, _ABSENT), differences)
    elif isinstance(left, list) and isinstance(right, list):
        for index in range(max(len(left), len(right))):
            a = left[index] if index < len(left) else _ABSENT
            b = right[index] if index < len(right) else _ABSENT
            _compare(f"{path}[{index}]", a, b, differences)
    elif left is _ABSENT or right is _ABSENT or not _are_same(left, right):
        place = {"path": path}
        if left is not _ABSENT:
            place["left"] = left
        if right is not _ABSENT:
            place["right"] = right
        differences.append(place)


def _side(history: History) -> Side:
    record = history.record
    return {
        "execution": record.id,
        "flow": record.flow,
        "version": record.version or "",
        "hash": record.hash,
        "status": record.status,  # type: ignore[typeddict-item]
        "forked_from": record.forked_from,
        "entries": history.entries,
        "facts": history.earlier + len(history.facts),
        "outputs": history.outputs,
        "error": history.error,
    }


def _fork(left: History, right: History, shared: int, shared_by_right: int) -> ForkInfo | None:
    """Return which side was forked from the other, and whether their shared past is the same."""
    if _came_from(left.record, right.record):
        return _fork_info("left", left, shared)
    if _came_from(right.record, left.record):
        return _fork_info("right", right, shared_by_right)
    return None


def _came_from(fork: ExecutionRecord, other: ExecutionRecord) -> bool:
    return (fork.forked_from or "").partition(" ")[0] == other.id


def _fork_info(side: Literal["left", "right"], fork: History, shared: int) -> ForkInfo:
    past = fork.earlier + sum(fact.seq < fork.forked_at for fact in fork.facts)
    return {
        "side": side,
        "at": str(fork.record.forked_from).partition(" at ")[2],
        "past": past,
        "same": fork.earlier + shared >= past,
    }


def _forked_at(straight: list[Any]) -> int:
    """Return the number of the event with which a fork began. 0: it is not a fork."""
    for number in range(len(straight) - 1, 0, -1):
        if straight[number]["type"] == "retry" and straight[number - 1]["type"] == "state":
            return number - 1
    return 0

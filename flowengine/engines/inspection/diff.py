"""Comparison of two executions: where their histories diverge, and the differences.

Histories are aligned by the subject of each fact - address, attempt, number of occurrences - and
not by the position in the journal, because parallel branches may end in any order. Ids and times
always differ and are ignored. Events discarded by `retry` are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from flowengine.engines.executions.linked_flows import apply, first_form, line, read
from flowengine.engines.host import Host
from flowengine.engines.infos import Difference, ForkInfo, Parting, Side, StepPair
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import ExecutionRecord
from flowengine.journal.shapes import Sound, unpack_error, unpack_outputs
from flowengine.kernel import new_state
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
    facts: list[Fact]
    places: dict[tuple[Any, ...], int]
    """Key → position in `facts`."""

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
    first, other = (_history(host, host.store.execution(id)) for id in (left, right))
    shared, shared_by_other = _shared(first, other), _shared(other, first)
    point = _parting(first, other, shared, shared_by_other)
    steps, more = _pairs(first, other, point)
    outputs = _places(first.own.plain(first.outputs), other.own.plain(other.outputs))
    alike = first.record.status == other.record.status and not outputs
    difference: Difference = {
        "same": point is None and alike,
        "same_flow": first.record.hash == other.record.hash,
        "left": _side(first),
        "right": _side(other),
        "shared": shared,
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


def _history(host: Host, record: ExecutionRecord) -> History:
    """Replay an execution, without the events that retries have discarded."""
    journal = read(host.store, record.id)
    straight: list[Any] = line(journal, len(journal) - 1)
    first: Any = straight[0] if straight else {"inputs": {}}
    old = (record.forked_from or "").partition(" ")[0]
    own = _Own(record.id, *([old] if old else []))
    facts, seen = _Facts(own), list[Observation]()
    graph, state = host.flows.by_hash(first_form(straight, record.hash)).graph, new_state()
    for number, event in enumerate(straight):
        with Sound(f"entry {number} of a journal of flow {record.hash}"):
            graph = apply(host.flows, graph, state, event, seen)
        own.note_waits(state)
        facts.see(number, event, seen)
        seen.clear()
    places = {fact.key: place for place, fact in enumerate(facts.found)}
    inputs, forked_at = own.plain(first["inputs"]), _forked_at(straight)
    return History(record, len(straight), inputs, forked_at, own, facts.found, places)


class _Own:
    """Makes values of two executions comparable by replacing their ids and times.

    Args:
        ids: Id of the execution, and of the one that was forked: the past has values with it.
    """

    def __init__(self, *ids: str) -> None:
        self._ids = ids
        self._word = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, ids))})(?!\w)")
        self._last = 0
        """The last number that the execution has assigned, such as that of a wait."""
        self._waits: set[str] = set()

    def note_waits(self, state: State) -> None:
        """Note the waits that an event has opened."""
        new = range(self._last + 1, state["last"] + 1)
        self._waits.update(  # a fork has different ids for the waits of its past
            wait_id(id, number) for number in new if number in state["waits"] for id in self._ids
        )
        self._last = state["last"]

    def plain(self, value: Any) -> Any:
        """Return a value without ids and times of this execution, and with secrets masked."""
        if isinstance(value, str):
            text = value
            if any(id in text for id in self._ids):
                text = self._word.sub("(id)", text)
            if "Z" in text and ":" in text:  # most texts contain no time
                text = _TIME.sub("(time)", text)
            return _WAIT_ID.sub(lambda id: "(id)" if id[0] in self._waits else id[0], text)
        if isinstance(value, list):
            return [self.plain(item) for item in value]
        if isinstance(value, dict):
            return {key: self.plain(item) for key, item in value.items()}
        return "***" if isinstance(value, SecretText) else value


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
        return Fact(address, what, number, pack(self._own.plain(content)), seq)


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


def _shared(left: History, right: History) -> int:
    """Return the number of facts before the first one that is missing or different."""
    for number, fact in enumerate(left.facts):
        place = right.places.get(fact.key)
        if place is None or (
            right.facts[place].packed != fact.packed
            and not _are_same(right.facts[place].content, fact.content)
        ):
            return number
    return len(left.facts)


def _last_facts(history: History) -> dict[str, dict[str, int]]:
    """Return address → the positions of the last facts of each kind of its step."""
    last: dict[str, dict[str, int]] = {}
    for place, fact in enumerate(history.facts):
        if fact.address:
            last.setdefault(fact.address, {})[fact.what] = place
    return last


def _step(history: History, last: Mapping[str, int]) -> dict[str, Any]:
    """Return the last run of a step: status, outcome, output, error, input."""
    step: dict[str, Any] = {"status": "open"}
    for place in sorted(last.values()):
        step |= history.facts[place].content
    return step


def _pairs(left: History, right: History, point: Parting | None) -> tuple[list[StepPair], int]:
    """Return the steps that ended differently on the other side, or ran on one side only.

    Args:
        left: One side.
        right: The other side.
        point: Where they differ first. Its step is returned in any case.

    Returns:
        The first `MOST_STEPS` of them, and how many others there are.
    """
    pairs: list[StepPair] = []
    more = 0
    of_left, of_right = _last_facts(left), _last_facts(right)
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
        "facts": len(history.facts),
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
    past = sum(fact.seq < fork.forked_at for fact in fork.facts)
    return {
        "side": side,
        "at": str(fork.record.forked_from).partition(" at ")[2],
        "past": past,
        "same": shared >= past,
    }


def _forked_at(straight: list[Any]) -> int:
    """Return the number of the event with which a fork began. 0: it is not a fork."""
    for number in range(len(straight) - 1, 0, -1):
        if straight[number]["type"] == "retry" and straight[number - 1]["type"] == "state":
            return number - 1
    return 0

"""Comparison of two executions: where their histories diverge, and the differences.

Histories are aligned by the subject of each fact - address, attempt, number of occurrences - and
not by the position in the journal, because parallel branches may end in any order. Ids and times
always differ and are ignored. Bytes and digests show which facts may differ. Only of these, values
are read or computed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Literal

from flowengine.engines.host import Host
from flowengine.engines.infos import Difference, ForkInfo, Parting, Side, StepPair
from flowengine.engines.inspection.facts import Fact, Facts, Key, Run
from flowengine.journal.encoding import pack
from flowengine.journal.records import ExecutionRecord
from flowengine.journal.shapes import Sound, unpack_error, unpack_outputs

_Numbers = tuple[int | None, int | None]
"""Number of the event of a fact on each side, if it is there."""
MOST = 50
"""Maximum number of differing paths to list for two values."""
MOST_STEPS = 200
"""Maximum number of differing steps to list. Others are counted."""


def diff(host: Host, left: str, right: str) -> Difference:
    """Compare two executions.

    Args:
        host: Provides the store.
        left: Full id.
        right: Full id.

    Returns:
        See `Difference`.
    """
    with Sound(f"the stored data of execution {left} or {right}"):
        pair = _Pair(*(Facts(host, host.store.execution(id)) for id in (left, right)))
        point = pair.parting()
        steps, more = pair.steps(None if point is None else point["address"])
    first, other = pair.sides
    one, another = _side(first), _side(other)
    outputs = _places(first.own.plain(one["outputs"]), other.own.plain(another["outputs"]))
    difference: Difference = {
        "same": point is None and first.record.status == other.record.status and not outputs,
        "same_flow": first.record.hash == other.record.hash,
        "left": one,
        "right": another,
        "shared": pair.shared(0),
        "fork": _fork(pair),
        "parting": point,
        "steps": steps,
        "inputs": _places(first.inputs, other.inputs),
        "outputs": outputs,
        "errors": _places(first.own.plain(one["error"]), other.own.plain(another["error"])),
    }
    if more:
        difference["more_steps"] = more
    return difference


class _Pair:
    """Two executions that are compared."""

    def __init__(self, left: Facts, right: Facts) -> None:
        self.sides = left, right
        self._suspects = [*self._find_suspects()]
        self._differs = cache(self._compare)
        self._first = cache(self._find_first)

    def _find_suspects(self) -> Iterator[tuple[Key, _Numbers]]:
        """Yield the subjects of facts that may differ, or that only one side has."""
        left, right = self.sides
        for key in dict.fromkeys([*left.whole, *right.whole]):
            one, other = left.whole.get(key), right.whole.get(key)
            if one is None or other is None or not _are_same(one[1], other[1]):
                yield key, (one and one[0], other and other[0])
        for place in dict.fromkeys([*left.runs, *right.runs]):
            a, b = left.runs.get(place), right.runs.get(place)
            if not self._began_alike(a, b):
                yield (place[0], "input", place[1]), (a and a.began_by, b and b.began_by)
            if not self._ended_alike(a, b):
                yield (place[0], "end", place[1]), (a and a.ended_by, b and b.ended_by)

    def _began_alike(self, a: Run | None, b: Run | None) -> bool:
        """Return whether the attempts of two runs surely had the same input."""
        if a is None or b is None:
            return False
        return (a.began_by is None) == (b.began_by is None) and a.input == b.input

    def _ended_alike(self, a: Run | None, b: Run | None) -> bool:
        """Return whether two runs surely had the same end."""
        if a is None or b is None or not (a.has_ended and b.has_ended):
            return a is not None and b is not None and a.has_ended == b.has_ended
        left, right = self.sides
        return (
            (a.row.status, a.row.outcome, a.row.error) == (b.row.status, b.row.outcome, b.row.error)
            and left.packed_output(a.row) == right.packed_output(b.row)
        )  # fmt: skip

    def _read(self, keys: Iterable[Key]) -> None:
        """Read the values of facts on both sides."""
        wanted = [*keys]
        for side in self.sides:
            side.read_values(fact for key in wanted if (fact := side.get(key)) is not None)

    def _compare(self, key: Key) -> bool:
        """Return whether a fact differs, whose values have been read."""
        left, right = self.sides
        a, b = left.get(key), right.get(key)
        if a is None or b is None:
            return a is not b
        return not _are_same(left.content(a), right.content(b))

    def _find_first(self, number: int) -> Fact | None:
        """Return the first fact of a side that is missing or different on the other side."""
        side = self.sides[number]
        suspects = [(at, key) for key, of in self._suspects if (at := of[number]) is not None]
        events = [
            (at, [key for _, key in of]) for at, of in groupby(sorted(suspects), key=itemgetter(0))
        ]
        start, size = 0, 50
        while some := events[start : start + size]:
            self._read(key for _, keys in some for key in keys)
            for at, keys in some:
                if differ := {*filter(self._differs, keys)}:
                    return next(fact for fact in side.of_event(at) if fact.key in differ)
            start, size = start + size, 2 * size
        return None

    def shared(self, number: int) -> int:
        """Return the number of facts of a side before the first one that differs."""
        first = self._first(number)
        return len(self.sides[number]) if first is None else self.sides[number].position(first)

    def parting(self) -> Parting | None:
        """Return the first point at which the facts of the two sides differ, if any."""
        left, right = self.sides
        a, b = self._first(0), self._first(1)
        if a is not None and b is not None and a.key != b.key:
            a, b = self._earlier(a, b)
        elif a is not None:
            b = right.get(a.key)
        elif b is not None:
            a = left.get(b.key)
        fact = a or b
        if fact is None:
            return None
        self._read([fact.key for fact in (a, b) if fact is not None])
        differ = []
        if a is not None and b is not None:
            differ = _places(left.content(a), right.content(b))
        return {
            "address": fact.key[0],
            "what": fact.key[1],
            "left": _shown(left, a),
            "right": _shown(right, b),
            "differ": differ,
        }

    def _earlier(self, a: Fact, b: Fact) -> tuple[Fact | None, Fact | None]:
        """Return the earlier of two points, or both if each is missing on the other side."""
        left, right = self.sides
        in_right, in_left = right.get(a.key), left.get(b.key)
        if in_right is None and in_left is None:
            return a, b
        if in_left is None:  # a difference on the left, or an earlier fact that only right has
            assert in_right is not None
            is_earlier = right.position(in_right) < right.position(b)
            return (a, in_right) if is_earlier else (None, b)
        if in_right is None:
            return (in_left, b) if left.position(in_left) < left.position(a) else (a, None)
        return a, in_right

    def steps(self, parting: str | None) -> tuple[list[StepPair], int]:
        """Return the steps that ended differently on the other side, or ran on one side only.

        Args:
            parting: Address of the step where they differ first. It comes first.

        Returns:
            The first `MOST_STEPS` of them, and how many others there may be.
        """
        suspects = dict.fromkeys(self._differing())
        if parting in suspects:
            suspects = {parting: None, **suspects}
        waiting, pairs = iter(suspects), list[StepPair]()
        while len(pairs) < MOST_STEPS and (some := [*islice(waiting, MOST_STEPS)]):
            shown = {address: self._shown(address, address == parting) for address in some}
            self._read(key for keys in shown.values() for key in keys)
            for address, keys in shown.items():
                one, other = (_step(side, address, keys) for side in self.sides)
                differ = _places(one, other) if one is not None and other is not None else []
                if differ or (one is None) != (other is None):
                    pairs.append(
                        {"address": address, "left": one, "right": other, "differ": differ}
                    )
        more = len(pairs) + sum(1 for _ in waiting) - MOST_STEPS
        return pairs[:MOST_STEPS], max(more, 0)

    def _differing(self) -> Iterator[str]:
        """Yield the addresses of steps whose last runs may differ."""
        left, right = self.sides
        for address in dict.fromkeys(key[0] for key, _ in self._suspects if key[0]):
            a, b = left.last.get(address), right.last.get(address)
            if not self._began_alike(a, b) or not self._ended_alike(a, b):
                yield address

    def _shown(self, address: str, is_parting: bool) -> list[Key]:
        """Return the facts of a step to show. An equal input is left out: it takes a replay."""
        left, right = self.sides
        a, b = left.last.get(address), right.last.get(address)
        left_out = "input" if not is_parting and self._began_alike(a, b) else ""
        facts = (fact for side in self.sides for fact in side.of_last(address))
        return [fact.key for fact in facts if fact.key[1] != left_out]


def _shown(side: Facts, fact: Fact | None) -> dict[str, Any] | None:
    if fact is None:
        return None
    return {"seq": fact.seq, "address": fact.key[0], **side.content(fact)}


def _step(side: Facts, address: str, keys: Collection[Key]) -> dict[str, Any] | None:
    """Return the last run of a step: status, outcome, output, error, input."""
    facts = side.of_last(address)
    step: dict[str, Any] = {"status": "open"}
    for fact in facts:
        step |= side.content(fact) if fact.key in keys else {}
    return step if facts else None


def _are_same(left: Any, right: Any) -> bool:
    """Return whether values are equal and have equal types. Key order is ignored."""
    return pack(left) == pack(right) or pack(_sorted(left)) == pack(_sorted(right))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


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


def _side(side: Facts) -> Side:
    record = side.record
    return {
        "execution": record.id,
        "flow": record.flow,
        "version": record.version or "",
        "hash": record.hash,
        "status": record.status,  # type: ignore[typeddict-item]
        "forked_from": record.forked_from,
        "entries": len(side.line),
        "facts": len(side),
        "outputs": unpack_outputs(record.outputs, f"execution {record.id}"),
        "error": unpack_error(record.error, f"execution {record.id}"),
    }


def _fork(pair: _Pair) -> ForkInfo | None:
    """Return which side was forked from the other, and whether their shared past is the same."""
    left, right = pair.sides
    if _came_from(left.record, right.record):
        return _fork_info("left", left, pair.shared(0))
    if _came_from(right.record, left.record):
        return _fork_info("right", right, pair.shared(1))
    return None


def _came_from(fork: ExecutionRecord, other: ExecutionRecord) -> bool:
    return (fork.forked_from or "").partition(" ")[0] == other.id


def _fork_info(side: Literal["left", "right"], fork: Facts, shared: int) -> ForkInfo:
    past = fork.count_before(fork.forked_at)
    return {
        "side": side,
        "at": str(fork.record.forked_from).partition(" at ")[2],
        "past": past,
        "same": shared >= past,
    }

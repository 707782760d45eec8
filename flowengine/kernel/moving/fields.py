"""The contents of each state field, including all references to the graph.

A state refers to steps, bodies and subflows of its graph by number, and to state keys and signals
by name. The code that moves a state to another graph uses this table. A field that is missing here
raises an error instead of being skipped, and a test compares the table with `state/records.py`.

Kinds of fields:

| kind                | contents                                                                   |
|---------------------|----------------------------------------------------------------------------|
| `PLAIN`             | no reference to the graph                                                  |
| `MADE`              | derived from the rest of the state and the graph, and created again        |
| `("step", use)`     | a step, and the purpose of the reference                                   |
| `("one", type)`     | a record. Also `list` of records, `table` by number, `lists` by source     |
| anything else       | see `walking.Walker`                                                       |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from flowengine.kernel.expressions.provenance import RECORDS
from flowengine.kernel.state.records import State
from flowengine.kernel.view import state_name
from flowengine.kernel.waiting.waits import SEPARATOR

PLAIN = "plain"
MADE = "made"
Kind = str | tuple[str, str]


def _plain(*names: str) -> dict[str, Kind]:
    return dict.fromkeys(names, PLAIN)


FIELDS: dict[str, dict[str, Kind]] = {
    "Arrival": {
        "step": ("step", "arrival"),
        "source": "source",
        "marks": "marks",
        "knows": "knows",
        **_plain("scope", "output", "past", "line", "message"),
    },
    "JoinState": {
        "arrivals": ("lists", "Arrival"),
        "counted": ("list", "Arrival"),
        "kept": ("list", "Arrival"),
        "sources_seen": "by_source",
        "upstream": MADE,
        **_plain("phase", "round", "need"),
    },
    "Scope": {
        "body": "body",
        "live": "live",
        "joins": "joins",
        "at": MADE,
        "counts": "by_step",
        "hits": "by_step",
        "done": ("list", "Done"),
        "finals": ("list", "Final"),
        "knows": "knows",
        **_plain("id", "unit", "frame", "path", "past", "ended", "at_joins", "mapped", "cut",
                 "error", "cleaning", "phase", "resumes", "rescued", "timer", "idle"),
        "then": "then",
    },
    "Activation": {
        "step": ("step", "live"),
        "arrivals": "arrivals",
        "marks": "marks",
        "knows": "knows",
        "writes": "writes",
        "finals": ("list", "Final"),
        "done": ("list", "Done"),
        **_plain("id", "scope", "number", "past", "line", "message", "at", "deadline", "units",
                 "over", "keys", "next", "places", "busy", "results", "failed", "max_failures",
                 "succeeded", "need", "left_early", "rounds", "attempts", "facts", "undo", "final",
                 "opens", "cleanup", "frame", "address", "local", "cut", "call", "approval"),
        "then": "then",
    },
    "Unit": {
        "finals": ("list", "Final"),
        "then": "then",
        "knows": "knows",
        "replaced_reads": "saw",
        "calls": "calls",
        **_plain("id", "act", "item", "phase", "round", "last", "outputs", "seen", "max", "attempt",
                 "tries", "args", "input", "secrets", "key", "timer", "wait", "asks", "scope",
                 "cleanup", "facts", "fallback", "lock", "across", "shares", "has_lock", "budget",
                 "needs", "granted", "runs", "responded", "shown",
                 "counted", "answers", "caught", "unlimited"),
    },
    "Calls": _plain("made", "next", "open", "answers"),
    "Grant": _plain("tool", "version", "args", "patterns", "source", "uses", "until", "used", "by",
                    "at", "revoked", "people"),
    "Lock": _plain("holders", "queue"),
    "Done": {
        "step": ("step", "done"),
        **_plain("address", "output", "local", "past", "frame"),
    },
    "Cut": {
        "step": ("step", "cut"),
        **_plain("address", "attempt", "args", "input", "secrets", "key", "local", "past", "frame",
                 "granted", "phase", "wait", "outcome", "value", "process"),
    },
    "Final": {
        "step": ("step", "final"),
        "knows": "knows",
        **_plain("address", "local", "past", "frame", "error", "cleanup"),
    },
    "Cleanup": {
        "todo": ("list", "Final"),
        "then": "then",
        "knows": "knows",
        **_plain("kind", "of", "past", "cause", "failure", "waiter", "over"),
    },
    "Timer": _plain("due", "why", "ref", "arg"),
    "Wait": {
        "record": "record_of_wait",
        **_plain("id", "owner", "unit", "kind", "since", "event", "shown", "timers", "alternatives",
                 "escalate", "remind", "notify", "notified", "field", "cut", "budget", "asks",
                 "units", "opens"),
    },
    "Undo": {
        "todo": ("list", "Done"),
        "current": ("one", "Done"),
        "then": "then",
        **_plain("scope", "cut", "cause", "failures"),
    },
    "Budget": _plain("limits", "used", "calls", "reserved", "amounts", "estimated", "spent",
                     "since", "timer", "waiting", "queue", "wait", "shared", "refused"),
    "Reservation": _plain("needs", "granted"),
    "Frame": {
        "flow": "flow",
        "vars": "vars",
        "keys": "signals",
        "budget": ("one", "Budget"),
        **_plain("up", "depth", "inputs", "room", "steps", "bounds"),
    },
    "Child": _plain("frame", "step", "room", "part", "shared", "ended"),
    "State": {
        "vars": "vars",
        "scopes": ("table", "Scope"),
        "acts": ("table", "Activation"),
        "units": ("table", "Unit"),
        "waits": ("table", "Wait"),
        "timers": ("table", "Timer"),
        "undos": ("table", "Undo"),
        "cuts": ("table", "Cut"),
        "locks": ("table", "Lock"),
        "grants": ("table", "Grant"),
        "cleanups": ("table", "Cleanup"),
        "frames": ("table", "Frame"),
        "children": ("table", "Child"),
        "keys": "signals",
        "layers": "layers",
        "listening": "channels",
        "kept": "kept",
        "reading": "knows",
        "watching": MADE,
        "budget": ("one", "Budget"),
        **_plain("format", "status", "now", "last", "inner", "events", "inputs", "execution",
                 "triggered", "steps", "skipped", "running", "cancelling", "claims",
                 "reserved", "bound", "outputs", "error", "answers", "hold", "calls", "warned"),
    },
}  # fmt: skip

FOLLOWS = {
    "handled": "handler of a step",
    "flow_handled": "handler of a flow",
    **dict.fromkeys(
        (
            "attempt",
            "again",
            "ended",
            "group_ended",
            "answered",
            "calls_answered",
            "pause",
            "unit_failed",
            "act_failed",
            "act_ended",
            "items_left",
            "flow_end",
            "begin_round",
            "test_until",
            "pause_before_round",
            "begin_act",
            "uncertain",
            "unit_ended",
            "enough",
            "goes_on",
            "needs",
            "counted",
            "items_ended",
            "limit",
            "deadline",
            "duration",
            "end_anew",
        ),
        PLAIN,
    ),
}
"""Names that a `then` can contain: agenda entries that are stored between events."""


# Walks through a state according to the table of its fields, and copies it with other names.
#
# A visitor returns the new number or name of each step, body, subflow, state key and signal. It
# returns None for a reference that is only remembered and may be dropped.


class Visitor(Protocol):
    """Maps the numbers and names in a state to new ones."""

    def step(self, number: int, use: str, record: Any) -> int | None:
        """Return the step that replaces a step. `record` contains the reference."""

    def body(self, number: int) -> int:
        """Return the body that replaces a running body."""

    def flow(self, number: int) -> int:
        """Return the flow that replaces a running flow. 0 stays 0."""

    def state_key(self, flow: int, key: str) -> str | None:
        """Return the state key that replaces a state key of a flow."""

    def signal(self, flow: int, name: str) -> str | None:
        """Return the signal that replaces a signal."""

    def handler(self, index: int, owner: int, flow: int) -> None:
        """Visit a handler about to be performed, of a step, or of a flow if `owner` is -1."""

    def step_name(self, name: str) -> str:
        """Return the name of a step for display."""

    def callee(self, caller: int, name: str) -> str:
        """Return the name that replaces that of a callee of a step."""


class Walker:
    """One walk through a state.

    Args:
        state: The state. It is not changed.
        visitor: Returns the new numbers and names.
    """

    def __init__(self, state: State, visitor: Visitor) -> None:
        self._state: Any = state
        self._visitor = visitor

    def copy(self) -> Any:
        """Return the state with new names, without derived fields."""
        return self._record("State", self._state)

    def _record(self, type: str, record: Any) -> dict[str, Any]:
        kinds = FIELDS[type]
        return {
            key: _copy(value) if kinds[key] == PLAIN else self._value(kinds[key], value, record)
            for key, value in record.items()
            if kinds[key] != MADE
        }

    def _value(self, kind: Kind, value: Any, record: Any) -> Any:
        if isinstance(kind, str):
            read: Callable[[Any, Any], Any] = getattr(self, f"_{kind}")
            return read(value, record)
        form, what = kind
        if form == "step":
            return self._visitor.step(value, what, record)
        if form == "one":
            return self._record(what, value)
        if form == "list":
            return [self._record(what, part) for part in value]
        if form == "table":
            return {number: self._record(what, part) for number, part in value.items()}
        return {
            self._source(source, None): [self._record(what, arrival) for arrival in several]
            for source, several in value.items()
        }

    # Steps

    def _source(self, number: int, _record: Any) -> int:
        """Return the new source of a token: a step, or the start or trigger of the scope."""
        if number < 0:
            return number
        source = self._visitor.step(number, "source", None)
        return number if source is None else source

    def _by_source(self, value: dict[int, Any], _record: Any) -> dict[int, Any]:
        return {self._source(number, None): part for number, part in value.items()}

    def _by_step(self, value: dict[int, Any], _record: Any, use: str = "count") -> dict[int, Any]:
        steps = {self._visitor.step(number, use, part): part for number, part in value.items()}
        return {step: part for step, part in steps.items() if step is not None}

    def _marks(self, value: dict[int, int], _record: Any) -> dict[int, int]:
        return self._by_step(value, None, "mark")

    def _live(self, value: dict[int, int], _record: Any) -> dict[int, int | None]:
        return {act: self._visitor.step(step, "count", None) for act, step in value.items()}

    def _joins(self, value: dict[int, Any], _record: Any) -> dict[int, Any]:
        """Return the joins with their contents.

        The ended rounds of a removed join may be dropped.
        """
        moved = {}
        for number, held in value.items():
            step = self._visitor.step(number, "join", held)
            if step is not None:
                moved[step] = self._record("JoinState", held)
                if "upstream" in held:
                    moved[step]["upstream"] = 0  # counted again
        return moved

    def _arrivals(self, value: list[list[Any]], _record: Any) -> list[list[Any]]:
        """Return the arrivals of an activation, except those from removed steps."""
        moved = [
            [source if source < 0 else self._visitor.step(source, "arrived", None), output]
            for source, output in value
        ]
        return [arrival for arrival in moved if arrival[0] is not None]

    def _then(self, value: list[Any] | None, record: Any) -> list[Any] | None:
        if value is None:
            return None
        kind = FOLLOWS[value[0]]
        if kind == "handler of a step":
            act = self._state["acts"][value[1]]
            self._visitor.handler(value[2], act["step"], 0)
        elif kind == "handler of a flow":
            scope = self._state["scopes"][value[3]]
            self._visitor.handler(value[1], -1, self._flow_of(scope.get("frame", 0)))
        return list(value)

    # Bodies and flows

    def _body(self, number: int, _record: Any) -> int:
        return self._visitor.body(number)

    def _flow(self, number: int, _record: Any) -> int:
        return self._visitor.flow(number)

    def _flow_of(self, frame: int) -> int:
        flow: int = self._state["frames"][frame]["flow"] if frame else 0
        return flow

    # State and signals

    def _vars(self, value: dict[str, Any], record: Any) -> dict[str, Any]:
        flow = record.get("flow", 0)
        cells = {key: list(cell) for key, cell in value.items()}
        return _renamed(cells, lambda key: self._visitor.state_key(flow, key))

    def _writes(self, value: dict[int, Any], record: Any) -> dict[int, Any]:
        frame = record.get("frame", self._state["scopes"][record["scope"]].get("frame", 0))
        flow = self._flow_of(frame)
        names = {
            item: [[self._visitor.state_key(flow, key), value] for key, value in pairs]
            for item, pairs in value.items()
        }
        return {
            item: [pair for pair in pairs if pair[0] is not None] for item, pairs in names.items()
        }

    def _saw(self, value: dict[str, Any], record: Any) -> dict[str, Any]:
        """Return the state values that an attempt has read, by key of its unit's flow."""
        act = self._state["acts"][record["act"]]
        frame = act.get("frame", self._state["scopes"][act["scope"]].get("frame", 0))
        named = {self._visitor.state_key(self._flow_of(frame), key): key for key in value}
        return {name: value[key] for name, key in named.items() if name is not None}

    def _knows(self, value: dict[str, Any], _record: Any) -> dict[str, Any]:
        """Return values by state key, with the frame as a prefix in subflows."""
        moved = {}
        for name, number in value.items():
            whose, _, key = name.rpartition("/")
            frame = int(whose or 0)
            if frame and frame not in self._state.get("frames", ()):
                continue  # no token can write there any more
            renamed = self._visitor.state_key(self._flow_of(frame), key)
            if renamed is not None:
                moved[state_name(frame, renamed)] = _copy(number)
        return moved

    def _signals(self, value: dict[str, Any], record: Any) -> dict[str, Any]:
        flow = record.get("flow", 0)
        return _renamed(_copy(value), lambda signal: self._visitor.signal(flow, signal))

    def _channels(self, value: dict[str, Any], _record: Any) -> dict[str, Any]:
        """Return the listeners by signal, and by key if they have one."""

        def renamed(channel: str) -> str | None:
            signal, separator, key = channel.partition(SEPARATOR)
            name = self._visitor.signal(0, signal)
            return None if name is None else f"{name}{separator}{key}"

        return _renamed(_copy(value), renamed)

    def _kept(self, value: dict[str, Any], _record: Any) -> dict[str, Any]:
        moved = {}
        for signal, messages in value.items():
            name = self._visitor.signal(0, signal)
            if name is not None:
                moved[name] = [{**message, "signal": name} for message in messages]
        return moved

    def _record_of_wait(self, value: dict[str, Any], _record: Any) -> dict[str, Any]:
        record = {**value, "step": self._visitor.step_name(value["step"])}
        if "signals" in value:
            record["signals"] = [
                {**signal, "signal": self._visitor.signal(0, signal["signal"]) or signal["signal"]}
                for signal in value["signals"]
            ]
        return record

    def _calls(self, value: dict[str, Any], record: Any) -> dict[str, Any]:
        """Return the calls of a round. Those that have not begun yet name their callees."""
        caller = self._state["acts"][record["act"]]["step"]
        callees = [self._visitor.callee(caller, call["callee"]) for call in value["made"]]
        made = [{**call, "callee": name} for call, name in zip(value["made"], callees, strict=True)]
        return {**self._record("Calls", value), "made": made}

    # Pasts

    def _layers(self, value: dict[int, list[Any]], _record: Any) -> dict[int, list[Any]]:
        return {
            number: [*layer[:RECORDS], self._by_step(layer[RECORDS], None, "past")]
            for number, layer in value.items()
        }


def _renamed(value: dict[str, Any], rename: Callable[[str], str | None]) -> dict[str, Any]:
    """Return a record under new names, without what has none in the new graph."""
    named = [(rename(name), part) for name, part in value.items()]
    return {name: part for name, part in named if name is not None}


def _copy(value: Any) -> Any:
    """Return a copy of the containers that the kernel changes in place."""
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list) else value

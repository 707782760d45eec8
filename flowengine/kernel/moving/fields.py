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
                 "opens", "cleanup", "frame", "address", "local", "cut"),
        "then": "then",
    },
    "Unit": {
        "finals": ("list", "Final"),
        "then": "then",
        "knows": "knows",
        "replaced_reads": "saw",
        **_plain("id", "act", "item", "phase", "round", "last", "outputs", "seen", "max", "attempt",
                 "tries", "args", "input", "secrets", "key", "timer", "wait", "asks", "scope",
                 "cleanup", "facts", "fallback", "lock", "across", "shares", "has_lock", "budget",
                 "needs", "granted", "runs", "responded", "shown",
                 "counted"),
    },
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
                 "units"),
    },
    "Undo": {
        "todo": ("list", "Done"),
        "current": ("one", "Done"),
        "then": "then",
        **_plain("scope", "cut", "cause", "failures"),
    },
    "Budget": _plain("limits", "used", "calls", "reserved", "amounts", "estimated", "spent",
                     "since", "timer", "waiting", "queue", "wait", "refused"),
    "Frame": {
        "flow": "flow",
        "vars": "vars",
        "keys": "signals",
        "budget": ("one", "Budget"),
        **_plain("up", "depth", "inputs", "room", "steps", "bounds"),
    },
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
        "keys": "signals",
        "layers": "layers",
        "listening": "channels",
        "kept": "kept",
        "reading": "knows",
        "watching": MADE,
        "budget": ("one", "Budget"),
        **_plain("format", "status", "now", "last", "inner", "events", "inputs", "execution",
                 "triggered", "steps", "skipped", "running", "cancelling", "claims", "bound",
                 "outputs", "error", "answers", "hold", "calls", "warned"),
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

"""The states of units, waits, scopes, joins and cut-off attempts, and all moves between them.

`moves.py` makes each move and rejects those that these tables do not list.
`docs/contributing/states.md` is generated from them. The state of a wait is in `shown`, all others
are in `phase`.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

S = TypeVar("S", bound=str)
GONE = "gone"
"""The target of a move that removes the record."""


class States(Generic[S]):
    """The states of one kind of record."""

    def __init__(
        self,
        of: str,
        about: str,
        meaning: dict[S, str],
        first: S,
        moves: dict[S, dict[S | Literal["gone"], str]],
    ) -> None:
        self.of = of
        self.about = about
        self.meaning = meaning
        self.first: S = first
        self.moves = moves
        """State → the states that it can move to, each with its condition."""


Phase = Literal["ready", "asked", "lock", "budget", "run", "pause", "wait", "scope", "ask", "held"]

UNITS: States[Phase] = States(
    "A unit",
    "It performs the action of a step. Each activation has one, under `map` one per item that "
    "has begun. It ends from `ready` only. Withdrawing one (its group is cancelled, a deadline, "
    "a branch that lost) first closes what is open in it, which makes it `ready`.",
    {
        "ready": "none of the others: it is about to begin, between two attempts, or about to end. "
        "a `finally` inside it may have to run before it continues",
        "asked": "an approver is asked before its attempt begins",
        "lock": "it is queued for a lock",
        "budget": "too little of a budget is left: an approver is asked whether to raise it, or "
        "calls that run have reserved the rest",
        "run": "its attempt runs",
        "pause": "it waits before its next attempt or round",
        "wait": "a wait is open: for an approval, an answer, a signal, a time, a condition, or a "
        "worker that meets the needs of the step",
        "scope": "a scope is at work inside it: a group, a subflow or the calls of a round",
        "ask": "its attempt's outcome is unknown, or its environment is lost: an operator decides",
        "held": "it failed, and is to begin again: within a `retry` or a fork",
    },
    "ready",
    {
        "ready": {
            "asked": "its call, or an environment, needs an approval",
            "lock": "others have the lock",
            "budget": "too little is left of a budget",
            "run": "the attempt of a task begins",
            "pause": "another attempt or round follows",
            "wait": "a wait, approval or question begins",
            "scope": "a group, a subflow or the calls of a round begin",
            "ask": "only a person can decide how it continues",
            "held": "it fails, and that is held back",
            "gone": "it has ended, or is withdrawn",
        },
        "asked": {
            "ready": "answered, or withdrawn",
        },
        "lock": {
            "ready": "it has the lock, or is withdrawn",
        },
        "budget": {
            "ready": "answered, or withdrawn",
        },
        "run": {
            "ready": "the attempt has ended, or is stopped",
            "ask": "its process died, and it is unknown whether it took effect",
        },
        "pause": {
            "ready": "the time is over, or it is withdrawn",
        },
        "wait": {
            "ready": "the wait is closed",
        },
        "scope": {
            "ready": "the scope is gone",
        },
        "ask": {
            "ready": "an operator has decided, its outcome came late, it turned out that it never "
            "began, or it is withdrawn",
        },
        "held": {
            "ready": "it begins again, or is withdrawn",
            "run": "its result came after the failure and counts: it is applied next",
        },
    },
)

WaitState = Literal["new", "open"]

WAITS: States[WaitState] = States(
    "A wait",
    "It is for a decision, an answer, a signal, a time, or a condition on state. The event that "
    "closes it also clears its timers and stops it listening. Whatever comes later finds nothing "
    "and changes nothing: a second decision, a signal, an expiry. Example: a group with an open "
    "approval is cancelled. That event closes the approval as `withdrawn` and clears its timers. "
    "Of an expiry and a cancel at the same moment, the first in the journal counts. For their "
    "order see [Ties](../architecture.md#ties). An approval in the `finally` of that group no "
    "longer belongs to the group: it is open, and expires as any other.",
    {
        "new": "it is being set up, and not visible outside yet, by the event that opens it",
        "open": "it is in the lists, and can be answered",
    },
    "new",
    {
        "new": {
            "open": "its event has not come yet",
            "gone": "its event has already come, or it cannot be set up",
        },
        "open": {
            "gone": (
                "`decided`, `occurred`, `expired`, also by the `timeout` of its step, or "
                "`withdrawn`: the scope around it is closed"
            ),
        },
    },
)

ScopeState = Literal["open", "queued", "held", "over", "finally"]

SCOPES: States[ScopeState] = States(
    "A scope",
    "It is a body at work: the main flow, a subflow or a group. A group goes from `open` to its "
    "end. A flow is `over` first: its outputs, handlers and compensations are still to come. "
    "Withdrawing a scope closes what is inside it first, from the inside outwards, and evaluates "
    "no expression. All of that is one event. Its `finally` outlives it and runs as hidden steps "
    "of the main flow. Whatever continues in its place waits for that. If nothing does, the scope "
    "around it is *cleaning*, beside its state, and does not end before that is done.",
    {
        "open": "its tokens are at work, or it is about to end",
        "queued": "its first tokens have not begun: it waits for its turn among the executions of "
        "its flow, or for the environments that have to be open from its start",
        "held": "it failed, and is to begin again: within a `retry` or a fork",
        "over": "the tokens of a flow have ended: outputs, handlers, compensation",
        "finally": "the main flow has ended, and cleans up: its `finally` runs",
    },
    "open",
    {
        "open": {
            "queued": "it has to wait before it begins",
            "held": "it fails, and that is held back",
            "over": "the tokens of a flow have ended, or an error or a cancelling has ended them",
            "gone": "a group has ended, or it is withdrawn",
        },
        "queued": {
            "open": "it is its turn, and its environments are open",
            "held": "it fails, and that is held back",
            "over": "it is cancelled, or an environment cannot be had",
            "gone": "it is withdrawn",
        },
        "held": {
            "open": "it begins again",
            "queued": "it begins again, and still has to wait",
            "over": "it ends by something else",
            "gone": "it is withdrawn",
        },
        "over": {
            "open": "a handler of the flow leads back into it, once",
            "held": "its outputs have no value, and that is held back",
            "finally": "the main flow ends, and has a `finally`",
            "gone": "it has ended, or is withdrawn",
        },
        "finally": {
            "gone": "that has ended, or is cut short",
        },
    },
)

RoundState = Literal["waiting", "open", "unknown", "fired"]

JOINS: States[RoundState] = States(
    "A join",
    "It decides when tokens that meet become one. Joins `all` and `active` only hold tokens, until "
    "they activate their step. One that counts (`need`) goes through rounds, which have nothing to "
    "do with those of a loop: a round begins with its first token, fires with the one that makes "
    "enough, and lasts until no other can come. A join that holds nothing has no record, and those "
    "of a scope go with it.",
    {
        "waiting": "no round is open. It may hold tokens",
        "open": "a round counts its tokens",
        "unknown": "as `open`, but `need` had no value: within a `retry` or a fork",
        "fired": "the step was activated. `late` decides about tokens that arrive later",
    },
    "waiting",
    {
        "waiting": {
            "open": "the first token of a round comes",
            "unknown": "it comes, and `need` has no value",
        },
        "open": {
            "fired": "as many have come as it needs",
            "waiting": "no more can come, and they are too few, or they are withdrawn",
        },
        "unknown": {
            "open": "`need` has a value now",
            "waiting": "its tokens are withdrawn",
        },
        "fired": {
            "waiting": "every source has sent one, or no other can come, or its scope ends",
        },
    },
)

CutPhase = Literal["open", "run", "ask", "settled"]

CUTS: States[CutPhase] = States(
    "A cut-off attempt",
    "It was stopped while it ran, or its process died, and its step declares how it is undone: "
    "whether it took effect is open. Before the scope around it compensates, that is settled, one "
    "attempt after the other. If its unit tries again, the later attempt counts, and the record "
    "is removed.",
    {
        "open": "it is not known whether it took effect",
        "run": "it runs again, with the same input and key, to find out",
        "ask": "an operator is asked whether it took effect",
        "settled": "it is known, or it stays unknown. If it took effect, it is undone",
    },
    "open",
    {
        "open": {
            "run": "it may be repeated",
            "ask": "its step declares `on_crash: ask`",
            "settled": "its result came late, it never began, or it stays unknown, as its step "
            "declares",
            "gone": "a later attempt of its unit counts, or nothing compensates any more",
        },
        "run": {
            "settled": "it has ended",
            "ask": "its environment ended",
            "open": "its process died, or the compensation is withdrawn",
        },
        "ask": {
            "run": "the answer is to run it again",
            "settled": "the answer is its result, or that it failed, or one of these came late",
            "open": "the compensation is withdrawn",
        },
        "settled": {
            "gone": "its step is noted as done, or not",
        },
    },
)

Owner = Literal["step", "permission", "budget", "attempt", "cut"]
"""The owner of a wait, which continues when the wait ends.

`decisions` has the effects of a decision for each owner.

| owner         | fields of the wait                                                      |
|---------------|-------------------------------------------------------------------------|
| `step`        | `unit`: the waiting unit                                                |
| `permission`  | `units`: those that wait before their attempts begin. `asks`: the topic |
| `budget`      | `budget`: its frame, or 0. The budget lists the waiting units           |
| `attempt`     | `unit`: its attempt has an unknown outcome, or lost its environment     |
| `cut`         | `cut`: the attempt to settle before a scope compensates                 |

A wait that is withdrawn, for example with a cancelled group, is closed together with its timers. A
later decision or expiry has no effect.
"""

ALL: tuple[States[Any], ...] = (UNITS, WAITS, SCOPES, JOINS, CUTS)


Why = Literal["timeout", "deadline", "pause", "duration", "wall_time", "idle", "wait", "expire",
              "remind", "escalate"]  # fmt: skip
TIMERS: dict[Why, tuple[str, str]] = {
    "timeout": ("unit", "its attempt fails with `Timeout`. A wait ends with the outcome `timeout`"),
    "deadline": ("activation", "it fails with `Deadline`, regardless of its units"),
    "pause": ("unit", "its next attempt or round begins"),
    "duration": ("scope", "its flow fails with `LimitExceeded`"),
    "wall_time": ("budget", "its calls are stopped, or an approver is asked to raise it"),
    "idle": ("scope", "the main flow, which only waited for triggers, ends"),
    "wait": ("wait", "the alternative of the wait that has this time occurs"),
    "expire": (
        "wait",
        "no decision was made in time: the effect depends on [whose the wait is](#whose-a-wait-is)",
    ),
    "remind": ("wait", "the assignees are reminded, and the next reminder is set"),
    "escalate": ("wait", "further approvers are asked, or others instead"),
}
"""Reason for a timer → the record that it belongs to, and its effect. The code that ends the record
clears the timer in the same event, so the owner of a timer that fires is always open."""

"""The states of units, waits, scopes and joins, and every move between them.

`moves.py` makes each move, and refuses what these tables lack; `docs/states.md` is made from them.
A unit says its state in `phase`; those of the others follow from several fields, see there.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

S = TypeVar("S", bound=str)
GONE = "gone"
"""What a move leads to after which there is no record any more."""


class States(Generic[S]):
    """The states that one kind of thing can be in."""

    def __init__(
        self,
        of: str,
        about: str,
        made: str,
        meaning: dict[S, str],
        first: S,
        moves: dict[S, dict[S | Literal["gone"], tuple[str, str]]],
    ) -> None:
        self.of = of
        self.about = about
        self.made = made
        """By which modules, below `kernel/`: one of them, or of those that have it do so."""
        self.meaning = meaning
        self.first: S = first
        self.moves = moves
        """State → the states that it can move to, with the reason and the modules, as in `made`.
        A test holds the modules against who makes these moves."""


Phase = Literal["ready", "asked", "lock", "budget", "run", "pause", "wait", "scope", "ask", "held"]

UNITS: States[Phase] = States(
    "A unit",
    "It performs the action of a step: there is one per activation, under `map` one per item that "
    "has begun. It ends from `ready` only. Withdrawing one (its group is cancelled, a deadline, "
    "a branch that lost) first closes what is open in it, which makes it `ready`.",
    "tokens/units.py, also for steps/passing.py, which takes a token straight on",
    {
        "ready": "none of the others: it is about to begin, between two attempts, or about to end; "
        "a `finally` inside it may have to run before it continues",
        "asked": "people are asked before its attempt begins",
        "lock": "it is queued for a lock",
        "budget": "too little of a budget is left: somebody is asked whether to raise it, or "
        "calls that run have reserved the rest",
        "run": "its attempt runs",
        "pause": "it waits before its next attempt or round",
        "wait": "a wait is open: for an approval, an answer, a signal, a time, or a condition",
        "scope": "a scope is at work inside it: a group or a subflow",
        "ask": "a crash left its attempt uncertain, or its environment is gone: somebody decides",
        "held": "it failed, and is to begin again: within a `retry` or a fork",
    },
    "ready",
    {
        "ready": {
            "asked": ("its call, or an environment, needs a yes", "waiting/permissions.py"),
            "lock": ("others have the lock", "limits/suspension.py for limits/locks.py"),
            "budget": (
                "too little is left of a budget",
                "limits/suspension.py for waiting/budget_questions.py",
            ),
            "run": (
                "the attempt of a task begins",
                "steps/attempts.py, also for recovery/interrupted.py; "
                "straight on: steps/passing.py, steps/rounds_and_items.py",
            ),
            "pause": ("another attempt or round follows", "steps/retries.py, steps/loops.py"),
            "wait": (
                "a wait, approval or question begins",
                "waiting/waits.py, also for waiting/approvals.py",
            ),
            "scope": (
                "a group or subflow begins",
                "steps/scopes.py for steps/attempts.py (a group) and steps/subflows.py",
            ),
            "ask": (
                "only a person can say how it continues",
                "waiting/waits.py for waiting/attempt_questions.py",
            ),
            "held": (
                "it fails, and that is held back",
                "held_failures.py for steps/unit_outcomes.py, tokens/units.py and steps/loops.py",
            ),
            "gone": (
                "it has ended, or is withdrawn",
                "steps/unit_outcomes.py; withdrawn: ending/closing.py; straight on: "
                "steps/passing.py",
            ),
        },
        "asked": {
            "ready": (
                "answered, or withdrawn",
                "waiting/permissions.py; withdrawn: ending/closing.py",
            ),
        },
        "lock": {
            "ready": (
                "it has the lock, or is withdrawn",
                "limits/suspension.py for limits/locks.py; withdrawn: ending/closing.py",
            ),
        },
        "budget": {
            "ready": (
                "answered, or withdrawn",
                "limits/suspension.py for waiting/budget_questions.py; withdrawn: "
                "ending/closing.py",
            ),
        },
        "run": {
            "ready": (
                "the attempt has ended, or is stopped",
                "steps/attempt_outcomes.py, steps/rounds_and_items.py, advance.py, "
                "recovery/interrupted.py, recovery/retrying.py, "
                "steps/attempts.py; stopped: ending/closing.py",
            ),
            "ask": (
                "its process died, and nobody knows whether it acted",
                "waiting/waits.py for waiting/attempt_questions.py",
            ),
        },
        "pause": {
            "ready": (
                "the time is over, or it is withdrawn",
                "timers.py; withdrawn: ending/closing.py",
            ),
        },
        "wait": {
            "ready": (
                "the wait is closed",
                "steps/attempt_outcomes.py; withdrawn: ending/closing.py",
            ),
        },
        "scope": {
            "ready": (
                "the scope is gone",
                "ending/closing.py, for steps/scopes.py and flows.py too",
            ),
        },
        "ask": {
            "ready": (
                "somebody has decided, or it is withdrawn",
                "recovery/interrupted.py; withdrawn: ending/closing.py",
            ),
        },
        "held": {
            "ready": (
                "it begins again, or is withdrawn",
                "recovery/retrying.py, ending/closing.py",
            ),
            "run": (
                "its result came after the failure and counts: it is applied next",
                "recovery/retrying.py",
            ),
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
    "Of an expiry and a cancel at the same moment, the first in the journal counts; for their "
    "order see [Ties](architecture.md#ties). An approval in the `finally` of that group no longer "
    "belongs to the group: it is open, and expires as any other.",
    "waiting/waits.py for whoever has a question or waits: waiting/approvals.py, "
    "waiting/shared_questions.py, waiting/budget_questions.py, waiting/attempt_questions.py",
    {
        "new": "nobody outside knows it yet: it is being set up, by the event that opens it",
        "open": "it is in the lists, and can be answered",
    },
    "new",
    {
        "new": {
            "open": (
                "what it waits for has not come yet",
                "waiting/waits.py, for waiting/approvals.py, waiting/attempt_questions.py and "
                "waiting/budget_questions.py too",
            ),
            "gone": (
                "what it waits for is there already, or it cannot be set up",
                "waiting/waits.py, for waiting/call_questions.py and "
                "waiting/environment_questions.py too",
            ),
        },
        "open": {
            "gone": (
                "`decided`; `occurred`; `expired`, also by the `timeout` of its step; or "
                "`withdrawn`: what is around it is closed",
                "waiting/waits.py, for waiting/permissions.py, waiting/shared_questions.py, "
                "waiting/budget_questions.py, recovery/interrupted.py, ending/cut_attempts.py "
                "and ending/closing.py too",
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
    "no expression; all of that is one event. Its `finally` outlives it and runs as hidden steps "
    "of the main flow. Whatever continues in its place waits for that. If nothing does, the scope "
    "around it is *cleaning*, beside its state, and does not end before that is done.\n\n"
    "The state is not stored: `scope_state` in `moves.py` derives it from the scope's fields. Each "
    "function there compares the states before and after, and refuses a move that is not in the "
    "table.",
    "steps/scopes.py for flows.py (the main flow), steps/attempts.py (a group) and "
    "steps/subflows.py",
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
            "queued": ("it has to wait before it begins", "steps/scopes.py, for flows.py too"),
            "held": (
                "it fails, and that is held back",
                "held_failures.py for agenda.py, timers.py and steps/scopes.py",
            ),
            "over": (
                "the tokens of a flow have ended, or an error or a cancelling has ended them",
                "steps/scopes.py, flows.py, steps/cancelling.py",
            ),
            "gone": (
                "a group has ended, or it is withdrawn",
                "ending/closing.py, for steps/scopes.py and flows.py too",
            ),
        },
        "queued": {
            "open": ("it is its turn, and its environments are open", "steps/scopes.py, flows.py"),
            "held": ("it fails, and that is held back", "held_failures.py for timers.py"),
            "over": (
                "it is cancelled, or an environment cannot be had",
                "flows.py, steps/cancelling.py",
            ),
            "gone": ("it is withdrawn", "ending/closing.py"),
        },
        "held": {
            "open": ("it begins again", "recovery/retrying.py"),
            "queued": ("it begins again, and still has to wait", "recovery/retrying.py"),
            "over": ("it ends by something else", "flows.py, steps/cancelling.py"),
            "gone": ("it is withdrawn", "ending/closing.py"),
        },
        "over": {
            "open": ("a handler of the flow leads back into it, once", "flows.py"),
            "held": (
                "its outputs have no value, and that is held back",
                "held_failures.py for steps/scopes.py",
            ),
            "finally": ("the main flow ends, and has a `finally`", "flows.py"),
            "gone": ("it has ended, or is withdrawn", "ending/closing.py for flows.py"),
        },
        "finally": {
            "gone": ("that has ended, or is cut short", "ending/closing.py for flows.py"),
        },
    },
)

RoundState = Literal["waiting", "open", "unknown", "fired"]
UNKNOWN = 0
"""In place of `need` where it had no value and that failure is held back."""

JOINS: States[RoundState] = States(
    "A join",
    "It decides when tokens that meet become one. Joins `all` and `active` only hold tokens, until "
    "they activate their step. One that counts (`need`) goes through rounds, which have nothing to "
    "do with those of a loop: a round begins with its first token, fires with the one that makes "
    "enough, and lasts until no other can come. A join that holds nothing has no record, and those "
    "of a scope go with it.",
    "tokens/joins.py, with the first token that comes",
    {
        "waiting": "no round is open; it may hold tokens",
        "open": "a round counts its tokens",
        "unknown": "as `open`, but `need` had no value: within a `retry` or a fork",
        "fired": "the step was activated; `late` says what happens to tokens that still arrive",
    },
    "waiting",
    {
        "waiting": {
            "open": ("the first token of a round comes", "tokens/joins.py"),
            "unknown": ("it comes, and `need` has no value", "tokens/joins.py"),
        },
        "open": {
            "fired": ("as many have come as it needs", "tokens/joins.py"),
            "waiting": (
                "no more can come, and they are too few; or they are withdrawn",
                "tokens/joins.py; withdrawn: ending/closing.py",
            ),
        },
        "unknown": {
            "open": ("`need` has a value now", "tokens/joins.py"),
            "waiting": (
                "its tokens are withdrawn",
                "tokens/joins.py; withdrawn: ending/closing.py",
            ),
        },
        "fired": {
            "waiting": (
                "every source has sent one, or no other can come; or its scope ends",
                "tokens/joins.py; withdrawn: ending/closing.py",
            ),
        },
    },
)

ALL: tuple[States[Any], ...] = (UNITS, WAITS, SCOPES, JOINS)


Why = Literal["timeout", "deadline", "pause", "duration", "wall_time", "idle", "wait", "expire",
              "remind", "escalate"]  # fmt: skip
TIMERS: dict[Why, tuple[str, str]] = {
    "timeout": ("unit", "its attempt fails with `Timeout`; a wait ends with the outcome `timeout`"),
    "deadline": ("activation", "it fails with `Deadline`, whatever its units do"),
    "pause": ("unit", "its next attempt or round begins"),
    "duration": ("scope", "its flow fails with `LimitExceeded`"),
    "wall_time": ("budget", "its calls are stopped, or somebody is asked to raise it"),
    "idle": ("scope", "the main flow, which only waited for triggers, ends"),
    "wait": ("wait", "the alternative of the wait that has this time occurs"),
    "expire": (
        "wait",
        "nobody decided in time: what follows depends on [whose the wait is](#whose-a-wait-is)",
    ),
    "remind": ("wait", "the assignees are reminded, and the next reminder is set"),
    "escalate": ("wait", "further people are asked, or others instead"),
}
"""Why a timer is set → what it is of, and what happens when it fires. Whoever ends what it is of
clears it in the same event, so a timer that fires always has an owner that is open."""

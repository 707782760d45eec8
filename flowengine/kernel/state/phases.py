"""The states of units, waits, scopes and joins, and every move between them.

`moves.py` makes each move, and refuses what these tables lack; `docs/states.md` is made from them.
A unit says its state in `phase`; those of the others follow from several fields, see there.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NamedTuple, TypeVar

S = TypeVar("S", bound=str)
GONE = "gone"
"""What a move leads to after which there is no record any more."""


class States(NamedTuple, Generic[S]):
    """The states that one kind of thing can be in."""

    of: str
    about: str
    modules: tuple[str, ...]
    """What brings the moves about, below `kernel/`."""
    meaning: dict[S, str]
    first: S
    moves: dict[S, dict[S | Literal["gone"], str]]
    """State → the states that it can move to, and what makes it."""


Phase = Literal["ready", "asked", "lock", "budget", "run", "pause", "wait", "scope", "ask", "held"]

UNITS: States[Phase] = States(
    "A unit",
    "It performs the action of a step: there is one per activation, under `map` one per item. Only "
    "a unit that is `ready` ends. So whoever withdraws one - a group that is cancelled, a timeout, "
    "a branch that lost - first closes what is open in it.",
    ("steps/attempts.py", "steps/attempt_outcomes.py", "ending/closing.py"),
    {
        "ready": "none of the others: it is about to begin, between two attempts, or about to end; "
        "a `finally` inside it may have to run before it goes on",
        "asked": "people are asked before its attempt begins",
        "lock": "it is queued for a lock",
        "budget": "a budget is used up, and somebody is asked whether to raise it",
        "run": "its attempt runs",
        "pause": "it waits before its next attempt or round",
        "wait": "a wait is open: an approval, a question to a person, a signal, a time",
        "scope": "a scope is at work inside it: a group or a subflow",
        "ask": "a crash left its attempt uncertain, or its environment is gone: somebody decides",
        "held": "it failed, and is to begin anew: within a `retry` or a fork",
    },
    "ready",
    {
        "ready": {
            "asked": "an environment needs a yes",
            "lock": "others have the lock",
            "budget": "nothing is left of a budget",
            "run": "the attempt of a task begins",
            "pause": "another attempt or round follows",
            "wait": "a wait, approval or question begins",
            "scope": "a group or subflow begins",
            "ask": "only a person can say how it goes on",
            "held": "it fails, and that is held back",
            "gone": "it has ended, or is withdrawn",
        },
        "asked": {"ready": "answered, or withdrawn"},
        "lock": {"ready": "it has the lock, or is withdrawn"},
        "budget": {"ready": "answered, or withdrawn"},
        "run": {
            "ready": "the attempt has ended, or is stopped",
            "ask": "its process died, and nobody knows whether it acted",
        },
        "pause": {"ready": "the time is over, or it is withdrawn"},
        "wait": {"ready": "the wait is closed"},
        "scope": {"ready": "the scope is gone"},
        "ask": {"ready": "somebody has decided, or it is withdrawn"},
        "held": {
            "ready": "it begins anew, or is withdrawn",
            "run": "its result came after the failure, and counts",
        },
    },
)

WaitState = Literal["new", "open"]

WAITS: States[WaitState] = States(
    "A wait",
    "It is for a decision, an answer, a signal, a time, or a condition on state. The event that "
    "closes it also clears its timers and stops it listening. So whatever comes later finds "
    "nothing and changes nothing: a second decision, a signal, an expiry. While a group is being "
    "cancelled, the expiry of an approval in it does nothing: one event cancels the group, closes "
    "the approval as `withdrawn`, and clears its timers.",
    ("waiting/waits.py", "waiting/approvals.py", "timers.py"),
    {
        "new": "nobody outside knows it yet: it is being set up, by the event that opens it",
        "open": "it is in the lists, and can be answered",
    },
    "new",
    {
        "new": {
            "open": "what it waits for has not come yet",
            "gone": "what it waits for is there already, or it cannot be set up",
        },
        "open": {
            "gone": "`decided`, `occurred`, `expired`; or `withdrawn`: what is around it is closed"
        },
    },
)

ScopeState = Literal["open", "queued", "held", "over", "finally"]

SCOPES: States[ScopeState] = States(
    "A scope",
    "It is a body at work: the main flow, a subflow or a group. A group goes from `open` to its "
    "end. A flow is `over` first, since its outputs, handlers and compensations are still to come. "
    "A scope that is withdrawn closes what is inside it first, from the inside outwards, and "
    "evaluates nothing; all of that is one event. Beside its state a scope may be *cleaning*: some "
    "`finally` inside it runs, and it does not end before that is done.",
    ("steps/scopes.py", "flows.py", "steps/cancelling.py", "ending/closing.py"),
    {
        "open": "its tokens are at work, or it is about to end",
        "queued": "its first tokens wait: for its turn among the executions of its flow, or until "
        "the environments that it needs are open",
        "held": "it failed, and is to begin anew: within a `retry` or a fork",
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
            "open": "it begins anew",
            "queued": "it begins anew, and still has to wait",
            "over": "it ends by something else",
            "gone": "it is withdrawn",
        },
        "over": {
            "open": "a handler of the flow leads back into it, once",
            "held": "its outputs have no value, and that is held back",
            "finally": "the main flow ends, and has a `finally`",
            "gone": "it has ended, or is withdrawn",
        },
        "finally": {"gone": "that has ended, or is cut short"},
    },
)

RoundState = Literal["waiting", "open", "unknown", "fired"]
UNKNOWN = 0
"""In place of `need` where it had no value and that failure is held back."""

JOINS: States[RoundState] = States(
    "A join",
    "It decides when tokens that meet become one. Joins `all` and `active` only hold tokens, until "
    "they activate their step. One that counts (`need`) goes through rounds: a round begins with "
    "its first token, fires with the one that makes enough, and lasts until no other can come. A "
    "join that holds nothing has no record, and those of a scope go with it. A further kind of "
    "join is a further way to arrive in `tokens/joins.py`.",
    ("tokens/joins.py",),
    {
        "waiting": "no round is open; it may hold tokens",
        "open": "a round counts its tokens",
        "unknown": "as `open`, but `need` had no value: within a `retry` or a fork",
        "fired": "the step was activated; `late` says what becomes of tokens that still come",
    },
    "waiting",
    {
        "waiting": {
            "open": "the first token of a round comes",
            "unknown": "it comes, and `need` has no value",
        },
        "open": {
            "fired": "as many have come as it needs",
            "waiting": "no more can come, and they are too few; or they are withdrawn",
        },
        "unknown": {
            "open": "`need` has a value now",
            "waiting": "its tokens are withdrawn",
        },
        "fired": {"waiting": "each source has sent one, or none can come any more"},
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
    "wait": ("wait", "the alternative that it stands for occurs"),
    "expire": ("wait", "the approval closes as `expired`, and its step goes on with `on_expire`"),
    "remind": ("wait", "the assignees are reminded, and the next reminder is set"),
    "escalate": ("wait", "further people are asked, or others instead"),
}
"""Why a timer is set → what it is of, and what happens when it fires. Whoever ends what it is of
clears it in the same event, so a timer that fires always has an owner that is open."""

"""Answers of users to an engine: decisions, claims and delegations, as passed to its methods."""

from __future__ import annotations

from contextlib import suppress

from flowengine.engines.actors import Actor
from flowengine.engines.host import Host
from flowengine.engines.infos import Answering, DecisionGiven, WaitInfo
from flowengine.engines.people.approval_ownership import hand
from flowengine.engines.people.approvals import check_decidable, decide
from flowengine.engines.people.waits import stored_wait_view, wait_of
from flowengine.engines.results import Decision, ExecutionResult
from flowengine.engines.running.answers import answer_open
from flowengine.engines.running.driving import Driving
from flowengine.errors import Conflict, FlowEngineError, InputError, NotAllowed, UsageError
from flowengine.journal.encoding import pack
from flowengine.kernel.notation.grants import FLOW
from flowengine.kernel.view import only_choice

LONGEST = 500
"""Maximum length of the journal's note on a refused decision."""


def record_decision(
    host: Host, wait: str, choice: str, answer: Answering, who: Actor
) -> tuple[Decision, bool]:
    """Record a decision.

    Args:
        host: Provides the store.
        wait: Id of the wait, or an unambiguous prefix of it.
        choice: Id of the choice.
        answer: Further parts of the answer.
        who: The actor who decides.

    Returns:
        The decision that counts, and whether its execution is to be resumed.
    """
    store = host.store
    id = store.find_wait(wait)
    try:
        given: DecisionGiven = {**answer, "choice": choice}
        decision = decide(store, host.settings, id, given, who, host.clock.now())
    except (Conflict, InputError, NotAllowed) as error:
        error.wait = id
        _note_refused(host, id, who, error)
        raise
    if decision.first and (answer.get("grant") or {}).get("scope") == FLOW:
        stands = store.wait(id)
        for other in answer_open(host, stands.flow, stands.record["tool"]):
            if other != decision.execution:
                host.woken[other] = True
    return decision, answer.get("resume", True)


def _note_refused(host: Host, wait: str, who: Actor, error: FlowEngineError) -> None:
    """Record in the journal of an execution, for audits, that a decision was refused."""
    at, by = host.clock.now(), who.fields()["by"]
    # Typed input may contain anything, including a secret, so only the field is recorded.
    why = f"'{error.field}' is not valid" if isinstance(error, InputError) else error.message
    message = f"{by} tried to decide on {wait}: {why}"[:LONGEST]
    event = {"type": "warning", "at": at, "about": "decision", "message": message}
    execution = host.store.wait(wait).execution
    with suppress(Conflict):  # it has ended, and accepts no more messages
        host.store.send(execution, pack(event), at, host.ids.message())


def choice_of(host: Host, wait: str, counts_as: str) -> str:
    """Return the only choice of a wait that counts as approval or rejection.

    Raises:
        InputError: The wait has no such choice, or several.
        Conflict: A wait of this kind is not decided on.
    """
    view = wait_of(host, wait)
    check_decidable(wait, view["kind"])
    choices = view.get("choices", [])
    if (choice := only_choice(view, counts_as)) is not None:
        return str(choice["id"])
    known = ", ".join(choice["id"] for choice in choices) or "none"
    is_counted = any(choice.get("counts_as") == counts_as for choice in choices)
    how_many = "several choices count" if is_counted else "no choice counts"
    raise InputError(
        f"{wait}: {how_many} as '{counts_as}'",
        field="choice",
        hint=f"decide with one of: {known}",
    )


def answer_questions(host: Host, result: ExecutionResult, choice: str, who: Actor) -> bool:
    """Answer all open questions about attempts with an unknown outcome.

    Args:
        host: Provides the store.
        result: The state of the execution.
        choice: `retry` or `fail`.
        who: The actor who answers.

    Returns:
        Whether there were any.

    Raises:
        UsageError: The choice answers no question.
    """
    if choice not in ("retry", "fail"):
        raise UsageError(f"on_crash is {choice!r}", hint="it is retry or fail")
    questions = [wait for wait in result.waits if wait.get("ran") == "maybe"]
    for wait in questions:
        record_decision(host, wait["id"], choice, {}, who)
    return bool(questions)


def hand_over(
    host: Host, driving: Driving, wait: str, what: str, who: Actor, **more: str | None
) -> WaitInfo:
    """Record that an approval changes hands, and journal it unless another process does.

    Args:
        host: Provides the store.
        driving: Drives the engine's executions.
        wait: Id of the wait, or an unambiguous prefix of it.
        what: `claimed`, `released` or `delegated`.
        who: The actor.
        **more: Further fields of the event.

    Returns:
        The wait afterwards.
    """
    event = {"type": what, "at": host.clock.now(), **who.fields(), **more}
    id = host.store.find_wait(wait)
    try:
        after = hand(host.store, host.settings, id, event)
    except FlowEngineError as error:
        error.wait = id
        raise
    driving.take_hands(after.execution)
    return stored_wait_view(after)

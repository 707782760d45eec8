"""Answers of users to an engine: decisions, claims and delegations, as passed to its methods."""

from __future__ import annotations

from contextlib import suppress

from flowengine.engines.actors import Actor
from flowengine.engines.host import Host
from flowengine.engines.people.approval_ownership import hand
from flowengine.engines.people.approvals import decide
from flowengine.engines.people.waits import stored_wait_view
from flowengine.engines.results import Answering, Decision, DecisionGiven, WaitInfo
from flowengine.engines.running.answers import answer_open
from flowengine.engines.running.driving import Driving
from flowengine.errors import Conflict, FlowEngineError, InputError, NotAllowed
from flowengine.journal.encoding import pack
from flowengine.kernel.notation.grants import FLOW

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

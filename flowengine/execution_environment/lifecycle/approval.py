"""Approval of opening an environment, requested once per spec for all its users."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowengine.errors import Conflict
from flowengine.execution_environment.errors import ApprovalPending
from flowengine.policy_approval import PolicyAnswer, Question, ask, configured, read_answer
from flowengine.sdk.errors import Refused, Rejected

if TYPE_CHECKING:
    from flowengine.execution_environment.bookkeeping.books import Books
    from flowengine.execution_environment.bookkeeping.instances import Instance, Record
    from flowengine.execution_environment.specs.spec import DeclaredSpec


def question_of(declared: DeclaredSpec) -> Question:
    """Return the question about a spec, which is the same in every process."""
    spec = declared.spec
    return Question(
        f"ask_{declared.id}",
        spec.kind,
        spec.scope,
        spec.owner_id,
        declared.resource_key,
        ",".join(declared.providers),
        dict(spec.policy),
        declared.asking.reason,
    )


async def approve(instance: Instance, books: Books) -> None:
    """Request approval if it is required and not decided yet.

    Args:
        instance: The opening.
        books: Store the answer.

    Raises:
        Rejected: The answer is a rejection.
        Refused: A policy denies it.
        ApprovalPending: The answer is postponed.
    """
    record = instance.record
    declared = record.declared
    if not declared.needs_approval:
        return
    if record.answer is None:
        books.move(instance, "pending_approval")
        question = question_of(declared)
        answer = await ask(question, declared.asking.handler)
        if answer.pending:
            raise ApprovalPending(f"{declared}: {answer.reason}", question.id)
        if not answer.lasts:
            _check(answer, declared)
        with books.lock:
            if record.answer is None:  # `manager.answer` may have come first
                record.answer = answer
    _check(record.answer, declared)


async def consult(
    record: Record, books: Books, question: str, reason: str | None, required: bool
) -> tuple[str, PolicyAnswer] | None:
    """Return an immediate decision about opening a spec, if available, without opening it.

    Args:
        record: The spec.
        books: Publish the event about the question.
        question: Id with which the question can be answered later.
        reason: Why it is needed.
        required: Whether a handler can only reject. Its approval is then ignored.

    Returns:
        The source of the answer, and the answer, if there is one.
    """
    books.tell("approval_required", record)
    if record.answer is not None and record.answer.approved:
        return record.answer.reason, record.answer._replace(reason="")
    handler = configured()
    if handler is None:
        return None
    asked = question_of(record.declared)._replace(id=question, reason=reason)
    answer = await ask(asked, handler)
    if not answer.lasts and not answer.pending:
        logging.getLogger("flowengine.environments").warning(
            "%s: %s; people are still asked", record.declared, answer.reason
        )
    if not answer.lasts or (required and answer.approved):
        return None
    return f"handler:{handler}", answer


def take_answer(record: Record, given: Mapping[str, Any], books: Books) -> None:
    """Record a postponed answer. The first one counts.

    Args:
        record: The spec in question.
        given: The answer, in the form returned by a handler.
        books: Store the answer.

    Raises:
        Conflict: It has already been answered differently.
        Rejected: It is invalid, and not stored.
    """
    answer = read_answer(given, "the answer", dict(record.declared.spec.policy))
    if not answer.lasts:
        raise Rejected(f"{record.declared}: {answer.reason}")
    with books.lock:
        if record.answer is not None and record.answer != answer:
            raise Conflict(
                f"{record.declared}: the question has already been answered: "
                f"{'yes' if record.answer.approved else 'no'}",
                standing={"approved": record.answer.approved, "reason": record.answer.reason},
            )
        record.answer = answer


def _check(answer: PolicyAnswer, declared: DeclaredSpec) -> None:
    if answer.approved:
        return
    if answer.by_policy:
        raise Refused(f"{declared} was refused: {answer.reason}")
    raise Rejected(f"{declared} was not approved: {answer.reason}")

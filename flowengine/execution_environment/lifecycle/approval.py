"""Asking whether an environment may be opened: once per spec, whoever needs it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowengine.errors import Conflict
from flowengine.execution_environment.errors import ApprovalPending
from flowengine.policy_approval import Answer, Question, ask, configured, read_answer
from flowengine.sdk.errors import Refused, Rejected

if TYPE_CHECKING:
    from flowengine.execution_environment.bookkeeping.books import Books
    from flowengine.execution_environment.bookkeeping.instances import Instance, Record
    from flowengine.execution_environment.specs.spec import Declared


def question_of(declared: Declared) -> Question:
    """Return the question about a spec; the same in every process."""
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
    """Ask if approval is needed and nobody has answered yet.

    Args:
        instance: The opening.
        books: Keep the answer.

    Raises:
        Rejected: The answer is no.
        Refused: A policy says no.
        ApprovalPending: The answer comes later.
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
            if record.answer is None:  # nobody answered by `manager.answer` meanwhile
                record.answer = answer
    _check(record.answer, declared)


async def consult(
    record: Record, books: Books, question: str, reason: str | None, required: bool
) -> tuple[str, Answer] | None:
    """Ask the handler that answers at once whether a spec may be opened; nothing is opened.

    Args:
        record: The spec.
        books: Send the event about the question.
        question: Id of the question, by which it can be answered later.
        reason: Why it is needed.
        required: A handler's yes is not enough; only its no counts.

    Returns:
        Who answered, and the answer; None: nobody.
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
    """Record an answer that came later; the first one counts.

    Args:
        record: The spec that was asked about.
        given: The answer, as a handler gives it.
        books: They keep it.

    Raises:
        Conflict: It has already been answered differently.
        Rejected: It is invalid; nothing is kept.
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


def _check(answer: Answer, declared: Declared) -> None:
    if answer.approved:
        return
    if answer.by_policy:
        raise Refused(f"{declared} was refused: {answer.reason}")
    raise Rejected(f"{declared} was not approved: {answer.reason}")

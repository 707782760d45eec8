"""Asking whether an environment may be opened: once a spec, whoever needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowengine.errors import Conflict
from flowengine.execution_environment.errors import ApprovalPending
from flowengine.policy_approval import Answer, Question, ask, read_answer
from flowengine.sdk.errors import Refused, Rejected

if TYPE_CHECKING:
    from flowengine.execution_environment.bookkeeping import Books
    from flowengine.execution_environment.instances import Instance, Record
    from flowengine.execution_environment.spec import Declared


def question_of(declared: Declared) -> Question:
    """Return what is asked about a spec; the same in every process."""
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
    """Ask, if somebody has to be asked and nobody has answered yet.

    Args:
        instance: What is to be opened.
        books: They keep the answer.

    Raises:
        Rejected: The answer is no.
        Refused: A policy says no.
        ApprovalPending: The answer comes later.
    """
    record = instance.record
    declared = record.declared
    if not declared.asks:
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


def take_answer(record: Record, given: Mapping[str, Any], books: Books) -> None:
    """Take an answer that came later; the first one stands.

    Args:
        record: What was asked about.
        given: The answer, as a handler gives it.
        books: They keep it.

    Raises:
        Conflict: It was answered already, in another way.
        Rejected: It cannot be understood; nothing is kept.
    """
    answer = read_answer(given, "the answer", dict(record.declared.spec.policy))
    if not answer.lasts:
        raise Rejected(f"{record.declared}: {answer.reason}")
    with books.lock:
        if record.answer is not None and record.answer != answer:
            raise Conflict(
                f"{record.declared}: the question was answered already: "
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

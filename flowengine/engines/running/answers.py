"""Answers to questions: the one function that records a decision, and programs that decide first.

Each question of any kind is a wait: a step's approval, a call, the opening of an
environment, a budget, an attempt whose outcome is unknown. Each decision about it is the event
`decided`, recorded by `record`, where the store settles it by compare-and-set. If a person and a
program answer at the same time, only one of them wins.

Programs answer questions about calls in this order: the rules of the host (`gate`), grants
(`answer_by_grant`), then the tool authority. The other questions are left to approvers
(`people.approvals`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from flowengine.engines.actors import is_assignee
from flowengine.engines.executions.calls import names_of
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.parts import has_expired
from flowengine.engines.host import Host
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import FlowGrant, ListedWait, NewGrant, Vote, WaitFilter
from flowengine.journal.store import Store, every_item
from flowengine.kernel.commands import Consult
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.notation.grants import FLOW, ONLY_PEOPLE, covers
from flowengine.kernel.view import counting, edited, grant_status, only_choice
from flowengine.sdk.steps.previews import Shown


def record(
    store: Store,
    id: str,
    asked: Mapping[str, Any],
    decision: Mapping[str, Any],
    now: int,
    gives: NewGrant | None = None,
) -> tuple[dict[str, Any], bool, ListedWait]:
    """Record a decision, which has been checked.

    Args:
        store: Contains the wait.
        id: Full id of the wait.
        asked: Its record.
        decision: The decision: the fields of the event `decided` besides `at` and `wait`.
        now: The time (ms).
        gives: The grant to keep if the decision counts.

    Returns:
        The event, whether it was accepted, and the wait afterwards.
    """
    event = {"type": "decided", "at": now, "wait": asked["id"], **decision}
    approves = counting(dict(asked), decision["choice"]) == "approve"
    vote = Vote(decision["by"], now, approves, pack(event), gives, decision.get("granted"))
    return event, *store.decide(id, vote)


def say(
    host: Host,
    id: str,
    asked: Mapping[str, Any],
    by: str,
    *,
    approves: bool,
    via: str = "rule",
    comment: str | None = None,
    **more: Plain,
) -> bool:
    """Record the answer of a program, if it can decide.

    It cannot if the question has expired, or has not exactly one choice for the answer, or if the
    choice needs what only a person gives: a form, or a comment that the program does not have.

    Args:
        host: Provides the store.
        id: Full id of the wait.
        asked: Its record.
        by: Who answers.
        approves: Whether the answer is an approval. Otherwise it is a rejection.
        via: The channel.
        comment: The reason.
        **more: Further fields of the event: `granted`.

    Returns:
        Whether it counts. Otherwise the question is left to others.
    """
    now = host.clock.now()
    choice = only_choice(asked, "approve" if approves else "reject")
    if choice is None or has_expired(asked, now):
        return False
    if (approves and asked.get("form")) or (choice.get("comment") == "required" and not comment):
        return False
    decision = {"choice": choice["id"], "by": by, "via": via, "form": None, "edits": None,
                "comment": comment or None, **more}  # fmt: skip
    return record(host.store, id, asked, decision, now)[1]


async def consult(
    host: Host, execution: Execution, asked: Consult, preview: Awaitable[Shown]
) -> bool:
    """Consult the tool authority, and record its decision.

    Args:
        host: Provides the store.
        execution: The execution that has just opened the question.
        asked: The question.
        preview: The preview of the call, which is being computed.

    Returns:
        Whether it was answered. Otherwise it is left to approvers.
    """
    question = execution.waits.get(asked.wait)
    if host.consultant is None or question is None or "opens" in question:
        return False  # a program that decides about a call opens nothing
    names = names_of(execution.linked.compiled["steps"][asked.step])
    id = wait_id(execution.id, asked.wait)
    return await host.consultant.ask(execution.id, id, {**question, "names": names}, preview)


# Grants for all executions of a flow, which answer questions on behalf of their creators.
#
# They are in the store, which counts each use together with the decision. The limit on uses
# therefore applies across all processes. The kernel only receives the decision.


def to_keep(wait: ListedWait, decision: Mapping[str, Any]) -> NewGrant | None:
    """Return the grant for all executions of a flow that a decision contains, if any.

    Args:
        wait: The question about a call.
        decision: The checked decision.
    """
    given, record = decision.get("grant"), wait.record
    if given is None or given.get("scope") != FLOW:
        return None
    args = edited(record["subject"], decision.get("edits") or {})
    body = {"args": args, "patterns": given["args"], "execution": wait.execution}
    if "source" in record:
        body["source"] = record["source"]
    uses, until = given.get("uses"), given.get("until")
    return NewGrant(record["tool"], record["version"], pack(body), uses, until)


def as_kernel_has_it(grant: FlowGrant) -> dict[str, Any]:
    """Return a grant in the form used for grants of one execution."""
    body: dict[str, Any] = {**unpack(grant.body), "used": grant.used, "by": grant.by}
    body |= {"tool": grant.tool, "version": grant.version, "at": grant.at}
    given = {"uses": grant.uses, "until": grant.until, "revoked": grant.revoked_by}
    return body | {key: value for key, value in given.items() if value is not None}


def answer_by_grant(host: Host, wait: ListedWait, source: str | None) -> bool:
    """Answer a question about a call by a grant, if one matches.

    Args:
        host: Provides the store.
        wait: The question.
        source: Digest of the text of the tool, if known.

    Returns:
        Whether it was answered. Otherwise it is left to others.
    """
    record = wait.record
    if "digest" not in record or not wait.open:
        return False
    if (record.get("need") or 1) > 1 or record.get("claim") or not ONLY_PEOPLE.isdisjoint(record):
        return False  # it requires more than an approval granted for another call
    now = host.clock.now()
    return any(
        say(host, wait.id, record, grant.by, approves=True, via="grant", granted=grant.id)
        for grant in host.store.grants(wait.flow, record["tool"])
        if _fits(grant, record, source, now) and is_assignee(record, grant.by, host.settings)
    )


def answer_open(host: Host, flow: str, tool: str) -> list[str]:
    """Answer the open questions about a tool by the grants of a flow.

    Args:
        host: Provides the store.
        flow: Its id.
        tool: Name of the tool.

    Returns:
        The executions whose questions were answered.
    """
    wanted = WaitFilter(flow=flow, kinds=("approval",))
    waits = every_item(lambda after: host.store.waits(wanted, after))
    asked = (wait for wait in waits if wait.record.get("tool") == tool)
    answered = [
        wait.execution for wait in asked if answer_by_grant(host, wait, wait.record.get("source"))
    ]
    return list(dict.fromkeys(answered))


def revoked_by(store: Store, flow: str, id: str) -> str | None:
    """Return the user who has revoked a grant. None: it is not revoked."""
    return next((grant.revoked_by for grant in store.grants(flow) if grant.id == id), None)


def _fits(grant: FlowGrant, record: Mapping[str, Any], source: str | None, now: int) -> bool:
    known = as_kernel_has_it(grant)
    return (
        grant.version == record["version"]
        and known.get("source") == source  # a tool with another text is another tool
        and grant_status(known, now) == "open"
        and covers(known, record["subject"])
    )

"""Grants for all executions of a flow, which answer questions on behalf of their creators.

They are in the store, which counts each use together with the decision. The limit on uses therefore
applies across all processes. The kernel only receives the decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.actors import is_assignee
from flowengine.engines.running.answers import Said, say
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import NewGrant, WaitFilter
from flowengine.journal.store import every_item
from flowengine.kernel.notation.grants import FLOW, ONLY_PEOPLE, covers
from flowengine.kernel.view import edited, grant_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.engines.host import Host
    from flowengine.journal.records import FlowGrant, ListedWait
    from flowengine.journal.store import Store


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
    for key, value in (
        ("uses", grant.uses),
        ("until", grant.until),
        ("revoked", grant.revoked_by),
    ):
        if value is not None:
            body[key] = value
    return body


def answer(host: Host, wait: ListedWait, source: str | None) -> bool:
    """Answer a question about a call by a grant, if one matches.

    Args:
        host: Provides the store.
        wait: The question.
        source: Digest of the text of the tool, if known.

    Returns:
        Whether it was answered. Otherwise it is left to others.
    """
    record = wait.record
    if "digest" not in record or not wait.open or _takes_a_person(record):
        return False
    now = host.clock.now()
    return any(
        say(host, wait.id, record, Said(grant.by, approves=True, via="grant", grant=grant.id))
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
    answered = [wait.execution for wait in asked if answer(host, wait, wait.record.get("source"))]
    return list(dict.fromkeys(answered))


def revoked_by(store: Store, flow: str, id: str) -> str | None:
    """Return the user who has revoked a grant. None: it is not revoked."""
    return next((grant.revoked_by for grant in store.grants(flow) if grant.id == id), None)


def _takes_a_person(record: Mapping[str, Any]) -> bool:
    """Return whether a question requires more than an approval granted for another call."""
    is_shared = (record.get("need") or 1) > 1 or bool(record.get("claim"))
    return is_shared or not record.keys().isdisjoint(ONLY_PEOPLE)


def _fits(grant: FlowGrant, record: Mapping[str, Any], source: str | None, now: int) -> bool:
    known = as_kernel_has_it(grant)
    return (
        grant.version == record["version"]
        and known.get("source") == source  # a tool with another text is another tool
        and grant_status(known, now) == "open"
        and covers(known, record["subject"])
    )

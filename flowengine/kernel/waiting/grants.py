"""Grants: approvals of a call that also cover later calls like it.

An approver of a call can permit further calls of the same tool in this execution without a
question. Their arguments must fit, and the grant must not have expired or been used up. A grant is
part of the decision and therefore in the journal, which determines all its answers. Grants do not
apply to tools that declare `required`.

Grants for all executions of a flow are stored outside. `engines.running.answers` answers
questions with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.kernel.events import Revoked
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.notation.grants import FLOW, covers
from flowengine.kernel.state.records import Grant, Wait
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import grant_status


def give(tx: Transition, wait: Wait, decision: dict[str, Any], args: Plain) -> None:
    """Record the grant of an approved call, if there is one.

    Args:
        wait: The question. Its number is the number of the grant.
        decision: The approval.
        args: The arguments of this call. Those that the grant does not name must be the same later.
    """
    given = decision.get("grant")
    if given is None or given.get("scope") == FLOW:
        return
    record = wait["record"]
    grant: Grant = {
        "tool": record["tool"], "version": record["version"], "args": args or {},
        "patterns": given["args"], "used": 0, "by": str(decision.get("by")), "at": tx.now,
    }  # fmt: skip
    for key in ("uses", "until"):
        if given.get(key) is not None:
            grant[key] = given[key]
    if "source" in record:
        grant["source"] = record["source"]
    if (asked := people(record)) is not None:
        grant["people"] = asked
    tx.state.setdefault("grants", {})[wait["id"]] = grant


def people(asked: Mapping[str, Any]) -> dict[str, Plain] | None:
    """Return the permitted and excluded approvers of a question. None: no restriction.

    The approvers of one call are not necessarily permitted to approve the next one.
    """
    return {key: asked[key] for key in ("assignees", "exclude") if asked.get(key)} or None


def use(
    tx: Transition,
    tool: str,
    version: str,
    args: Plain,
    asked: dict[str, Plain] | None,
    source: str | None = None,
) -> dict[str, Plain] | None:
    """Return the answer of a grant to the question about a call, or None if no grant covers it.

    Args:
        tool: The called tool.
        version: Version of its declaration.
        args: The arguments, except those that the flow fixes.
        asked: The permitted and excluded approvers of the question.
        source: Digest of the text of the tool, if known. Otherwise the engine checks it before the
            call is made.
    """
    for number, grant in tx.state.get("grants", {}).items():
        if (grant["tool"], grant["version"]) != (tool, version):
            continue
        if grant.get("people") != asked or source not in (None, grant.get("source")):
            continue
        if grant_status(grant, tx.now) == "open" and covers(grant, args or {}):
            grant["used"] += 1
            kept: dict[str, Plain] = {"approved": True, "by": grant["by"], "grant": number}
            kept |= {"version": version, "args": args}
            return {**kept, "source": grant["source"]} if "source" in grant else kept
    return None


def revoke(tx: Transition, event: Revoked) -> None:
    """Revoke a grant. Its earlier answers remain valid."""
    grant = tx.state.get("grants", {}).get(event["grant"])
    if grant is not None:
        grant.setdefault("revoked", event["by"])

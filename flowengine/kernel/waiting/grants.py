"""Grants: a yes to a call that also answers the questions about later calls like it.

Who approves a call may say that calls of the same tool, in this execution, need no further question
as long as their arguments fit, a time is not over, and a number of them is not used up. A grant is
part of the decision, so it is in the journal; what it answers follows from there. It answers no
question of a tool that says `required`.

Grants for all executions of a flow are kept by the store; `engines.running.flow_grants` answers
questions by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.notation.grants import FLOW, covers
from flowengine.kernel.view import grant_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.kernel.events import Revoked
    from flowengine.kernel.state.records import Grant, Wait
    from flowengine.kernel.transition import Transition


def give(tx: Transition, wait: Wait, decision: dict[str, Any], args: Plain) -> None:
    """Note the grant that comes with a yes to a call, if one does.

    Args:
        wait: The question; its number is that of the grant.
        decision: The yes.
        args: What runs now; what the grant does not name has to be the same later.
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
    """Return who may answer a question, and who may not; None: anybody may.

    Who may say yes to one call need not be who may say yes to the next one.
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
    """Return the answer that a grant gives to the question about a call; None: none fits.

    Args:
        tool: What is called.
        version: Of its declaration.
        args: What it is given, but for what the flow fixes.
        asked: The people who may answer the question.
        source: Digest of the text of the tool, if it is known; else the engine looks at it before
            the call is made.
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
    """End a grant; what it has answered stays."""
    grant = tx.state.get("grants", {}).get(event["grant"])
    if grant is not None:
        grant.setdefault("revoked", event["by"])

"""Grants: a yes to a call that also answers the questions about later calls like it.

Who approves a call may say that calls of the same tool, in this execution, need no further question
as long as their arguments fit, a time is not over, and a number of them is not used up. A grant is
part of the decision, so it is in the journal; what it answers follows from there. It answers no
question of a tool that says `required`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.view import grant_status

if TYPE_CHECKING:
    from flowengine.kernel.events import Revoked
    from flowengine.kernel.machine import Machine
    from flowengine.kernel.state.records import Grant, Wait


def give(m: Machine, wait: Wait, decision: dict[str, Any], args: Plain) -> None:
    """Note the grant that comes with a yes to a call, if one does.

    Args:
        wait: The question; its number is that of the grant.
        decision: The yes.
        args: What runs now; what the grant does not name has to be the same later.
    """
    given = decision.get("grant")
    if given is None:
        return
    record = wait["record"]
    grant: Grant = {
        "tool": record["tool"], "version": record["version"], "args": args or {},
        "patterns": given["args"], "used": 0, "by": str(decision.get("by")), "at": m.now,
    }  # fmt: skip
    for key in ("uses", "until"):
        if given.get(key) is not None:
            grant[key] = given[key]
    if "source" in record:
        grant["source"] = record["source"]
    m.state.setdefault("grants", {})[wait["id"]] = grant


def use(m: Machine, tool: str, version: str, args: Plain) -> dict[str, Plain] | None:
    """Return the answer that a grant gives to the question about a call; None: none fits.

    Args:
        tool: What is called.
        version: Of its declaration.
        args: What it is given, but for what the flow fixes.
    """
    for number, grant in m.state.get("grants", {}).items():
        if (grant["tool"], grant["version"]) != (tool, version):
            continue
        if grant_status(grant, m.now) == "open" and _fits(grant, args or {}):
            grant["used"] += 1
            kept: dict[str, Plain] = {"approved": True, "by": grant["by"], "grant": number}
            kept |= {"version": version, "args": args}
            return {**kept, "source": grant["source"]} if "source" in grant else kept
    return None


def revoke(m: Machine, event: Revoked) -> None:
    """End a grant; what it has answered stays."""
    grant = m.state.get("grants", {}).get(event["grant"])
    if grant is not None:
        grant.setdefault("revoked", event["by"])


def _fits(grant: Grant, args: dict[str, Plain]) -> bool:
    """Return whether arguments fit: by their patterns, else they are the same as they were."""
    patterns, before = grant["patterns"], grant["args"]
    if any(name not in args for name in patterns):
        return False
    return all(
        fits(patterns[name], value)
        if name in patterns
        else name in before and _text(before[name]) == _text(value)
        for name, value in args.items()
    ) and all(name in args or name in patterns for name in before)


def fits(pattern: str, value: Plain) -> bool:
    """Return whether a value fits a pattern.

    In a pattern `*` stands for any characters but `/`, `**` for any at all, `?` for one. A pattern
    with any of these never fits a text with `..` in its path: `out/*` is about what is in `out`.

    Args:
        pattern: For text; of other values it is compared with their JSON.
        value: The value.
    """
    text = value if isinstance(value, str) else _text(value)
    if pattern == "**":
        return True
    wild = any(sign in pattern for sign in "*?")
    if wild and ".." in re.split(r"[/\\]", text):
        return False
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    meaning = {"**": ".*", "*": r"[^/\\]*", "?": r"[^/\\]"}
    made = "".join([meaning.get(part) or re.escape(part) for part in parts])
    return re.fullmatch(made, text, re.DOTALL) is not None


def _text(value: Plain) -> str:
    import json

    if isinstance(value, bytes):
        return f"bytes:{value.hex()}"
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)

"""Grants as people give, see and end them: a yes to a call that holds for later calls like it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.errors import Conflict, InputError, NotFound
from flowengine.journal.encoding import pack
from flowengine.kernel.notation.ids import wait_id
from flowengine.kernel.notation.times import format_time, parse_duration
from flowengine.kernel.view import counting, grant_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.engines.actors import Actor
    from flowengine.engines.host import Host
    from flowengine.engines.infos import GrantGiven, GrantInfo


def checked_grant(
    wait: Mapping[str, Any], choice: str, given: GrantGiven, now: int
) -> dict[str, Any]:
    """Return a grant as it stands in a decision.

    Args:
        wait: The question.
        choice: What is decided.
        given: What somebody grants.
        now: The time (ms).

    Raises:
        InputError: It cannot be given, or is none.
    """
    if "digest" not in wait:
        raise InputError("only the approval of a call can be granted for later ones", field="grant")
    if counting(dict(wait), choice) != "approve":
        raise InputError(f"'{choice}' is no approval that later calls could share", field="grant")
    if wait.get("required"):
        message = f"{wait['tool']!r} says 'approval: required': each call is asked about"
        raise InputError(message, field="grant")
    if (wait.get("need") or 1) > 1:
        message = "several people have to approve this, so one cannot approve later calls"
        raise InputError(message, field="grant")
    if unknown := given.keys() - {"args", "uses", "lasts"}:
        message = f"a grant has no '{min(unknown)}'"
        raise InputError(message, field="grant", hint="it has args, uses and lasts")
    patterns = dict(given.get("args") or {})
    known: Any = wait.get("subject")
    known = known if isinstance(known, dict) else {}
    for name, pattern in patterns.items():
        if name not in known or not isinstance(pattern, str):
            names = ", ".join(known) or "none"
            message = f"'{name}' is no argument of this call"
            raise InputError(message, field=f"grant.args.{name}", hint=f"its arguments: {names}")
    found: dict[str, Any] = {"args": patterns}
    uses: Any = given.get("uses")
    if uses is not None:
        if not isinstance(uses, int) or isinstance(uses, bool) or uses < 1:
            message = f"uses is {uses!r}, not a number from 1 on"
            raise InputError(message, field="grant.uses")
        found["uses"] = uses
    lasts: Any = given.get("lasts")
    if lasts is not None:
        try:
            found["until"] = now + parse_duration(lasts)
        except (ValueError, TypeError):
            message = f"{lasts!r} is not a duration"
            raise InputError(message, field="grant.lasts", hint="for example 2h") from None
    return found


def grants_of(host: Host, execution: str) -> list[GrantInfo]:
    """Return the grants of an execution, oldest first; those that were revoked, too.

    Args:
        execution: Full id.
    """
    import json

    state = host.stored(execution, 0).state
    ended = _revoked(host, execution)
    found: list[GrantInfo] = []
    for number, grant in state.get("grants", {}).items():
        shown = {name: json.dumps(value, default=repr) for name, value in grant["args"].items()}
        info: GrantInfo = {
            "id": wait_id(execution, number),
            "execution": execution,
            "tool": grant["tool"],
            "args": {**shown, **grant["patterns"]},
            "used": grant["used"],
            "by": grant["by"],
            "at": format_time(grant["at"]),
            "status": grant_status(grant, host.clock.now()),
        }
        if "uses" in grant:
            info["uses"] = grant["uses"]
        if "until" in grant:
            info["until"] = format_time(grant["until"])
        by = grant.get("revoked") or ended.get(number)
        if by is not None:
            info["status"], info["revoked_by"] = "revoked", by
        found.append(info)
    return found


def revoke(host: Host, id: str, who: Actor) -> str:
    """Record that a grant ends; whoever drives its execution takes it from there.

    Args:
        id: Of the grant, or an unambiguous prefix of it.
        who: Who ends it.

    Returns:
        The full id of the execution.

    Raises:
        NotFound: There is no such grant.
        Conflict: It has ended.
    """
    wait = host.store.wait(host.store.find_wait(id))
    known = {grant["id"]: grant for grant in grants_of(host, wait.execution)}
    grant = known.get(wait.id)
    if grant is None:
        hint = f"see them: flowengine grants list {host.store.short_execution(wait.execution)}"
        raise NotFound(f"no grant was given with the decision on {wait.id}", hint=hint)
    if grant["status"] == "revoked":
        raise Conflict(f"the grant {wait.id} was revoked by {grant['revoked_by']}")
    at = host.clock.now()
    event = {"type": "revoked", "at": at, "grant": wait.number, **who.fields()}
    host.store.send(wait.execution, pack(event), at, host.ids.message())
    return wait.execution


def _revoked(host: Host, execution: str) -> dict[int, str]:
    """Return the grants whose end is recorded and not journaled yet → who ended them."""
    from flowengine.journal.shapes import unpack_message

    events = [unpack_message(message) for message in host.store.inbox(execution)]
    return {event["grant"]: event["by"] for event in events if event["type"] == "revoked"}

"""Grants: approvals that also cover later calls. Listing and revoking them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flowengine.engines.actors import Actor
from flowengine.engines.host import Host
from flowengine.engines.infos import GrantInfo
from flowengine.engines.running.answers import as_kernel_has_it
from flowengine.errors import Conflict, Hint, NotFound
from flowengine.journal.encoding import pack
from flowengine.journal.records import FlowGrant
from flowengine.journal.refusals import no_grant
from flowengine.journal.shapes import unpack_message
from flowengine.journal.short_ids import the_one
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.view import grant_status


def grants_of(host: Host, execution: str | None) -> list[GrantInfo]:
    """Return the grants that apply or applied to an execution, including revoked ones.

    Args:
        host: Provides the store.
        execution: Full id. None: the grants for all executions of a flow, of any flow.

    Returns:
        The grants of the execution, then those of its flow, both oldest first.
    """
    if execution is None:
        return [_of_flow(host, grant) for grant in host.store.grants()]
    of_flow = host.store.grants(host.store.execution(execution).flow)
    return [*_of_execution(host, execution), *(_of_flow(host, grant) for grant in of_flow)]


def _of_execution(host: Host, execution: str) -> Iterator[GrantInfo]:
    state = host.stored(execution, 0).state
    events = [unpack_message(message) for message in host.store.inbox(execution)]
    # Those that are not journaled yet.
    ended = {event["grant"]: event["by"] for event in events if event["type"] == "revoked"}
    for number, grant in state.get("grants", {}).items():
        info = _info(host, wait_id(execution, number), execution, grant)
        by = grant.get("revoked") or ended.get(number)
        if by is not None:
            info["status"], info["revoked_by"] = "revoked", by
        yield info


def _of_flow(host: Host, grant: FlowGrant) -> GrantInfo:
    stored = as_kernel_has_it(grant)
    info = _info(host, grant.id, stored["execution"], stored)
    info["flow"] = grant.flow
    if grant.revoked_by is not None:
        info["revoked_by"] = grant.revoked_by
    return info


def _info(host: Host, id: str, execution: str, grant: Mapping[str, Any]) -> GrantInfo:
    import json

    shown = {name: json.dumps(value, default=repr) for name, value in grant["args"].items()}
    info: GrantInfo = {
        "id": id,
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
    return info


def revoke(host: Host, id: str, who: Actor) -> GrantInfo:
    """Revoke a grant of one execution, or of all executions of a flow.

    The store revokes a flow's grant at once. The revocation of an execution's grant is recorded,
    and takes effect in the process that drives the execution.

    Args:
        host: Provides the store.
        id: Id of the grant, or an unambiguous prefix of it.
        who: The actor.

    Returns:
        The grant afterwards.

    Raises:
        NotFound: No grant has this prefix.
        Conflict: It has ended.
        UsageError: Several grants have this prefix.
    """
    of_flows = [grant.id for grant in host.store.grants() if grant.id.startswith(id)]
    if of_flows:
        full = the_one(id, of_flows, "grant", host.store.location)
        return _of_flow(host, host.store.revoke(full, who.fields()["by"]))
    try:
        wait = host.store.wait(host.store.find_wait(id))
    except NotFound:
        raise no_grant(id) from None
    grant = _grant_of(host, wait.execution, wait.id)
    if grant["status"] == "revoked":
        raise Conflict(f"the grant {wait.id} was revoked by {grant['revoked_by']}")
    at = host.clock.now()
    event = {"type": "revoked", "at": at, "grant": wait.number, **who.fields()}
    host.store.send(wait.execution, pack(event), at, host.ids.message())
    return _grant_of(host, wait.execution, wait.id)


def _grant_of(host: Host, execution: str, id: str) -> GrantInfo:
    """Return a grant of an execution.

    Raises:
        NotFound: The execution has no such grant.
    """
    for grant in _of_execution(host, execution):
        if grant["id"] == id:
            return grant
    hint = Hint(f"see them: flowengine grants {host.store.short_execution(execution)}")
    raise NotFound(f"no grant was given with the decision on {id}", hint=hint)

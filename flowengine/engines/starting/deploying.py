"""Deploying flows and removing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.engines.flows import LoadedFlow
from flowengine.engines.starting.deployed_flows import listed, versions
from flowengine.engines.starting.schedules import first_times
from flowengine.errors import Conflict, UsageError
from flowengine.journal.encoding import pack
from flowengine.journal.records import Deployed
from flowengine.kernel.notation.times import format_time
from flowengine.python_modules import check_importable

if TYPE_CHECKING:
    from flowengine.engines.host import Host
    from flowengine.engines.infos import DeployedInfo

UNVERSIONED = "0"
"""The version of flows that declare none. It may be deployed again with other contents."""


def deploy(host: Host, flow: LoadedFlow) -> DeployedInfo:
    """Deploy a flow. See `Engine.deploy`."""
    check_importable(flow.functions)
    starts = flow.compiled.get("start", ())
    signals = [start["signal"] for start in starts if "signal" in start]
    schedules = first_times(host, flow) if len(signals) < len(starts) else []
    for other in host.store.deployed(flow.id):
        if other.version == flow.version != UNVERSIONED and other.hash != flow.form:
            _check_same_meaning(host, flow, other)
    deployed = Deployed(flow.id, flow.version, flow.form, host.clock.now())
    host.store.put_flow(flow.form, pack(flow.compiled))
    host.store.deploy(deployed, signals, schedules)
    return listed(host, flow.id)[0]


def undeploy(host: Host, name: str) -> list[Deployed]:
    """Remove deployed versions. See `Engine.undeploy`."""
    removed = versions(host, name)
    if "@" not in name:
        if removed[0].flow != name:
            raise UsageError(f"{name!r} is a hash", hint="give ID, or ID@VERSION")
        host.store.undeploy(name)
        return removed
    flow, _, version = name.partition("@")
    every = host.store.deployed(flow)
    if every[0].version == version and len(every) > 1:
        raise Conflict(
            f"{name} is the current version of '{flow}', which has others",
            hint=f"deploy another version first, or remove all: flowengine flows undeploy {flow}",
        )
    host.store.undeploy(flow, version if len(every) > 1 else None)
    return removed


def _check_same_meaning(host: Host, flow: LoadedFlow, other: Deployed) -> None:
    """Check that a deployed version means the same as another one with its number.

    Raises:
        Conflict: It does not.
    """
    before = LoadedFlow(host.flows.by_hash(other.hash).compiled, other.hash)
    if before.hash != flow.hash:
        name = f"{flow.id}@{flow.version}"
        raise Conflict(
            f"{name} was deployed at {format_time(other.at)} with other contents",
            hint="change 'version' in the file",
        )

"""Deployed flows: versions that the store keeps, to be started by name, signals and schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.engines.flows import LoadedFlow
from flowengine.errors import Conflict, NotFound, UsageError
from flowengine.journal.encoding import pack
from flowengine.journal.records import Deployed
from flowengine.kernel.notation.times import format_time

if TYPE_CHECKING:
    from flowengine.engines.host import Host
    from flowengine.engines.infos import DeployedInfo

UNVERSIONED = "0"
"""The version of flows that declare none. It may be deployed again with other contents."""
SHORTEST_HASH = 8
"""Digits of a hash that are accepted as a name."""


def deploy(host: Host, flow: LoadedFlow) -> DeployedInfo:
    """Deploy a flow. See `Engine.deploy`."""
    starts = flow.compiled.get("start", ())
    signals = [start["signal"] for start in starts if "signal" in start]
    schedules = []
    if len(signals) < len(starts):
        from flowengine.engines.starting.schedules import first_times

        schedules = first_times(host, flow)
    for other in host.store.deployed(flow.id):
        if other.version == flow.version != UNVERSIONED and other.hash != flow.form:
            _check_same_meaning(host, flow, other)
    deployed = Deployed(flow.id, flow.version, flow.form, host.clock.now())
    host.store.put_flow(flow.form, pack(flow.compiled))
    host.store.deploy(deployed, signals, schedules)
    return listed(host, flow.id)[0]


def undeploy(host: Host, name: str) -> list[Deployed]:
    """Remove deployed versions. See `Engine.undeploy`."""
    versions = _versions(host, name)
    if "@" not in name:
        host.store.undeploy(versions[0].flow)
        return versions
    flow, _, version = name.partition("@")
    every = host.store.deployed(flow)
    if every[0].version == version and len(every) > 1:
        raise Conflict(
            f"{name} is the current version of '{flow}', which has others",
            hint=f"deploy another version first, or remove all: flowengine flows undeploy {flow}",
        )
    host.store.undeploy(flow, version if len(every) > 1 else None)
    return versions


def find(host: Host, name: str) -> LoadedFlow:
    """Return a deployed flow. See `Engine.deployed_flow`."""
    hash = _versions(host, name)[0].hash
    return LoadedFlow(host.flows.by_hash(hash).compiled, hash)


def listed(host: Host, flow: str | None = None) -> list[DeployedInfo]:
    """Return the deployed versions. See `Engine.deployed`."""
    found: list[DeployedInfo] = []
    current = None
    for deployed in host.store.deployed(flow):
        found.append(
            {
                "flow": deployed.flow,
                "version": deployed.version,
                "hash": deployed.hash,
                "deployed_at": format_time(deployed.at),
                "current": deployed.flow != current,
            }
        )
        current = deployed.flow
    return found


def _versions(host: Host, name: str) -> list[Deployed]:
    """Return the versions that a name stands for, the current one first.

    Raises:
        NotFound: There is none.
        UsageError: The beginning of a hash fits several flows.
    """
    flow, at, version = name.partition("@")
    found = [one for one in host.store.deployed(flow) if not at or one.version == version]
    if not found and not at and len(name) >= SHORTEST_HASH:
        found = [one for one in host.store.deployed() if one.hash.startswith(name)]
        if len({one.hash for one in found}) > 1:
            raise UsageError(f"{name!r} fits several deployed flows", hint="use a longer prefix")
    if not found:
        known = [f"{one.flow}@{one.version}" for one in host.store.deployed(flow if at else None)]
        hint = f"deployed flows: {', '.join(known)}" if known else "flowengine deploy FILE"
        raise NotFound(f"no flow '{name}' is deployed", hint=hint)
    return found


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

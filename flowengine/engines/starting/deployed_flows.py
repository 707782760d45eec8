"""Deployed flows: versions that the store keeps, to be started by name, signals and schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.engines.flows import LoadedFlow
from flowengine.errors import NotFound, UsageError
from flowengine.kernel.notation.times import format_time

if TYPE_CHECKING:
    from flowengine.engines.host import Host
    from flowengine.engines.infos import DeployedInfo
    from flowengine.journal.records import Deployed

SHORTEST_HASH = 8
"""Digits of a hash that are accepted as a name."""


def find(host: Host, name: str) -> LoadedFlow:
    """Return a deployed flow. See `Engine.deployed_flow`."""
    hash = versions(host, name)[0].hash
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


def versions(host: Host, name: str) -> list[Deployed]:
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

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
    flows: list[DeployedInfo] = []
    current = None
    for deployed in host.store.deployed(flow):
        flows.append(
            {
                "flow": deployed.flow,
                "version": deployed.version,
                "hash": deployed.hash,
                "deployed_at": format_time(deployed.at),
                "current": deployed.flow != current,
            }
        )
        current = deployed.flow
    return flows


def versions(host: Host, name: str) -> list[Deployed]:
    """Return the versions that a name stands for, the current one first.

    Raises:
        NotFound: There is none.
        UsageError: The beginning of a hash fits several flows.
    """
    flow, at, version = name.partition("@")
    matches = [
        deployed for deployed in host.store.deployed(flow) if not at or deployed.version == version
    ]
    if not matches and not at and len(name) >= SHORTEST_HASH:
        matches = [deployed for deployed in host.store.deployed() if deployed.hash.startswith(name)]
        if len({deployed.hash for deployed in matches}) > 1:
            raise UsageError(f"{name!r} fits several deployed flows", hint="use a longer prefix")
    if not matches:
        known = [
            f"{deployed.flow}@{deployed.version}"
            for deployed in host.store.deployed(flow if at else None)
        ]
        hint = f"deployed flows: {', '.join(known)}" if known else "flowengine deploy FILE"
        raise NotFound(f"no flow '{name}' is deployed", hint=hint)
    return matches

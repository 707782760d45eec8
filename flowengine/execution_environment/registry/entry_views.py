"""Descriptions of registry entries, of this and other processes, as plain data."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flowengine.errors import Conflict, Hint, NotFound
from flowengine.sdk.process_identity import is_dead

if TYPE_CHECKING:
    from flowengine.execution_environment.registry.entries import Registry, RegistryEntry


def describe_entry(entry: RegistryEntry) -> dict[str, Any]:
    """Return the description of an entry.

    Args:
        entry: Entry of the registry.

    Returns:
        `{id, kind, provider, scope, owner_id, resource_key, generation, state, since, process,
        host, alive, screen, workspace, traces}`, without the configuration. `screen` is whether
        one can look into it.
    """
    data, leftover = entry.data, entry.leftover
    at = datetime.fromtimestamp(data["at"], UTC)
    facts, alive = dict(leftover.facts), not is_dead(leftover.owner)
    if "pids" in facts:
        facts["pids"] = [pid for pid, _ in facts["pids"]]
    return {
        "id": entry.id,
        "kind": leftover.kind,
        "provider": leftover.provider,
        "scope": data.get("scope"),
        "owner_id": data.get("owner_id"),
        "resource_key": data.get("resource_key"),
        "generation": data.get("generation"),
        "state": data.get("state"),
        "since": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "process": leftover.owner.pid,
        "host": leftover.owner.host,
        "alive": alive,
        "screen": alive and os.path.lexists(entry.screen),
        "workspace": str(leftover.workspace),
        "traces": facts,
    }


def one_entry(registry: Registry, name: str) -> RegistryEntry:
    """Return the entry with a name.

    Args:
        registry: The registry.
        name: The name of an environment, or an unambiguous prefix of its id.

    Returns:
        The entry.

    Raises:
        NotFound: No entry matches.
        Conflict: Several entries match.
    """
    entries = registry.read()[0]
    matches = [entry for entry in entries if entry.data.get("resource_key") == name]
    matches = matches or [entry for entry in entries if entry.id.startswith(name)]
    if not matches:
        raise NotFound(
            f"no environment '{name}' is open or was left open",
            hint=Hint("see: flowengine envs list"),
        )
    if len(matches) > 1:
        ids = ", ".join(entry.id for entry in matches)
        raise Conflict(f"'{name}' means {len(matches)} environments", hint=f"say which: {ids}")
    return matches[0]

"""The door for callers of a store: what opens it, and what drives its executions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flowengine.engines.asking.tool_authority import ToolAuthority
from flowengine.engines.host import Clock, Host
from flowengine.engines.temporal.connection import read_address
from flowengine.engines.temporal.driving import RemoteDriving
from flowengine.engines.temporal.store import TemporalStore
from flowengine.engines.temporal.support import unsupported
from flowengine.errors import UsageError


def open_remote(address: str) -> TemporalStore:
    """Return the store at an address.

    Raises:
        UsageError: The address is not valid.
    """
    return TemporalStore(read_address(address))


def check_caller(
    store: TemporalStore,
    tool_authority: ToolAuthority | None,
    clock: Clock | None,
    resources: Mapping[str, Any] | None,
    offers: Iterable[str],
) -> None:
    """Close a store, and refuse what its workers could not use."""
    for given, what in (
        (tool_authority, "programs that decide about calls (tool_authority)"),
        (clock, "another clock than that of its server (clock)"),
        (resources, "objects of the caller for steps (runtime_resources)"),
    ):
        if given:
            store.close()
            raise unsupported(what)
    if offers:
        store.close()
        raise UsageError(
            "in Temporal, workers run the steps: a caller offers nothing to them",
            hint="start a worker: flowengine worker --offers LABEL",
        )


def driving(host: Host) -> RemoteDriving:
    """Return what drives the executions of a store."""
    store: Any = host.store
    return RemoteDriving(host, store)

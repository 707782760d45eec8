"""A provider that does nothing, so that what is measured is the manager alone."""

from __future__ import annotations

import time
from pathlib import Path

from flowengine.execution_environment import (
    EnvironmentManager,
    register_provider,
    unregister_provider,
)
from flowengine.sdk.environments import Provider, Request, Spec


class Nothing(Provider[object]):
    kind = "nothing"
    leaves_traces = False

    async def probe(self, spec: Spec) -> None:
        """It can always be had."""

    async def ensure(self, request: Request) -> object:
        return object()

    def health_check(self, resource: object) -> bool:
        return True

    async def release(self, resource: object) -> None:
        """There is nothing to end."""


def reuse(folder: Path, times: int = 20_000) -> float:
    """Return the seconds of one hold on an open environment: checked, taken and given back."""
    register_provider(Nothing())
    try:
        with EnvironmentManager(folder) as manager:
            spec = manager.declare({"kind": "nothing"})["id"]
            manager.ensure(spec)
            began = time.perf_counter()
            for _ in range(times):
                manager.release(manager.ensure(spec))
            return (time.perf_counter() - began) / times
    finally:
        unregister_provider("nothing")

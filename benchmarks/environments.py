"""A provider that does nothing, so that what is measured is the manager alone."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks import flows
from flowengine import Engine, LoadedFlow
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


def steps(folder: Path, length: int = 500) -> tuple[float, float]:
    """Return the seconds of a step that has an environment, and of one that has none."""
    register_provider(Nothing())
    try:
        with Engine(None) as engine:
            flow = flows.chain_in(folder, length, "nothing")
            plain = flows.trivial_chain(folder, length, "trivial_async")
            return _drive(engine, flow, length), _drive(engine, plain, length)
    finally:
        unregister_provider("nothing")


def _drive(engine: Engine, flow: LoadedFlow, length: int) -> float:
    """Return the seconds of processor that one step takes; the first execution only links them."""
    engine.run(flow)

    def once() -> float:
        began = time.process_time()
        assert engine.run(flow).status == "succeeded"
        return time.process_time() - began

    return min(once() for _ in "12345") / length


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

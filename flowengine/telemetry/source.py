"""What traces are made from: the part of an engine's public interface that this package uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.graph.specs import CompiledFlow, StepSpec


class Directory(Protocol):
    """The executions of a store."""

    def execution(self, id: str) -> ExecutionRecord:
        """Return an execution by its full id."""


class TracedFlow(Protocol):
    """A flow that an execution runs."""

    @property
    def compiled(self) -> CompiledFlow:
        """The steps, among others."""


class Recorded(Protocol):
    """A store with executions; `flowengine.Engine` is one."""

    @property
    def store(self) -> Directory:
        """The executions."""

    def find(self, beginning: str) -> str:
        """Return the id of the only execution whose id has this prefix."""

    def flow_of(self, execution: str) -> TracedFlow:
        """Return the flow that an execution runs now."""

    def observations(
        self, execution: str, *, until: int | None = None
    ) -> Iterator[tuple[Observation, StepSpec]]:
        """Replay an execution; see `Engine.observations`."""


class Traced(Recorded, Protocol):
    """An engine that drives executions."""

    def subscribe(self, callback: Callable[[Any], None]) -> Callable[[], object]:
        """Call a function with every update; see `Engine.subscribe`."""

"""The source of traces: the part of an engine's public interface that this package uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.graph.specs import CompiledFlow


class Directory(Protocol):
    """The executions of a store."""

    def execution(self, id: str) -> ExecutionRecord:
        """Return an execution by its full id."""


class Happened(Protocol):
    """An update of an execution."""

    @property
    def kind(self) -> str:
        """`event` or `step`, or another kind, which has no spans."""

    @property
    def data(self) -> Any:
        """Of an event: the entry of the journal."""

    @property
    def step(self) -> Observation | None:
        """A change of an activation."""


class TracedFlow(Protocol):
    """A flow that an execution runs."""

    @property
    def compiled(self) -> CompiledFlow:
        """The steps, among others."""


class ExecutionSource(Protocol):
    """A store with executions. `flowengine.Engine` is one."""

    @property
    def store(self) -> Directory:
        """The executions."""

    def find(self, beginning: str) -> str:
        """Return the id of the only execution whose id has this prefix."""

    def flow_of(self, execution: str) -> TracedFlow:
        """Return the flow that an execution runs now."""

    def past_updates(
        self, execution: str, *, until: int | None = None
    ) -> Iterator[tuple[Happened, CompiledFlow]]:
        """Replay an execution. See `Engine.past_updates`."""


class Traced(ExecutionSource, Protocol):
    """An engine that drives executions."""

    def subscribe(self, callback: Callable[[Any], None]) -> Callable[[], object]:
        """Call a function with every update. See `Engine.subscribe`."""

    def carry_traces(self, on: bool, /) -> None:
        """Let tools continue the traces of executions, or not."""


class WaitList(Protocol):
    """A page of waits."""

    @property
    def items(self) -> Sequence[Any]:
        """The waits."""


class MeasuredEngine(Traced, Protocol):
    """An engine whose store is measured."""

    def waited(self) -> list[float]:
        """Return for how many seconds each execution has been able to continue."""

    def open_executions(self) -> dict[str, int]:
        """Return how many executions have each open status."""

    def quarantined(self) -> int:
        """Return how many executions no worker takes."""

    def waits(self, *, kinds: Iterable[str], limit: int) -> WaitList:
        """Return the oldest open waits."""

"""Forks that undo what a failed execution has not undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flowengine.engines.attempts.failures import COMPENSATION, not_undone
from flowengine.engines.executions.replay import read, walk
from flowengine.journal.ports.directory import every_execution
from flowengine.journal.records import ENDED, ExecutionFilter
from flowengine.journal.shapes import Sound, unpack_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flowengine.engines.executions.linked_flows import LinkedFlows
    from flowengine.engines.host import Host
    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.events import Event


class Undoing(NamedTuple):
    """What became of the steps that an execution has not undone itself."""

    by: dict[str, str]
    """Address of a step → the fork that undid it, or is at work on it."""
    left: list[str]
    """Addresses of those that no fork undid, in the order in which they are undone."""
    last: str
    """The execution to fork, to undo them: in its past, everything else is undone."""


def undoing(host: Host, record: ExecutionRecord) -> Undoing:
    """Return which steps that an execution has not undone were undone in its forks.

    Args:
        record: Of a failed execution.
    """
    return _followed(host, record, not_undone(unpack_error(record.error, f"execution {record.id}")))


def _followed(host: Host, record: ExecutionRecord, left: list[str]) -> Undoing:
    by: dict[str, str] = {}
    last = record.id
    for fork in _forks_at_compensations(host, record.id) if left else ():
        done = left
        if fork.status in ENDED:
            with Sound(f"the journal of execution {fork.id}"):
                undone = compensated(host.flows, fork.hash, read(host.store, fork.id))
            done = [step for step in left if f"{step}{COMPENSATION}" in undone]
        by |= dict.fromkeys(done, fork.id)
        later = _followed(host, fork, [step for step in left if step not in by])
        by |= later.by
        if done or later.by:
            last = later.last
        left = later.left
    return Undoing(by, left, last)


def undone_in(
    host: Host, record: ExecutionRecord, journal: Callable[[], Sequence[Event]]
) -> list[str]:
    """Return the addresses of the steps that a fork at a compensation has undone itself."""
    if not str(record.forked_from).endswith(COMPENSATION):
        return []
    seen: list[Observation] = []
    for moment in walk(host.flows, record.hash, journal(), seen):
        if moment.event["type"] == "retry":
            seen.clear()  # the past of the execution that was forked
    return [address.removesuffix(COMPENSATION) for address in compensations(seen)]


def _forks_at_compensations(host: Host, execution: str) -> Iterator[ExecutionRecord]:
    """Return the forks of an execution that began at a compensation, newest first."""
    forks = every_execution(host.store, ExecutionFilter(forked_from=execution))
    return (record for record in forks if str(record.forked_from).endswith(COMPENSATION))


def compensated(flows: LinkedFlows, hash: str, journal: Sequence[Event]) -> list[str]:
    """Return the addresses of the compensations that have succeeded, or had before a fork."""
    seen: list[Observation] = []
    before: list[str] = []
    for moment in walk(flows, hash, journal, seen):
        if moment.event["type"] == "retry":
            before += moment.event.get("undone", ())
    return before + compensations(seen)


def compensations(seen: Sequence[Observation]) -> list[str]:
    """Return the addresses of the compensations among observations that have succeeded."""
    ended = (observation.address for observation in seen if observation.status == "succeeded")
    return [address for address in ended if address.endswith(COMPENSATION)]

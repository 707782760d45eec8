"""Starting a failed execution again from what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.journals import Moment, final_around, read, state_at, walk
from flowengine.errors import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.engines.driving import Driving
    from flowengine.engines.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.engines.programs import Programs
    from flowengine.kernel.events import Event


Point = tuple[int, int | None]
"""Number of an event, and the unit that it is about."""
_ENDS = ("succeeded", "failed", "lost", "timer", "decided", "message")


def retried(host: Host, driving: Driving, execution: str, step: str | None, by: str) -> Execution:
    """Return a failed execution that is about to start again, with its lease; as `retry`."""
    found = driving.loaded(execution)
    try:
        retry(host, found, step, by)
    except BaseException:
        host.store.release([(found.id, found.epoch)])
        raise
    return found


def retry(host: Host, execution: Execution, step: str | None, by: str) -> None:
    """Take a failed execution back to before the event that failed, and let it go on from there.

    Args:
        host: The engine's.
        execution: Loaded, with its lease; the request is put into its queue.
        step: Address of a step to go back to; None: what the execution failed with.
        by: Who asks.

    Raises:
        Conflict: It has not failed, what it did was undone since, or it was moved since.
    """
    status = execution.state["status"]
    if status != "failed":
        raise Conflict(
            f"execution {execution.id} is {status}; only a failed one can be tried again",
            hint=f"flowengine show {execution.id}",
        )
    journal = read(host.store, execution.id)
    hash = execution.program.hash
    back, unit = _point(host.programs, hash, journal, execution.id, step)
    if any(later["type"] == "upgraded" for later in journal[back:]):
        raise Conflict(
            f"execution {execution.id} was moved to another form of its flow after that",
            hint=f"start again from there: flowengine fork {execution.id} --at STEP",
        )
    event: Any = {
        "type": "retry",
        "at": host.clock.now(),
        "back": back,
        "unit": unit,
        "last": execution.state["last"],
        "by": by,
    }
    execution.put_back(state_at(host.programs, hash, journal, back)[1])
    execution.queue.append(event)


def _point(
    programs: Programs, hash: str, journal: Sequence[Event], execution: str, step: str | None
) -> Point:
    """Return the number of the event to go back before, and the unit that it ended.

    Raises:
        NotFound: Nothing at the address has ended.
        Conflict: Something was undone after it.
    """
    point: Point | None = None
    ended = undone = False
    cleaning = _Cleaning()
    for moment in walk(programs, hash, journal):
        if moment.event["type"] == "retry":
            ended = undone = False
        if ended:
            continue
        cleaning.see(moment)
        ended = moment.state["status"] == "failed"
        if ended if step is None else (moment.address == step and moment.event["type"] in _ENDS):
            point, undone = (moment.number, moment.unit), undone and step is None
        undone = undone or bool(moment.state["undos"])
    if point is None:
        raise NotFound(
            f"nothing at '{step}' has ended in execution {execution}",
            hint=f"its steps are shown by: flowengine show {execution}",
        )
    if undone:
        raise Conflict(
            f"execution {execution} has undone what it did before it failed",
            hint=f"start again from a step: flowengine fork {execution} --at STEP",
        )
    return cleaning.cause(point) if step is None else point


class _Cleaning:
    """What was cleaned up after, and which events were part of that."""

    def __init__(self) -> None:
        self._begun: dict[int, Point] = {}
        """Cleanup → the event by which it began."""
        self._inside: dict[int, int] = {}
        """Unit of a `finally` that ran because of an error → its cleanup."""

    def see(self, moment: Moment) -> None:
        """Note what goes on after an event."""
        state = moment.state
        for number in state.get("cleanups", ()):
            self._begun.setdefault(number, (moment.number, moment.unit))
        for unit in state["units"] if "cleanups" in state else ():
            final = final_around(state, unit)
            if final is not None and final["local"]["error"] is not None:
                self._inside[unit] = final["final"]

    def cause(self, point: Point) -> Point:
        """Return the event that failed, of one by which the cleaning up after it ended."""
        while point[1] in self._inside:
            point = self._begun[self._inside[point[1]]]
        return point

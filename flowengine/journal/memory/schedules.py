"""Schedules of deployed flows, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowengine.journal.records import Scheduled


class MemorySchedules:
    """Keeps the next time of each schedule.

    Args:
        kept: As returned by `listed`.
    """

    def __init__(self, kept: Iterable[Scheduled] = ()) -> None:
        self._kept = {(item.flow, item.schedule): item for item in kept}

    def deploy(
        self, flow: str, hash: str, schedules: Sequence[tuple[str, int, int | None]]
    ) -> None:
        """Replace the schedules of a flow. One that exists keeps its times."""
        before = self._kept
        self.undeploy(flow)
        for schedule, time, due in schedules:
            new = Scheduled(flow, hash, schedule, time, due)
            self._kept[flow, schedule] = before.get((flow, schedule), new)._replace(hash=hash)

    def undeploy(self, flow: str) -> None:
        """Remove the schedules of a flow."""
        self._kept = {at: value for at, value in self._kept.items() if at[0] != flow}

    def listed(self, until: int | None = None) -> list[Scheduled]:
        """Return all schedules by flow and name, or those that are due by a time, by that."""
        scheduled = sorted(self._kept.values(), key=lambda item: (item.flow, item.schedule))
        if until is None:
            return scheduled
        due = [(item.due, item) for item in scheduled if item.due is not None and item.due <= until]
        return [entry for _, entry in sorted(due, key=lambda pair: pair[0])]

    def next_due(self) -> int | None:
        """Return when the next schedule is due."""
        due = (item.due for item in self._kept.values() if item.due is not None)
        return min(due, default=None)

    def move(self, scheduled: Scheduled, time: int, due: int | None) -> bool:
        """Move a schedule to another time, unless it has changed since it was read."""
        at = scheduled.flow, scheduled.schedule
        if self._kept.get(at) != scheduled:
            return False
        self._kept[at] = scheduled._replace(time=time, due=due)
        return True

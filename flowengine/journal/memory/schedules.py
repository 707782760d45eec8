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
        self._kept = {(one.flow, one.schedule): one for one in kept}

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
        self._kept = {at: one for at, one in self._kept.items() if at[0] != flow}

    def listed(self, until: int | None = None) -> list[Scheduled]:
        """Return all schedules by flow and name, or those that are due by a time, by that."""
        found = sorted(self._kept.values(), key=lambda one: (one.flow, one.schedule))
        if until is None:
            return found
        due = [(one.due, one) for one in found if one.due is not None and one.due <= until]
        return [one for _, one in sorted(due, key=lambda pair: pair[0])]

    def next_due(self) -> int | None:
        """Return when the next schedule is due."""
        due = (one.due for one in self._kept.values() if one.due is not None)
        return min(due, default=None)

    def move(self, scheduled: Scheduled, time: int, due: int | None) -> bool:
        """Move a schedule to another time, unless it has changed since it was read."""
        at = scheduled.flow, scheduled.schedule
        if self._kept.get(at) != scheduled:
            return False
        self._kept[at] = scheduled._replace(time=time, due=due)
        return True

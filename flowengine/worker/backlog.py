"""The order in which a worker takes due executions.

It is fair between flows: the flow with the fewest running executions is next. Within a flow, the
execution that has been able to continue for longest is next, whether it is new or old.

An execution whose process died may be the reason for that death. Such executions begin one after
the other, so that one that ends its process again is not mistaken for those beside it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from random import randrange

from flowengine.journal.records import Due

CONCURRENCY = 16
"""How many executions a worker runs at once, by default."""
PROBATION = 10.0
"""Seconds that an execution whose process died must run before another such one begins."""
WINDOW = 16
"""Several workers choose among this many executions, so that they seldom want the same one."""


class Backlog:
    """Executions that are due, and those that one worker runs.

    Args:
        concurrency: How many to run at once.
        per_flow: How many of one flow. None: as many as at once.
        window: Among how many of a flow to choose at random.

    Attributes:
        running: The executions that run, by id.
    """

    def __init__(
        self, concurrency: int = CONCURRENCY, per_flow: int | None = None, window: int = WINDOW
    ) -> None:
        self.running: dict[str, Due] = {}
        self._concurrency = concurrency
        self._per_flow = concurrency if per_flow is None else per_flow
        self._window = window
        self._by_flow: dict[str, deque[Due]] = {}
        self._suspects: deque[Due] = deque()
        self._counts: Counter[str] = Counter()
        self._served: dict[str, int] = {}
        """Flow → when it was chosen last, as a number that rises."""
        self._turn = 0
        self._on_probation: tuple[str, float] | None = None

    def __len__(self) -> int:
        """Return how many executions wait to be taken."""
        return len(self._suspects) + sum(map(len, self._by_flow.values()))

    @property
    def is_full(self) -> bool:
        """Whether no more may run."""
        return len(self.running) >= self._concurrency

    def fill(self, candidates: Iterable[Due]) -> None:
        """Replace the executions that wait.

        Args:
            candidates: Those that are due, longest first.
        """
        self._by_flow, suspects = {}, []
        for due in candidates:
            if due.execution in self.running:
                continue
            if due.deaths:
                suspects.append(due)
            else:
                self._by_flow.setdefault(due.flow, deque()).append(due)
        self._suspects = deque(sorted(suspects, key=lambda due: due.deaths))

    def next(self, now: float) -> Due | None:
        """Return the next execution to take, which counts as running from now on.

        Args:
            now: Monotonic time in seconds.
        """
        if self.is_full:
            return None
        due = self._next_suspect(now) or self._next_of_flows()
        if due is not None:
            self.running[due.execution] = due
            self._counts[due.flow] += 1
            self._turn += 1
            self._served[due.flow] = self._turn
        return due

    def wait(self, now: float) -> float | None:
        """Return the seconds until an execution whose process died may begin, if one waits."""
        if not self._suspects or self._on_probation is None:
            return None
        return max(self._on_probation[1] - now, 0.0)

    def done(self, execution: str) -> None:
        """Note that an execution does not run any more."""
        due = self.running.pop(execution)
        self._counts[due.flow] -= 1
        if self._on_probation is not None and self._on_probation[0] == execution:
            self._on_probation = None

    def _next_suspect(self, now: float) -> Due | None:
        """Return the next execution whose process died, if none of them has just begun."""
        if self._on_probation is not None and now < self._on_probation[1]:
            return None
        for due in self._suspects:
            if self._has_room(due.flow):
                self._suspects.remove(due)
                self._on_probation = due.execution, now + PROBATION
                return due
        return None

    def _next_of_flows(self) -> Due | None:
        flows = [flow for flow, waiting in self._by_flow.items() if waiting]
        flows = [flow for flow in flows if self._has_room(flow)]
        if not flows:
            return None
        flow = min(flows, key=lambda flow: (self._counts[flow], self._served.get(flow, 0)))
        waiting = self._by_flow[flow]
        place = randrange(min(len(waiting), self._window))
        due = waiting[place]
        del waiting[place]
        return due

    def _has_room(self, flow: str) -> bool:
        return self._counts[flow] < self._per_flow

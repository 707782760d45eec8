"""OpenTelemetry metrics of environments, from `list` and from events.

Metrics are only collected, and the library only imported, if the program uses OpenTelemetry: its
SDK is imported, or an `OTEL_...` variable is set. Attributes are kinds, scopes, states and names of
errors, never owners or names, so that their number stays small.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from flowengine.execution_environment.observation.events import PREFIX, Event, Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import CallbackOptions, Observation


class MeasuredManager(Protocol):
    """The measured object: a manager."""

    def subscribe(self, subscriber: Subscriber) -> object:
        """Call a function with every future lifecycle event."""

    def list(self) -> Iterable[Mapping[str, Any]]:
        """Describe declared and open environments."""


NAME = "flowengine.environment"
_managers: weakref.WeakSet[MeasuredManager] = weakref.WeakSet()


def measure(manager: MeasuredManager) -> None:
    """Collect metrics of a manager, if this program uses OpenTelemetry.

    Args:
        manager: The manager, which is not kept alive.
    """
    if not _is_used():
        return
    try:
        counted = _instruments()
    except ModuleNotFoundError:  # only the variables are set
        return
    _managers.add(manager)
    manager.subscribe(EventCounts(*counted))


class EventCounts:
    """Counts the events of one manager.

    Args:
        starts: Counter of openings that have started.
        failures: Counter of failed openings and closings.
        duration: Histogram of the seconds until an environment was ready.
    """

    def __init__(self, starts: Any, failures: Any, duration: Any) -> None:
        self._starts = starts
        self._failures = failures
        self._duration = duration
        self._begun: dict[str | None, float] = {}

    def __call__(self, event: Event) -> None:
        """Count one event."""
        about = {"kind": event.kind, "scope": event.scope}
        name = event.event.removeprefix(PREFIX)
        if name == "ensuring":
            self._starts.add(1, about)
            self._begun[event.id] = event.at
        elif name == "ready" and event.id in self._begun:
            seconds = max(0.0, event.at - self._begun.pop(event.id))
            self._duration.record(seconds, {**about, "provider": event.provider})
        elif name == "failed":
            self._begun.pop(event.id, None)
            self._failures.add(1, {**about, "error.type": event.error or "unknown"})
        elif name == "released":
            self._begun.pop(event.id, None)


def _is_used() -> bool:
    return "opentelemetry.sdk" in sys.modules or any(
        name.startswith("OTEL_") for name in os.environ
    )


@cache
def _instruments() -> tuple[Any, Any, Any]:
    """Create the instruments, once per process. Those based on `list` are read on collection."""
    from importlib.metadata import version

    from opentelemetry import metrics

    meter = metrics.get_meter("flowengine", version("flowengine"))
    meter.create_observable_up_down_counter(
        f"{NAME}.open",
        [_observed(lambda environment: 1)],
        unit="{environment}",
        description="Environments that are open or in another state, as `list` says",
    )
    meter.create_observable_up_down_counter(
        f"{NAME}.holds",
        [_observed(lambda environment: int(environment["holds"]))],
        unit="{hold}",
        description="Holds on them",
    )
    return (
        meter.create_counter(f"{NAME}.starts", "{start}", "Openings that have started"),
        meter.create_counter(f"{NAME}.failures", "{failure}", "Openings and closings that failed"),
        meter.create_histogram(f"{NAME}.start.duration", "s", "Time until one was ready"),
    )


def _observed(
    count: Callable[[Mapping[str, Any]], int],
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        counts: Counter[tuple[tuple[str, str], ...]] = Counter()
        for manager in list(_managers):
            for environment in manager.list():
                if environment["state"] != "declared":
                    about = {
                        key: str(environment[key]) for key in ("kind", "provider", "scope", "state")
                    }
                    counts[tuple(about.items())] += count(environment)
        for attributes, number in counts.items():
            yield Observation(number, dict(attributes))

    return observe

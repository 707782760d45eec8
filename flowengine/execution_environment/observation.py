"""Lifecycle events of environments without their content, and OpenTelemetry metrics of them."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation


# Lifecycle events of environments, without their content.
#
# Every subscriber has its own queue and thread. It therefore receives all events in order, and a
# subscriber that is slow, blocks or raises does not delay others.

PREFIX = "execution_environment."

Name = Literal[
    "declared",
    "ensuring",
    "ready",
    "changed",
    "unhealthy",
    "draining",
    "lost",
    "releasing",
    "released",
    "failed",
    "reaped",
]

KEPT = 10_000
"""Maximum events queued for one subscriber. If it falls further behind, it misses the newest."""


class Event(NamedTuple):
    """One event. It never contains configuration, error messages or output."""

    event: str
    """Name of the event: `execution_environment.ready`, ..."""
    id: str | None
    """Id of the handle. None: it does not exist yet."""
    spec_id: str
    kind: str
    scope: str
    owner_id: str
    resource_key: str
    provider: str
    """The chosen sandbox, or the candidates separated by commas."""
    state: str
    generation: int
    """Generation of the handle. 0: it does not exist yet."""
    number: int
    """Number among the events of one handle, from 1."""
    at: float
    """Seconds since 1970."""
    error: str | None = None
    """Name of the error's type, if any."""
    difference: Mapping[str, Sequence[str]] | None = None
    """For `changed`: the names that were `added`, `changed` or `removed` in its offer."""

    def data(self) -> dict[str, Any]:
        """Return the event as plain data."""
        data = self._asdict()
        if self.difference is None:
            del data["difference"]
        return data


Subscriber = Callable[[Event], object]


class EventPublisher:
    """Delivers events to subscribers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._posts: dict[int, _Post] = {}
        self._last = 0

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call a function with every future event, on a separate thread.

        Args:
            subscriber: Called with each event. Its exceptions are logged once and otherwise
                ignored.

        Returns:
            A function that ends the subscription.
        """
        with self._lock:
            self._last += 1
            number = self._last
            self._posts[number] = _Post(subscriber)

        def unsubscribe() -> None:
            with self._lock:
                self._posts.pop(number, None)

        return unsubscribe

    def publish(self, event: Event) -> None:
        """Queue an event for all subscribers, without blocking."""
        if not self._posts:
            return
        with self._lock:
            for post in self._posts.values():
                post.put(event)

    def flush(self, seconds: float) -> bool:
        """Wait until all events so far have been delivered.

        Args:
            seconds: Maximum time to wait for one subscriber.

        Returns:
            Whether they were.
        """
        with self._lock:
            posts = list(self._posts.values())
        flushed = [post.flush(seconds) for post in posts]  # all of them, even after a failure
        return all(flushed)


class _Post:
    """The queue of one subscriber, and the thread that delivers it while there is something."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self._queue: deque[Event | threading.Event] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failed = False
        self._missed = False

    def put(self, item: Event) -> None:
        if len(self._queue) >= KEPT:
            self._log_once("_missed", "is too slow and misses some")
        else:
            self._append(item)

    def flush(self, seconds: float) -> bool:
        if self._thread is None or threading.current_thread() is self._thread:
            return True
        passed = threading.Event()
        self._append(passed)
        return passed.wait(seconds)

    def _append(self, item: Event | threading.Event) -> None:
        with self._lock:
            self._queue.append(item)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._deliver, name="flowengine-environment-events", daemon=True
                )
                self._thread.start()

    def _deliver(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._thread = None  # the next event starts another one
                    return
                item = self._queue.popleft()
            if isinstance(item, threading.Event):
                item.set()
                continue
            try:
                self._subscriber(item)
            except BaseException as error:
                # The message may contain sensitive data, and the type is enough to identify the
                # error.
                self._log_once("_failed", f"raised {type(error).__name__}")

    def _log_once(self, mark: str, what: str) -> None:
        if getattr(self, mark):
            return
        setattr(self, mark, True)
        import logging

        name = getattr(self._subscriber, "__qualname__", type(self._subscriber).__name__)
        logging.getLogger("flowengine.environments").error(
            "subscriber %s of environment events %s (reported once)", name, what
        )


# OpenTelemetry metrics of environments, from `list` and from events.
#
# Metrics are only collected, and the library only imported, if the program uses OpenTelemetry: its
# SDK is imported, or an `OTEL_...` variable is set. Attributes are kinds, scopes, states and names
# of errors, never owners or names, so that their number stays small.


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
    if "opentelemetry.sdk" not in sys.modules and not any(
        name.startswith("OTEL_") for name in os.environ
    ):
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
        description="Environments by state, as in `list`",
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

"""Who listens to a signal, and what is looked at again when a state key has changed.

Messages go to the oldest that takes them: a wait, or a map that they add an item to. Those that
listen for a key are found by it, so a message costs the same however many listen for others.

Waits with `when` and maps whose `need` names state say which keys they watch. They are looked at
after everything else that follows from an event has been done, the oldest first, and each again
only when a key that it watches was written since: a value that an event sets and changes back is
never seen. The cost follows those that watch what has changed, not those that wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, merge

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.transition import Transition

SEPARATOR = "\n"
"""Between a signal and a key; no signal's name has it."""


def watch(tx: Transition, number: int, keys: Iterable[str]) -> None:
    """Have a wait or an activation looked at when one of these state keys has changed."""
    for key in keys:
        tx.state["watching"].setdefault(key, {})[number] = True


def unwatch(tx: Transition, number: int, keys: Iterable[str]) -> None:
    """End what `watch` began."""
    watching = tx.state["watching"]
    for key in keys:
        watchers = watching.get(key, {})
        watchers.pop(number, None)
        if not watchers:
            watching.pop(key, None)


def listen(tx: Transition, number: int, signal: str, key: Plain = None, unit: int = 0) -> None:
    """Have a wait, of a unit, or the activation of a map offered the messages of a signal."""
    tx.state["listening"].setdefault(_channel(signal, key), {})[number] = unit


def unlisten(tx: Transition, number: int, signal: str, key: Plain = None) -> None:
    """End what `listen` began."""
    for channel in (_channel(signal, key), signal):
        listening = tx.state["listening"].get(channel, {})
        if listening.pop(number, None) is not None and not listening:
            del tx.state["listening"][channel]


def listeners(tx: Transition, signal: str, key: str | None) -> Iterator[int]:
    """Return who may take a message, by age; a message without a key may be for anybody.

    Args:
        signal: The message's signal.
        key: Its key.

    Returns:
        Numbers of waits and activations. Between two of them the listening must not change.
    """
    listening = tx.state["listening"]
    if key is None:
        channels = [name for name in listening if name.partition(SEPARATOR)[0] == signal]
    else:
        channels = [name for name in (signal, _channel(signal, key)) if name in listening]
    return merge(*(listening[name] for name in channels))


def _channel(signal: str, key: Plain) -> str:
    """Return where listeners are found: by signal, and by key where they have one."""
    return f"{signal}{SEPARATOR}{key}" if isinstance(key, str) else signal


def wake(tx: Transition) -> None:
    """Have those looked at that watch the keys that have changed."""
    watching = tx.state["watching"]
    for key in tx.changed if watching else ():
        for number in watching.get(key, ()):
            if number not in tx.awake:
                tx.awake.add(number)
                heappush(tx.watchers, number)
    tx.changed.clear()


def wake_all(tx: Transition) -> None:
    """Have all looked at that watch anything."""
    for numbers in tx.state["watching"].values():
        for number in numbers:
            if number not in tx.awake:
                tx.awake.add(number)
                heappush(tx.watchers, number)


def next_watcher(tx: Transition) -> int:
    """Return the oldest that watches a key that has changed and was not looked at since, or 0."""
    if not tx.watchers:
        return 0
    number = heappop(tx.watchers)
    tx.awake.discard(number)
    return number

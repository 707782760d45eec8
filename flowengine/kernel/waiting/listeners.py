"""Listeners of signals and watchers of state keys.

A message goes to the oldest listener that accepts it: a wait, or a map that adds an item for it.
Listeners with a key are indexed by key, so the cost of a message does not depend on the number of
other listeners.

Waits with `when` and maps whose `need` names state declare the keys that they watch. They are
checked after all other effects of an event, oldest first. Each is checked again only if a key that
it watches was written since then, so a value that an event sets and changes back is never seen. The
cost depends on the number of watchers of changed keys, not on the number of waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, merge

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.transition import Transition

SEPARATOR = "\n"
"""Separates a signal from a key. No signal name contains it."""


def watch(tx: Transition, number: int, keys: Iterable[str]) -> None:
    """Check a wait or an activation again when one of these state keys changes."""
    for key in keys:
        tx.state["watching"].setdefault(key, {})[number] = True


def unwatch(tx: Transition, number: int, keys: Iterable[str]) -> None:
    """Remove a watcher from these state keys."""
    watching = tx.state["watching"]
    for key in keys:
        watchers = watching.get(key, {})
        watchers.pop(number, None)
        if not watchers:
            watching.pop(key, None)


def listen(tx: Transition, number: int, signal: str, key: Plain = None, unit: int = 0) -> None:
    """Offer the messages of a signal to a wait, with its unit, or to the activation of a map."""
    tx.state["listening"].setdefault(_channel(signal, key), {})[number] = unit


def unlisten(tx: Transition, number: int, signal: str, key: Plain = None) -> None:
    """Remove a listener from a signal."""
    for channel in (_channel(signal, key), signal):
        listening = tx.state["listening"].get(channel, {})
        if listening.pop(number, None) is not None and not listening:
            del tx.state["listening"][channel]


def listeners(tx: Transition, signal: str, key: str | None) -> Iterator[int]:
    """Yield the listeners that a message can go to, oldest first. Without a key, all of its signal.

    Args:
        signal: The message's signal.
        key: Its key.

    Returns:
        Numbers of waits and activations. The listeners must not change between two of them.
    """
    listening = tx.state["listening"]
    if key is None:
        channels = [name for name in listening if name.partition(SEPARATOR)[0] == signal]
    else:
        channels = [name for name in (signal, _channel(signal, key)) if name in listening]
    return merge(*(listening[name] for name in channels))


def _channel(signal: str, key: Plain) -> str:
    """Return the index entry of listeners: the signal, and their key if they have one."""
    return f"{signal}{SEPARATOR}{key}" if isinstance(key, str) else signal


def wake(tx: Transition) -> None:
    """Queue the watchers of keys that have changed."""
    watching = tx.state["watching"]
    for key in tx.changed if watching else ():
        for number in watching.get(key, ()):
            if number not in tx.awake:
                tx.awake.add(number)
                heappush(tx.watchers, number)
    tx.changed.clear()


def wake_all(tx: Transition) -> None:
    """Queue all watchers."""
    for numbers in tx.state["watching"].values():
        for number in numbers:
            if number not in tx.awake:
                tx.awake.add(number)
                heappush(tx.watchers, number)


def next_watcher(tx: Transition) -> int:
    """Return the oldest watcher of a changed key that has not been checked since then, or 0."""
    if not tx.watchers:
        return 0
    number = heappop(tx.watchers)
    tx.awake.discard(number)
    return number

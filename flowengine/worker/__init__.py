"""A worker: takes due executions of a store, until it is stopped.

It uses the public interface of the engine only. Several workers, and other processes, can share a
store. `flowengine.worker.loop.Worker` is the worker, `service` runs one as a process.

The answers about health, which need the extra `serve`, are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.worker import health

__all__ = ["health"]

__getattr__ = modules(__name__, *__all__)

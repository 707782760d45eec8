"""A worker: takes due executions of a store, until it is stopped.

It uses the public interface of the engine only. Several workers, and other processes, can share a
store. `flowengine.worker.loop.Worker` is the worker, `service` runs one as a process.
"""

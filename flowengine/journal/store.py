"""The store: what an engine may ask of the place where executions live, as a port for each promise.

| port | promise |
|---|---|
| `ports.flows` | compiled flows |
| `ports.directory` | which executions and waits there are, and how each stands |
| `ports.inbox` | what others bring about in an execution: start, messages, decisions |
| `ports.messages` | messages between executions, their locks and grants |
| `ports.artifacts` | files by their content |
| `ports.history` | journals, to read |
| `ports.journals` | journals, to write: under a lease, and only by what drives the execution |

A store keeps, for each execution, an append-only list of events (the journal, which is the truth),
at most one snapshot (a shortcut for loading) with the lists that it leaves out, and an index of
what people see in lists: status, waits, keys.
It knows no kernel and no flow: events, snapshots, outputs and compiled flows are bytes to it.

Rules that every implementation keeps, and that `flowengine.testing.store_conformance` checks:

- `commit` is the one way to write a journal. It takes the appends of many executions and makes them
  one transaction; when it returns, all of them are as durable as `durability` promises.
- An execution has one writer: the holder of its lease. Each grant of a lease has a higher *epoch*,
  and an append with another epoch than the one in force is refused with `LeaseLost`, alone - the
  other appends are kept.
- A call that raises `StoreError` has changed nothing.
- Anybody may `send` a message to an execution or `decide` a wait; the holder of the lease finds it
  in the inbox and journals it. Both are on disk before they return.

Times are int milliseconds since 1970-01-01T00:00Z, given by the caller; those of leases are read
from any clock that all processes of the store share (see `flowengine.journal.lease_holders`).
A store object may be used from several threads.
"""

from __future__ import annotations

from typing import Literal, Protocol

from flowengine.journal.ports.artifacts import ArtifactPort
from flowengine.journal.ports.directory import DirectoryPort
from flowengine.journal.ports.flows import FlowPort
from flowengine.journal.ports.history import HistoryPort
from flowengine.journal.ports.inbox import InboxPort
from flowengine.journal.ports.journals import JournalPort
from flowengine.journal.ports.messages import MessagePort

Durability = Literal["power", "process", "none"]
"""What a finished commit survives: a power cut, a killed process, nothing."""


class Store(FlowPort, DirectoryPort, HistoryPort, InboxPort, MessagePort, ArtifactPort, Protocol):
    """What everybody but the driver of an execution may ask of a store.

    All methods are synchronous and raise `StoreError` when the store cannot do it.
    """

    @property
    def durability(self) -> Durability:
        """What a finished commit survives, as read back from the store."""

    @property
    def location(self) -> str:
        """Where it is, for messages and for `show`."""

    def close(self) -> None:
        """Close it. What was committed stays; leases are not released."""


class JournalStore(Store, JournalPort, Protocol):
    """A store whose journals are written by the processes that share it: a folder, or memory."""

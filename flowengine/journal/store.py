"""The interface of stores, with one port for each guarantee.

| port | guarantee |
|---|---|
| `ports.flows` | compiled flows |
| `ports.directory` | the existing executions and waits, with their status |
| `ports.inbox` | input from outside: starts, messages, decisions |
| `ports.messages` | messages between executions, their locks and grants |
| `ports.artifacts` | content-addressed files |
| `ports.history` | read access to journals |
| `ports.journals` | write access to journals: under a lease, and only for drivers |

A store keeps, for each execution, an append-only list of events (the journal, which is
authoritative), at most one snapshot (to speed up loading) with the lists that it leaves out, and an
index of the data shown in lists: status, waits, keys. It does not depend on the kernel or on flows:
events, snapshots, outputs and compiled flows are bytes to it.

Rules for every implementation, which `tests.testing.store_conformance` checks:

- `commit` is the only way to write a journal. It writes the appends of many executions in one
  transaction. When it returns, all of them are as durable as `durability` declares.
- An execution has one writer: the holder of its lease. Each grant of a lease has a higher *epoch*.
  An append with another epoch than the current one is refused with `LeaseLost`, while the other
  appends are written.
- A call that raises `StoreError` has changed nothing.
- Any process may `send` a message to an execution or `decide` a wait. The holder of the lease finds
  it in the inbox and journals it. Both are on disk before they return.

Times are int milliseconds since 1970-01-01T00:00Z, given by the caller. Times of leases are read
from any clock that all processes of the store share (see `flowengine.journal.lease_holders`). A
store object may be used from several threads.
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
"""The failure that a finished commit survives: a power cut, a killed process, or none."""


class Store(FlowPort, DirectoryPort, HistoryPort, InboxPort, MessagePort, ArtifactPort, Protocol):
    """The methods of a store for all code except drivers of executions.

    All methods are synchronous and raise `StoreError` if the store fails.
    """

    @property
    def durability(self) -> Durability:
        """The failure that a finished commit survives, as read back from the store."""

    @property
    def location(self) -> str:
        """Its location, for messages and for `show`."""

    def close(self) -> None:
        """Close it. Committed data remains, and leases are not released."""


class JournalStore(Store, JournalPort, Protocol):
    """A store whose journals are written by the processes that share it: a directory, or memory."""

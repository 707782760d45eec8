"""Data that executions share: messages to each other, locks, and grants for whole flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flowengine.journal.records import Beginning, Claimed, FlowGrant, Outgoing, SendResult


class MessagePort(Protocol):
    """Passes messages between executions, and stores their locks and grants."""

    def send_keyed(
        self,
        signal: str,
        key: str,
        event: bytes,
        at: int,
        message_id: str,
        begin: Beginning | None = None,
    ) -> SendResult:
        """Put a signal into the inbox of the oldest open execution that has this key.

        A second message with the same signal, key and id is not stored, regardless of the receiver
        of the first. If two messages would start an execution at the same time, one does, and the
        other goes to that execution.

        Args:
            signal: Name of the signal.
            key: The key, as set by `Append.keys` or an open wait.
            event: The packed event to journal.
            at: When it was sent.
            message_id: Makes it idempotent.
            begin: The execution to create if no open one has the key.

        Returns:
            Its number and execution, and whether it was the first with this id.

        Raises:
            NotFound: No open execution has the key, and none is to be started.
            Conflict: The execution to start is refused, as in `commit`.
        """

    def find_key(self, signal: str, key: str) -> str:
        """Return the id of the execution that `send_keyed` would choose.

        Raises:
            NotFound: No open execution has the key.
        """

    def outbox(self) -> list[Outgoing]:
        """Return the messages of executions that are not settled yet, oldest first."""

    def settle(self, number: int, refused: str | None) -> None:
        """Remove a message from the outbox after its delivery, or mark it as undeliverable.

        Args:
            number: Number of the message.
            refused: Why it is undeliverable. It then stays with its sender.
        """

    def undelivered(self, execution: str) -> list[Outgoing]:
        """Return the undeliverable messages of an execution, oldest first."""

    def claims(self, lock: str) -> list[Claimed]:
        """Return the holders of a lock and the executions waiting for it, in claim order."""

    def grants(self, flow: str | None = None, tool: str | None = None) -> list[FlowGrant]:
        """Return grants, oldest first, including those that are no longer usable.

        Args:
            flow: Only for executions of this flow.
            tool: Only for calls of this tool.
        """

    def revoke(self, grant: str, by: str) -> FlowGrant:
        """Revoke a grant. Once this returns, no vote can use it.

        Args:
            grant: Its full id.
            by: The user who revokes it.

        Returns:
            The grant afterwards.

        Raises:
            NotFound: The grant does not exist.
            Conflict: It was revoked before. `standing` is the grant.
        """

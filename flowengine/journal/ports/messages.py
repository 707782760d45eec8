"""What executions share: messages to each other, locks, and grants for all of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flowengine.journal.records import Beginning, Claimed, FlowGrant, Outgoing, Sent


class MessagePort(Protocol):
    """Passes messages between executions, and knows their locks and grants."""

    def send_keyed(
        self,
        signal: str,
        key: str,
        event: bytes,
        at: int,
        message_id: str,
        begin: Beginning | None = None,
    ) -> Sent:
        """Put a signal into the inbox of the oldest open execution that has this key.

        A second message with the same signal, key and id is not stored, whoever got the first. If
        two would start an execution at the same time, one does, and the other goes to it.

        Args:
            signal: Name of the signal.
            key: The key that `Append.keys` or an open wait gave.
            event: The packed event to journal.
            at: When.
            message_id: Makes it idempotent.
            begin: The execution to create if no open one has the key.

        Returns:
            Its number and execution, and whether it was the first with this id.

        Raises:
            NotFound: No open execution has the key, and none is to be started.
            Conflict: The one to be started cannot be, as in `commit`.
        """

    def find_key(self, signal: str, key: str) -> str:
        """Return the id of the execution that `send_keyed` would choose.

        Raises:
            NotFound: No open execution has the key.
        """

    def outbox(self) -> list[Outgoing]:
        """Return what executions have sent that nobody has settled yet, oldest first."""

    def settle(self, number: int, refused: str | None) -> None:
        """Take a message out of the outbox, since it is where it belongs or nobody can take it.

        Args:
            number: Of the message.
            refused: Why nobody could take it; then it stays with its sender.
        """

    def undelivered(self, execution: str) -> list[Outgoing]:
        """Return what an execution has sent that nobody could take, oldest first."""

    def claims(self, lock: str) -> list[Claimed]:
        """Return who holds a lock and who waits for it, in the order in which they claimed it."""

    def grants(self, flow: str | None = None, tool: str | None = None) -> list[FlowGrant]:
        """Return grants, oldest first; those that cannot be used any more, too.

        Args:
            flow: Only for executions of this flow.
            tool: Only for calls of this tool.
        """

    def revoke(self, grant: str, by: str) -> FlowGrant:
        """End a grant: from when this returns no vote can use it.

        Args:
            grant: Its full id.
            by: Who ends it.

        Returns:
            The grant afterwards.

        Raises:
            NotFound: There is no such grant.
            Conflict: It was revoked before; `standing` is the grant.
        """

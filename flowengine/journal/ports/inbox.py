"""Input to executions from outside: their start, messages, and decisions on their waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.journal.records import Beginning, InboxMessage, SendResult, Standing, Vote


class InboxPort(Protocol):
    """Accepts input to executions, regardless of the process that drives them."""

    def begin(self, beginning: Beginning, files: Sequence[tuple[bytes, str]] = ()) -> None:
        """Create an execution with its first event in the inbox, unless its id exists.

        If this process dies, the execution exists with all of this, or it does not exist and has
        claimed no lock.

        Args:
            beginning: The execution, without a lease holder.
            files: Files that it keeps from the start: bytes and the name of each.

        Raises:
            Conflict: It cannot start, as for `commit`.
        """

    def send(self, execution: str, event: bytes, at: int, message_id: str) -> SendResult:
        """Put a message into the inbox of an open execution.

        Args:
            execution: Full id.
            event: The packed event to journal.
            at: When it was sent.
            message_id: Makes it idempotent: a second message with the same id to this execution is
                not stored.

        Returns:
            Its number, and whether it was the first with this id.

        Raises:
            NotFound: The execution does not exist.
            Conflict: It has ended. `standing` is its record.
        """

    def inbox(self, execution: str) -> list[InboxMessage]:
        """Return the messages to one execution that no append has taken, oldest first."""

    def arrived(self, after: int) -> list[InboxMessage]:
        """Return all untaken messages with a number above `after`, of all executions."""

    def changes(self) -> int:
        """Return a number that differs from the last one if another process has committed.

        Costs microseconds. Commits of this process can change it. Compare only values
        that were read in the same thread.
        """

    def decide(self, wait: str, vote: Vote) -> Standing:
        """Record an answer if none conflicts with it, and notify the execution, in one transaction.

        The first settling vote wins. A vote settles if it does not approve, or if it completes the
        number of approvals in the record's `need` (default 1). Votes listed in the record as
        `votes` count too. Each user has one vote. An accepted vote is in the inbox of the
        execution. The grant that it comes from is used once, and the grant that it contains is
        kept.

        Args:
            wait: Full id of the wait.
            vote: The answer. Permission and data were checked before.

        Returns:
            The result. The caller compares a vote that was not accepted with the decision that
            counts.

        Raises:
            NotFound: The wait does not exist.
        """

"""What others bring about in an execution: its start, messages to it, decisions on its waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.journal.records import Beginning, Message, Sent, Standing, Vote


class InboxPort(Protocol):
    """Accepts what is sent to executions, whoever drives them."""

    def begin(self, beginning: Beginning, files: Sequence[tuple[bytes, str]] = ()) -> None:
        """Create an execution that has its first event in the inbox, unless there is one of its id.

        Calling it again completes what a process that died has left half done.

        Args:
            beginning: The execution, which nobody holds.
            files: What it keeps from the start: bytes and the name of each.

        Raises:
            Conflict: It cannot start: as for `commit`.
        """

    def send(self, execution: str, event: bytes, at: int, message_id: str) -> Sent:
        """Put a message into the inbox of an open execution.

        Args:
            execution: Full id.
            event: The packed event to journal.
            at: When.
            message_id: A second message of the same id to this execution is not stored.

        Returns:
            Its number, and whether it was the first with this id.

        Raises:
            NotFound: There is no such execution.
            Conflict: It has ended; `standing` is its record.
        """

    def inbox(self, execution: str) -> list[Message]:
        """Return the messages to one execution that no append has taken, oldest first."""

    def arrived(self, after: int) -> list[Message]:
        """Return all untaken messages with a number above `after`, of all executions."""

    def changes(self) -> int:
        """Return a number that differs from the last one if another process has committed.

        Costs microseconds. Own commits may or may not change it. Compare only values that were got
        in the same thread.
        """

    def decide(self, wait: str, vote: Vote) -> Standing:
        """Record an answer if none conflicts with it, and notify the execution, in one transaction.

        The first settling vote wins. A vote settles if it does not approve, or if with it the
        record's `need` (default 1) approvals are there, those that the record lists as `votes`
        included. Each person has one vote. An accepted vote is in the inbox of the execution. With
        it the grant that it comes from is used once, and the one that it gives is kept.

        Args:
            wait: Full id of the wait.
            vote: The answer; permission and data have been checked before.

        Returns:
            The result. The caller compares a vote that was not accepted with the decision that
            counts.

        Raises:
            NotFound: There is no such wait.
        """

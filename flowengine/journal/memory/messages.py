"""Messages of executions, and detection of repeated deliveries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flowengine.journal.records import InboxMessage, Outgoing, SendResult

Address = tuple[str, ...]
"""The address of a message: an execution, a key, a wait, or a claim on a lock."""


class Delivered(NamedTuple):
    """A message as stored."""

    address: Address
    message_id: str
    message: InboxMessage


class MemoryMessages:
    """The inboxes and outboxes of all executions."""

    def __init__(self) -> None:
        self._delivered: list[Delivered] = []
        self._arrived = 0
        self._untaken: dict[int, InboxMessage] = {}
        self._outbox: dict[int, Outgoing] = {}
        self._outgoing = 0
        self.changes = 0
        """Incremented with each delivery."""

    # -- inbox

    def sent_before(self, address: Address, message_id: str) -> SendResult | None:
        """Return the result of an earlier delivery of a message, if any."""
        for item in self._delivered:
            if (item.address, item.message_id) == (address, message_id):
                number, execution, _, event = item.message
                return SendResult(number, execution, first=False, event=event)
        return None

    def deliver(
        self, address: Address, message_id: str, execution: str, at: int, event: bytes
    ) -> SendResult:
        """Put a message into the inbox of an execution."""
        self._arrived = number = self._arrived + 1
        message = InboxMessage(number, execution, at, event)
        self._delivered.append(Delivered(address, message_id, message))
        self._untaken[number] = message
        self.changes += 1
        return SendResult(number, execution, first=True, event=event)

    def take(self, execution: str, numbers: Sequence[int]) -> None:
        """Remove journaled messages from the inbox of an execution."""
        for number in numbers:
            if number in self._untaken and self._untaken[number].execution == execution:
                del self._untaken[number]

    def inbox(self, execution: str) -> list[InboxMessage]:
        """Return the messages that an execution has not taken."""
        return [m for m in self._untaken.values() if m.execution == execution]

    def arrived(self, after: int) -> list[InboxMessage]:
        """Return the untaken messages with a number above `after`."""
        return [m for m in self._untaken.values() if m.number > after]

    def forget(self, is_unwanted: Callable[[Delivered], bool]) -> None:
        """Remove messages, taken or not."""
        for item in filter(is_unwanted, self._delivered):
            self._untaken.pop(item.message.number, None)
        self._delivered = [item for item in self._delivered if not is_unwanted(item)]

    def copy(self) -> list[Any]:
        """Return all messages, in both directions, as plain data."""
        delivered = [
            [[*item.address], item.message_id, [*item.message]] for item in self._delivered
        ]
        sent = [[*item] for item in self._outbox.values()]
        return [delivered, [*self._untaken], self._arrived, sent, self._outgoing]

    def restore(self, copy: Sequence[Any]) -> None:
        """Replace all messages by those that `copy` returned."""
        delivered, untaken, self._arrived, sent, self._outgoing = copy
        self._delivered = [Delivered((*a,), id, InboxMessage(*entry)) for a, id, entry in delivered]
        messages = {item.message.number: item.message for item in self._delivered}
        self._untaken = {number: messages[number] for number in untaken}
        self._outbox = {item[0]: Outgoing(*item) for item in sent}

    # -- outbox

    def put_out(self, sender: str, sent: Sequence[Outgoing]) -> None:
        """Put messages into the outbox of an execution."""
        for item in sent:
            self._outgoing += 1
            self._outbox[self._outgoing] = item._replace(number=self._outgoing, sender=sender)

    def outbox(self) -> list[Outgoing]:
        """Return the messages still to be delivered."""
        return [sent for sent in self._outbox.values() if sent.why is None]

    def settle(self, number: int, refused: str | None) -> None:
        """Record that a message of the outbox was delivered, or why it cannot be."""
        if refused is None:
            self._outbox.pop(number, None)
        elif number in self._outbox:
            self._outbox[number] = self._outbox[number]._replace(why=refused)

    def undelivered(self, execution: str) -> list[Outgoing]:
        """Return the messages of an execution that could not be delivered."""
        return [
            sent
            for sent in self._outbox.values()
            if sent.why is not None and sent.sender == execution
        ]

    def prune(self, executions: set[str]) -> None:
        """Remove the received and the undeliverable messages of executions."""
        self.forget(lambda item: item.message.execution in executions)
        self._outbox = {
            number: sent
            for number, sent in self._outbox.items()
            if sent.why is None or sent.sender not in executions
        }

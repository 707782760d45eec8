"""Clients: interfaces that follow calls and answer questions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from flowengine.sdk.background import running_loop
from flowengine.sdk.exception_text import describe
from flowengine.sdk.user_code import contained, within
from flowengine.tool_environment.authority import check_callback
from flowengine.tool_environment.errors import DecisionError, RegistrationError
from flowengine.tool_environment.feed import Feed

_END = 1.0
"""Seconds that a client has to read the last messages."""


class Followed(Protocol):
    """The interface of an environment for its client."""

    feed: Feed

    def decide(self, call_id: str, decision: Any, *, by: str) -> None:
        """Answer an open question."""

    def abort_step(self) -> None:
        """Abort all calls in progress."""

    def abort_call(self, call_id: str) -> bool:
        """Abort one call."""


class Link:
    """The connection of a client to its environment."""

    def __init__(self, environment: Followed) -> None:
        self._environment = environment

    def texts(self, after: float = 0) -> AsyncIterator[str]:
        """Yield messages as JSON texts, as they arrive.

        Args:
            after: Number of the last known message.
        """
        return self._environment.feed.follow(after)

    async def messages(self, after: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Yield messages as dicts, as they arrive.

        Args:
            after: As for `texts`.
        """
        async for text in self.texts(after):
            yield json.loads(text)

    def receive(self, message: Any, by: str = "client") -> dict[str, Any]:
        """Process a message from the client, and return the answer to it.

        `{"type": "decide", "tool_call_id": …, "decision": {…}}` answers a question.
        `{"type": "abort"}` aborts all calls in progress, or one call if it contains `tool_call_id`.

        Args:
            message: The message.
            by: The sender.
        """
        if not isinstance(message, Mapping):
            return _refused("invalid_message", "a message is a map with a type")
        call_id = message.get("tool_call_id")
        kind = message.get("type")
        if kind == "abort" and set(message) <= {"type", "tool_call_id"}:
            if call_id is None:
                self._environment.abort_step()
            elif not (isinstance(call_id, str) and self._environment.abort_call(call_id)):
                return _refused("unknown_call", f"no call {call_id!r} is running")
            return {"type": "accepted"}
        if kind != "decide" or set(message) != {"type", "tool_call_id", "decision"}:
            return _refused("invalid_message", f"no message has the type {kind!r} and these fields")
        try:
            self._environment.decide(str(call_id), message["decision"], by=by)
        except DecisionError as error:
            return {**_refused(error.code, error.message), "field": error.field}
        return {"type": "accepted", "tool_call_id": call_id}


def _refused(code: str, message: str) -> dict[str, Any]:
    return {"type": "refused", "code": code, "message": message}


class ClientTask:
    """Runs the client of an environment as a task, on the loop that uses the environment.

    Args:
        environment: The environment to follow.
        client: The client.

    Raises:
        RegistrationError: It is not a client.
    """

    def __init__(self, environment: Followed, client: Any) -> None:
        if not hasattr(client, "follow"):
            raise RegistrationError(f"{type(client).__name__} is not a client: it has no 'follow'")
        check_callback(client.follow, 1, "'follow' of the client")
        self.client = client
        self._environment = environment
        self._link = Link(environment)
        self._task: asyncio.Task[None] | None = None

    @property
    def decides(self) -> bool:
        """Whether questions are left to the client."""
        return getattr(self.client, "decides", True) is not False

    def start(self) -> None:
        """Start the task if a loop is running, unless the task was started before."""
        if running_loop() is None:
            return
        if self._task is None or self._task.get_loop().is_closed():
            self._task = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        outcome = await contained(self.client.follow(self._link))
        if isinstance(outcome.error, asyncio.CancelledError):
            raise outcome.error
        if outcome.error is not None:
            self._environment.feed.publish(
                "warning", code="client", message=f"the client failed: {describe(outcome.error)}"
            )

    def stop(self) -> None:
        """Cancel the task."""
        if self._task is not None and not self._task.get_loop().is_closed():
            self._task.cancel()

    async def end(self) -> None:
        """Let the client read the last messages, and end the task."""
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            await within(_END, self._task)
        self.stop()


class MemoryClient:
    """Collects all messages in a list, for tests and for interfaces in the same process.

    Args:
        decides: Whether questions are left to it.
    """

    def __init__(self, *, decides: bool = True) -> None:
        self.decides = decides
        self.messages: list[dict[str, Any]] = []
        self.link: Link | None = None

    async def follow(self, link: Link) -> None:
        """Collect arriving messages."""
        self.link = link
        async for message in link.messages():
            self.messages.append(message)
            self.received(message)

    def received(self, message: dict[str, Any]) -> None:
        """Process a message. Subclasses override this."""

"""Clients: interfaces that follow calls and answer questions, here or over a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import math
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel

from flowengine.errors import UsageError
from flowengine.sdk.exception_text import describe
from flowengine.sdk.resources import running_loop
from flowengine.sdk.user_code import contained, lasting, within
from flowengine.sdk.visible_text import cut_text
from flowengine.tool_environment.errors import DecisionError, RegistrationError
from flowengine.tool_environment.observers import check_callback

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response


# A feed of numbered messages about calls.
#
# Followers read at their own pace, and publishers do not wait for them. The number of stored
# messages is limited. A follower that falls behind receives the number of messages that it missed.

Message = dict[str, Any]
MOST = 2_000
"""Maximum stored messages."""
LARGEST = 8 * 1024 * 1024
"""Maximum characters of all stored messages."""
LONGEST_TEXT = 64 * 1024
"""Maximum characters of one text in a message. The middle of a longer text is left out."""


class _Kept(NamedTuple):
    number: int
    text: str


class Feed:
    """The messages of one environment.

    Args:
        mask: Replaces secrets.
    """

    def __init__(self, mask: Callable[[Any], Any]) -> None:
        self._mask = mask
        self._lock = threading.Lock()
        self._kept: deque[_Kept] = deque()
        self._size = 0
        self._closed = False
        self._changed: Future[None] | None = None
        """Done when there is a message, or no further one. None: no follower waits for that."""
        self._listeners: list[Callable[[Message], object]] = []
        self.number = 0
        """Number of the last message."""

    def publish(self, kind: str, **fields: Any) -> None:
        """Publish a message, on any thread.

        Args:
            kind: Type of the message: `call_registered`, `progress`, `finished`, …
            **fields: Plain data and models.
        """
        plain = {name: _plain(value) for name, value in fields.items()}
        with self._lock:
            if self._closed:
                return
            self.number += 1
            message: Message = {"number": self.number, "type": kind, **self._mask(plain)}
            text = text_of(message)
            self._kept.append(_Kept(self.number, text))
            self._size += len(text)
            while len(self._kept) > MOST or (self._size > LARGEST and len(self._kept) > 1):
                self._size -= len(self._kept.popleft().text)
            self._wake()
            listeners = list(self._listeners)
        for listener in listeners:
            _tell(listener, text)

    def listen(self, listener: Callable[[Message], object]) -> Callable[[], None]:
        """Call a function with each future message, on the thread that publishes it.

        Args:
            listener: Must be fast. Its exceptions are logged and otherwise ignored.

        Returns:
            A function that removes the listener.
        """
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    async def follow(self, after: float = 0) -> AsyncIterator[str]:
        """Yield messages as JSON as they arrive, until the feed is closed.

        Discarded messages are replaced by one of type `dropped`, with their `count`.

        Args:
            after: Number of the last known message.
        """
        while True:
            with self._lock:
                waiting = [kept for kept in self._kept if kept.number > after]
                if not waiting:
                    if self._closed:
                        return
                    self._changed = self._changed or lasting()
                    changed = asyncio.wrap_future(self._changed)
            if not waiting:
                await changed
                continue
            missed = waiting[0].number - after - 1
            if missed > 0:
                yield json.dumps(
                    {"number": waiting[0].number - 1, "type": "dropped", "count": missed}
                )
            for kept in waiting:
                if kept.number < self._oldest():  # discarded while the reader was busy
                    break
                yield kept.text
                after = kept.number

    def _oldest(self) -> int:
        with self._lock:
            return self._kept[0].number if self._kept else 0

    def close(self) -> None:
        """Close the feed. Followers receive the stored messages before the end."""
        with self._lock:
            self._closed = True
            self._wake()
            self._listeners.clear()

    def _wake(self) -> None:
        """Wake the followers that wait, within the lock."""
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None


def text_of(message: Message) -> str:
    """Return a message as JSON, with the middle of long texts left out."""
    text = _JSON.encode(message)
    return text if len(text) <= LONGEST_TEXT else _JSON.encode(_cut(message))


def _tell(listener: Callable[[Message], object], text: str) -> None:
    try:
        listener(json.loads(text))
    except Exception:
        logging.getLogger("flowengine.tools").exception("a listener failed")


def _plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value[: LONGEST_TEXT * 3 // 4]).decode()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)[:LONGEST_TEXT]


_JSON = json.JSONEncoder(default=_encoded)


def _cut(value: Any) -> Any:
    """Return plain data with the middle of long texts left out."""
    if isinstance(value, str):
        return cut_text(value, LONGEST_TEXT)
    if isinstance(value, dict):
        return {str(key): _cut(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(item) for item in value]
    return value


# Clients: interfaces that follow calls and answer questions.

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


# A client over WebSocket, through which any number of connections follow an environment.
#
# A connection must present the token: as `Authorization: Bearer TOKEN` or, from a browser, as the
# subprotocol `token.TOKEN` in addition to `flowengine.tools`. A page must also come from an
# allowed origin. Both are checked before a connection is opened. `?after=NUMBER` continues after
# the last known message.

PROTOCOL: Any = "flowengine.tools"
"""The subprotocol of the messages."""
_TOKEN = "token."
_LARGEST = 1024 * 1024
"""Maximum bytes of a received message."""
_PING = 30.0
"""Seconds between two checks whether a connection is alive."""
_CLOSE = 1.0
"""Seconds that connections have to close."""


class WebSocketClient:
    """Serves the messages of an environment over WebSocket, by default only on this machine.

    Args:
        token: Grants access. Default: a new one.
        origins: Origins of pages that may connect, such as `https://desk.example`.
        host: Address to listen on.
        port: Port. 0: any free one.
        decides: Whether questions are left to the connections.

    Attributes:
        token: The token.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        origins: Collection[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        decides: bool = True,
    ) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self.decides = decides
        self._origins: list[Any] = [*origins, None]
        self._address = host, port
        self._url = ""
        self._listening = asyncio.Event()
        self._failed: Exception | None = None

    async def url(self) -> str:
        """Return the address to connect to, once the server is listening.

        Raises:
            UsageError: The server cannot listen.
        """
        await self._listening.wait()
        if self._failed is not None:
            raise UsageError(f"no client can connect: {self._failed}") from self._failed
        return self._url

    async def follow(self, link: Link) -> None:
        """Serve until the environment is disposed of.

        Args:
            link: The connection to the environment.

        Raises:
            UsageError: The required library is not installed.
        """
        try:
            await self._serve(link)
        except Exception as error:
            self._failed = error
            self._listening.set()
            raise

    async def _serve(self, link: Link) -> None:
        try:
            from websockets.asyncio.server import serve
        except ModuleNotFoundError:
            raise UsageError(
                "a client over WebSocket needs websockets, which is not installed",
                hint='pip install "flowengine[websocket]"',
            ) from None

        async def connected(socket: ServerConnection) -> None:
            await _talk(socket, link)

        async with serve(
            connected,
            *self._address,
            origins=self._origins,
            process_request=self._refusal,
            select_subprotocol=_protocol,
            compression=None,
            ping_interval=_PING,
            close_timeout=_CLOSE,
            max_size=_LARGEST,
            logger=logging.Logger("websocket", logging.CRITICAL),  # silent about the refused
        ) as server:
            host, port = server.sockets[0].getsockname()[:2]
            self._url = f"ws://{host}:{port}/"
            self._listening.set()
            async for _ in link.texts(after=math.inf):  # until there are no more
                pass
            leaving = [asyncio.ensure_future(each.wait_closed()) for each in server.connections]
            if leaving:  # they read the last messages
                await asyncio.wait(leaving, timeout=_CLOSE)

    def _refusal(self, socket: ServerConnection, request: Request) -> Response | None:
        """Return why a connection is refused, or None. The library refuses wrong origins."""
        given = _token_of(request).encode(errors="replace")
        if not hmac.compare_digest(given, self.token.encode()):
            return socket.respond(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong\n")
        if not _after(request).isdecimal():
            return socket.respond(HTTPStatus.BAD_REQUEST, "'after' is not a number\n")
        return None


def _protocol(_: ServerConnection, offered: Sequence[str]) -> Any:
    return PROTOCOL if PROTOCOL in offered else None


def _token_of(request: Request) -> str:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    offered = ",".join(request.headers.get_all("Sec-WebSocket-Protocol")).split(",")
    tokens = (each.strip() for each in offered if each.strip().startswith(_TOKEN))
    return next(tokens, "").removeprefix(_TOKEN)


def _after(request: Request) -> str:
    return parse_qs(urlsplit(request.path).query).get("after", ["0"])[0]


async def _talk(socket: ServerConnection, link: Link) -> None:
    """Answer the messages of a connection, and send it those of the environment meanwhile."""
    from websockets.exceptions import ConnectionClosed

    assert socket.request is not None
    after = int(_after(socket.request))

    async def send() -> None:
        """Send messages as fast as the other side reads them, then close the connection."""
        with suppress(ConnectionClosed):  # disconnected, and the client may reconnect
            async for text in link.texts(after):
                await socket.send(text)
            await socket.close()

    sending = asyncio.ensure_future(send())
    try:
        with suppress(ConnectionClosed):
            async for text in socket:
                await socket.send(json.dumps(link.receive(_data(text), by="websocket")))
    finally:
        sending.cancel()
        await asyncio.wait([sending])


def _data(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None

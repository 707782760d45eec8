"""A client over WebSocket, through which any number of connections follow an environment.

A connection must present the token: as `Authorization: Bearer TOKEN` or, from a browser, as the
subprotocol `token.TOKEN` in addition to `flowengine.tools`. A page must also come from an allowed
origin. Both are checked before a connection is opened. `?after=NUMBER` continues after the last
known message.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import math
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from flowengine.errors import UsageError

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response

    from flowengine.tool_environment.clients import Link

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

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
import secrets
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from flowengine.errors import UsageError

if TYPE_CHECKING:
    from aiohttp import web

    from flowengine.tool_environment.clients import Link

PROTOCOL = "flowengine.tools"
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
        self._origins = frozenset(origins)
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
            from aiohttp import web
        except ModuleNotFoundError:
            raise UsageError(
                "a client over WebSocket needs aiohttp, which is not installed",
                hint='pip install "flowengine[websocket]"',
            ) from None

        async def connect(request: web.Request) -> web.StreamResponse:
            return await self._connection(request, link)

        app = web.Application()
        app.router.add_get("/", connect)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSE)
        await runner.setup()
        try:
            await web.TCPSite(runner, *self._address).start()
            host, port = runner.addresses[0][:2]
            self._url = f"ws://{host}:{port}/"
            self._listening.set()
            await link.closed()
        finally:
            await runner.cleanup()

    async def _connection(self, request: web.Request, link: Link) -> web.StreamResponse:
        from aiohttp import web

        refusal = self._refusal(request)
        if refusal is not None:
            return web.json_response({"error": refusal[1]}, status=refusal[0])
        try:
            after = int(request.query.get("after", "0"))
        except ValueError:
            return web.json_response({"error": "'after' is not a number"}, status=400)
        socket = web.WebSocketResponse(
            protocols=[PROTOCOL], heartbeat=_PING, max_msg_size=_LARGEST, timeout=_CLOSE
        )
        await socket.prepare(request)
        sending = asyncio.ensure_future(_send(socket, link, after))
        try:
            await _receive(socket, link)
        finally:
            sending.cancel()
            await asyncio.wait([sending])
        return socket

    def _refusal(self, request: web.Request) -> tuple[int, str] | None:
        """Return why a connection is refused, or None."""
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self._origins:
            return 403, f"the origin {origin} is not allowed"
        if not hmac.compare_digest(_token_of(request).encode(), self.token.encode()):
            return 401, "the token is missing or wrong"
        return None


def _token_of(request: web.Request) -> str:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith(_TOKEN):
            return protocol.strip().removeprefix(_TOKEN)
    return ""


async def _send(socket: web.WebSocketResponse, link: Link, after: int) -> None:
    """Send messages as fast as the other side reads them, then close the connection."""
    try:
        async for text in link.texts(after):
            await socket.send_str(text)
        await socket.close()
    except ConnectionError:  # disconnected, and the client may reconnect
        return


async def _receive(socket: web.WebSocketResponse, link: Link) -> None:
    from aiohttp import WSMsgType

    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            continue
        try:
            request: Any = json.loads(message.data)
        except ValueError:
            request = None
        await socket.send_str(json.dumps(link.receive(request, by="websocket")))

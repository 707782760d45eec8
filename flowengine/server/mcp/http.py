"""MCP at `/mcp` of the server (streamable HTTP), with the bearer tokens of the API."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.routing import Route as PathRoute
from starlette.types import Receive, Scope, Send

from flowengine.errors import FlowEngineError
from flowengine.sdk.python.user_code import on_thread
from flowengine.server.application import Application, address_of
from flowengine.server.mcp.calls import Caller, ToolCalls
from flowengine.server.mcp.sdk import UserSessions, mcp_server
from flowengine.server.places import Places
from flowengine.server.problems import problem_response
from flowengine.server.refusals import RequestRefused
from flowengine.server.rights import CHECKED_EVERY

PATH = "/mcp"
MOST_SESSIONS = 500
"""Sessions of clients up to 2025-11-25 that are open at the same time."""
SESSIONS = Places("sessions of MCP", 100)
"""The share of each user. The SDK, which ends sessions, counts them."""
IDLE_SECONDS = 600.0
"""Seconds without a request after which a session ends."""
GRACE_SECONDS = 5.0
"""Seconds that open calls have to answer when the server stops."""
_CALLER = "flowengine.caller"


def mcp_routes(application: Application) -> list[PathRoute]:
    """Return the routes of MCP.

    Args:
        application: The server.
    """
    return [PathRoute(PATH, _Door(application))]


class _Door:
    """Checks the credential of each request, and passes it on to the SDK.

    Args:
        application: The server.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._manager: StreamableHTTPSessionManager | None = None
        self._opening = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._idle = asyncio.Event()
        self._open_calls = 0
        application.closing.append(self._closing.set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, principal = Request(scope, receive), None
        try:
            principal = await self._application.admit(request)
            manager = await self._open()
        except FlowEngineError as error:
            if isinstance(error, RequestRefused):
                await self._application.note(request, principal, error.status, error.message)
            await problem_response(error)(scope, receive, send)
            return
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        scope["user"] = AuthenticatedUser(
            AccessToken(token="", client_id=principal.token, scopes=[], subject=principal.user)
        )  # to whom the SDK binds the session
        base = f"{request.url.scheme}://{request.headers['host']}"  # one of the server's own names
        scope[_CALLER] = Caller(
            principal,
            address_of(request),
            lambda id: f"{base}/executions/{id}",
            lambda id: f"{base}/approvals/{id}",
        )
        if request.method != "POST":  # streams of sessions, which end with the manager
            stream = asyncio.ensure_future(manager.handle_request(scope, receive, send))
            with suppress(RequestRefused):
                try:
                    while not (await asyncio.wait({stream}, timeout=CHECKED_EVERY))[0]:
                        await on_thread(principal.check)
                    await stream
                finally:
                    stream.cancel()
            return
        self._open_calls += 1
        try:
            await manager.handle_request(scope, receive, send)
        except RequestRefused as error:
            await self._application.note(request, principal, error.status, error.message)
            await problem_response(error)(scope, receive, send)
        finally:
            self._open_calls -= 1
            if not self._open_calls:
                self._idle.set()

    async def _open(self) -> StreamableHTTPSessionManager:
        """Return the SDK's manager of sessions, which the first request starts.

        Raises:
            RequestRefused: The SDK is not installed, or the server stops.
        """
        async with self._opening:
            if self._manager is None:
                try:
                    manager = await on_thread(lambda: _manager(self._application))
                except ModuleNotFoundError as error:
                    raise RequestRefused(
                        501,
                        f"MCP needs the package {error.name} on the server",
                        hint="pip install 'flowengine[mcp]'",
                    ) from None
                started = asyncio.Event()
                self._running = asyncio.create_task(self._run(manager, started))
                await started.wait()
                self._manager = manager
        if self._application.is_closing:
            raise RequestRefused(503, "the server stops")
        return self._manager

    async def _run(self, manager: StreamableHTTPSessionManager, started: asyncio.Event) -> None:
        """Run the manager until the server stops, and let open calls answer first."""
        async with manager.run():
            started.set()
            await self._closing.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    while self._open_calls:
                        self._idle.clear()
                        await self._idle.wait()


def _manager(application: Application) -> StreamableHTTPSessionManager:
    return UserSessions(
        SESSIONS,
        mcp_server(ToolCalls(application), lambda ctx: ctx.request.scope[_CALLER]),
        session_idle_timeout=IDLE_SECONDS,
        max_sessions=MOST_SESSIONS,
    )

"""Opens sessions with MCP servers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar

from pydantic import BaseModel

from flowengine.sdk import (
    EnvironmentStartFailed,
    EnvironmentUnavailable,
    Plain,
    ToolError,
)
from flowengine.sdk.environments import (
    Axis,
    Capabilities,
    Changes,
    LoginPage,
    Provider,
    Request,
    Resource,
    Spec,
    both_forms,
)
from flowengine.sdk.environments.models import has_reference
from flowengine.sdk.files.logins import Login
from flowengine.sdk.python.extras import install_command
from flowengine.sdk.tools.browser_tools import OfferedTool
from flowengine_envs.kinds.supervised import Traces
from flowengine_envs.link.call_limits import DISK
from flowengine_envs.mcp import library
from flowengine_envs.mcp.authorization import SessionTokens, log_in
from flowengine_envs.mcp.downloads import fetches
from flowengine_envs.mcp.guarded_client import GuardedClient
from flowengine_envs.mcp.messages import LARGEST
from flowengine_envs.mcp.server_config import McpConfig, needs_user
from flowengine_envs.mcp.session import ConnectionSettings, McpSession, McpToolResult
from flowengine_envs.mcp.stdio import HOST, SandboxedServer, StdioServer, text_of
from flowengine_envs.mcp.tool_list import nearest


class Sessions(Resource):
    """Sessions with several servers: `add` of the server `sums` is the tool `sums.add`.

    Args:
        request: The request to open the environment.
        servers: The open sessions by the names of the servers.
    """

    def __init__(self, request: Request, servers: Mapping[str, McpSession]) -> None:
        super().__init__(request)
        self.servers = servers
        """The session of each server."""

    async def _list_tools(self) -> list[dict[str, Plain]]:
        """Return the tools of all servers, each under its name here."""
        listed = await asyncio.gather(*(server._list_tools() for server in self.servers.values()))
        return [
            {**tool, "name": f"{name}.{tool['name']}"}
            for name, tools in zip(self.servers, listed, strict=True)
            for tool in tools
        ]

    list_tools, async_list_tools = both_forms(_list_tools)

    async def _offers(self) -> list[OfferedTool]:
        """Return the tools of all servers as offered to models."""
        listed = await asyncio.gather(*(server._offers() for server in self.servers.values()))
        return [
            offer._replace(name=f"{name}.{offer.name}")
            for name, offers in zip(self.servers, listed, strict=True)
            for offer in offers
        ]

    offers, async_offers = both_forms(_offers)

    async def _call_tool(
        self, /, name: str, args: Mapping[str, Plain] | None = None, **options: Any
    ) -> McpToolResult:
        """Call a tool once, as `McpSession.call_tool` does.

        Args:
            name: `server.tool`.
            args: Its arguments.
            options: Those of `McpSession.call_tool`.

        Returns:
            The answer, which may be a tool error.

        Raises:
            NeedsInput: The server requests input. The call has ended, and can be made again.
            ToolChanged: It differs from the offered tool and was not called.
            ToolError: The server or tool does not exist, or the server refused the call.
            Timeout: There was no answer in time.
            EnvironmentLost: The server has ended. The outcome is unknown.
        """
        server, _, tool = name.partition(".")
        if server not in self.servers:
            message = f"{self.name}: there is no server '{server}'{nearest(server, self.servers)}"
            raise ToolError(message, retryable=False)
        return await self.servers[server]._call_tool(tool, args, **options)

    inputs = staticmethod(McpSession.inputs)
    approved = staticmethod(McpSession.approved)

    def tool_text(self, name: str) -> str | None:
        """Return a server's last description of a tool. None: it has not been read yet."""
        server, _, tool = name.partition(".")
        return self.servers[server].tool_text(tool) if server in self.servers else None

    call_tool, async_call_tool = both_forms(_call_tool)

    async def ping(self) -> bool:
        """Return whether all servers respond."""
        return all(await asyncio.gather(*(server.ping() for server in self.servers.values())))

    async def close(self) -> None:
        """End all sessions, and the servers that were started for them."""
        await asyncio.gather(*(server.close() for server in self.servers.values()))


_CONNECT = 30.0
_LAST_SECONDS = 5.0
_PASSING = frozenset({408, 425, 429})
"""Error statuses that may be temporary."""
_SECONDS = 300.0
"""Seconds of a call, if the spec sets no `time`."""


class Mcp(Provider[McpSession | Sessions]):
    """Opens sessions, over the standard streams of a process (`command`) or over HTTP (`url`)."""

    kind = "mcp"
    sandbox = "namespace"
    sample: ClassVar[Mapping[str, Plain]] = {"command": "true"}

    def config_model(self) -> type[BaseModel]:
        return McpConfig

    def default_sandbox(self, config: Mapping[str, Any]) -> str | None:
        """Return `namespace` for downloaded code, `host` for other programs, None for URLs."""
        servers = config.get("servers")
        each = servers.values() if isinstance(servers, Mapping) else [config]
        started = [item for item in each if isinstance(item, Mapping) and item.get("url") is None]
        if not started:
            return None
        programs = {fetches(item.get("command"), item.get("args")) for item in started}
        return HOST if programs == {False} else self.sandbox

    def acts_for_user(self, config: Mapping[str, Any]) -> bool:
        """Return whether a server has `auth: oauth`, with tokens of the user."""
        if "auth" not in config and "servers" not in config:
            return False

        return needs_user(config)

    async def log_in(self, login: Login, secret: str | None, page: LoginPage) -> Login:
        """Let a user log in at the authorization server of an MCP server."""
        await asyncio.to_thread(_import)
        return await log_in(login, secret, page)

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return the guarantees of the sandbox, if any, and those enforced per message."""
        # On the host nothing limits files, and a remote server enforces its own limits.
        held = sandbox.without("disk") if sandbox.isolation == "none" else sandbox
        disk: dict[Axis, float] = {"disk": DISK} if "disk" in held.holds else {}
        return held.also(
            {
                "variables": "only those that are declared",
                "time": "a call is given up",
                "output": "a longer message is not taken in",
            },
            {"output": LARGEST, "time": _SECONDS, **disk},
        )

    async def probe(self, spec: Spec) -> None:
        """Check that the protocol library is installed. The server's program is not checked."""
        try:
            await asyncio.to_thread(_import)
        except ModuleNotFoundError as error:
            raise EnvironmentUnavailable(
                f"{spec}: needs the package mcp: {install_command('mcp')}"
            ) from error
        for config in [spec.config, *spec.config.servers.values()]:
            command = config.command or ()
            for word in (*([command] if isinstance(command, str) else command), *config.args):
                if has_reference(word):
                    raise EnvironmentUnavailable(
                        f"{spec}: all users of this machine can read a command line, and it has "
                        f"{word}; pass secrets in 'env'"
                    )

    async def ensure(self, request: Request) -> McpSession | Sessions:
        """Connect to the server, or to all of them, before the deadline."""
        config = request.config
        if not config.servers:
            return await _session(request, config)
        opened: dict[str, McpSession] = {}
        request = request._replace(trace=Traces(request.trace))
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, server in config.servers.items():
                    tasks.create_task(_keep(opened, name, _session(request, server, name)))
        except BaseException as error:
            await asyncio.shield(Sessions(request, opened).close())
            # The others were cancelled after this one failed.
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None
        return Sessions(request, {name: opened[name] for name in config.servers})

    async def health_check(self, resource: McpSession | Sessions) -> bool:
        """Return whether the server responds."""
        return await resource.ping()

    async def release(self, resource: McpSession | Sessions) -> None:
        """End the session, and the server's processes."""
        await resource.close()


def _import() -> None:
    """Import the protocol library, which takes a second, so not on the event loop.

    It logs errors of servers with tracebacks. These are dropped, because the callers receive the
    errors.
    """
    import mcp  # noqa: F401

    if (logger := logging.getLogger("mcp")).level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    logging.getLogger("client").addFilter(_not_of_library)


def _not_of_library(record: logging.LogRecord) -> bool:
    """Return whether a record of a logger with a common name comes from other code."""
    return os.sep + os.path.join("mcp", "client") + os.sep not in record.pathname


async def _keep(opened: dict[str, McpSession], name: str, opening: Awaitable[McpSession]) -> None:
    opened[name] = await opening


def _changed(tell: Changes, server: str, **names: Sequence[str]) -> None:
    """Report a change of one of several servers."""
    tell(**{how: [f"{server}.{name}" for name in each] for how, each in names.items()})


async def _session(request: Request, config: Any, server: str = "") -> McpSession:
    """Return a session with one server, which must respond before the deadline."""
    if server:
        id = f"{request.id}-{server}"
        mark = f"{id}@{request.mark.partition('@')[2]}"
        changed = partial(_changed, request.changed, server)
        request = request._replace(id=id, mark=mark, changed=changed)
    # It may query a package manager for its registries.
    place = f"{request.spec}, server '{server}'" if server else str(request.spec)
    connection = await asyncio.to_thread(_connection, request, config, place)
    session = McpSession(request, config, connection, server)
    now = asyncio.get_running_loop().time()
    # Before the deadline, which leaves time to report the server's output and to end it.
    until = request.deadline - min(_LAST_SECONDS, 0.25 * (request.deadline - now))
    try:
        async with asyncio.timeout_at(until):
            await session.connect()
    except TimeoutError:
        await asyncio.shield(session.close())
        raise EnvironmentStartFailed(
            f"{session.name}: the server did not answer in time{session.last_output()}"
        ) from None
    except BaseException:
        await asyncio.shield(session.close())
        raise
    return session


def _connection(request: Request, config: Any, place: str) -> ConnectionSettings:
    if config.command is not None:
        largest = request.limits.output or LARGEST
        server = StdioServer(SandboxedServer(request, config), largest=largest)
        return ConnectionSettings(
            lambda: server, server.last_output, again=False, final=lambda: server.ended
        )
    return _http(request, config, place)


def _http(request: Request, config: Any, place: str) -> ConnectionSettings:
    """Return the connection to a server over HTTP."""
    headers = {name: text_of(value) for name, value in config.headers.items()}
    # A small response must not become a large one.
    headers.setdefault("accept-encoding", "identity")
    largest = request.limits.output or LARGEST
    seconds = max(_SECONDS, request.limits.time or 0)
    clients: list[GuardedClient] = []
    tokens: SessionTokens | None = None
    if config.auth is not None:
        tokens = SessionTokens(request, config, place)

    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        import httpx2

        timeout = httpx2.Timeout(_CONNECT, read=seconds)
        async with GuardedClient(largest, tokens, headers=headers, timeout=timeout) as client:
            clients[:] = [client]
            async with library.streamable_http_client(
                config.url, http_client=client, max_sse_event_size=largest
            ) as (receive, send):
                yield receive, send

    def last_output() -> str:
        refused = clients[0].refused if clients else None
        return f"; it answered with HTTP status {refused}" if refused else ""

    def final() -> bool:
        refused = clients[0].refused if clients else None
        return refused is not None and 400 <= refused < 500 and refused not in _PASSING

    if tokens is None:
        return ConnectionSettings(transport, last_output, again=True, final=final)
    return ConnectionSettings(transport, last_output, True, final, tokens.failure, tokens.masked)

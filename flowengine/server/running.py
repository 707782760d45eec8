"""The server as a process: its socket, its signals, and its end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from ipaddress import ip_address
from typing import NamedTuple

import uvicorn
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from flowengine.engines.engine import Engine
from flowengine.errors import UsageError
from flowengine.sdk.web.urls import is_loopback
from flowengine.server.application import Application
from flowengine.server.guard import PER_MINUTE, Hosts
from flowengine.server.problems import problem_response
from flowengine.server.records import ServerRecords, server_folder
from flowengine.server.refusals import RequestRefused
from flowengine.util.blocking import run_on_new_loop

_LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
_GRACE = 10
"""Seconds that open requests have to end when the server stops."""
_LARGEST_HEAD = 32 * 1024
READER_SECONDS = 60
"""Seconds after which a client that takes none of an answer is disconnected."""


class Serving(NamedTuple):
    """Where and how to serve."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8383
    """0: any free one."""
    certificate: str | None = None
    """File with the TLS certificate chain (PEM)."""
    private_key: str | None = None
    """File with its private key (PEM)."""
    proxies: tuple[str, ...] = ()
    """Addresses of proxies in front, which speak TLS to the users."""
    public: tuple[str, ...] = ()
    """Further names under which users reach it: `flows.example.com`."""
    connections: int = 1000
    """Most open connections."""
    per_minute: int = PER_MINUTE
    """Requests of each identity in a minute."""
    pages: tuple[str, ...] = ()
    """Origins of Temporal's own pages, which may have payloads decoded."""


class Ready(NamedTuple):
    """The address and the token file of a server that accepts requests."""

    url: str
    token_file: str


def check(serving: Serving) -> None:
    """Check that other machines are only served with TLS or behind a proxy.

    Raises:
        UsageError: They are not, or the options contradict each other.
    """
    if (serving.certificate is None) != (serving.private_key is None):
        raise UsageError("TLS needs a certificate and its private key", hint="give both files")
    for proxy in serving.proxies:
        try:
            ip_address(proxy)
        except ValueError:
            raise UsageError(f"proxy {proxy!r} is not an IP address") from None
    for page in serving.pages:
        scheme, _, name = page.partition("://")
        if scheme not in ("http", "https") or not name or set(name) & set("/?#@*, "):
            raise UsageError(
                f"{page!r} is not the origin of a page",
                hint="give its scheme and host: https://temporal.example.com",
            )
    if is_loopback(serving.host) or serving.certificate is not None or serving.proxies:
        return
    raise UsageError(
        f"on {serving.host} other machines would send their tokens in plain text",
        hint="give --tls-certificate and --tls-key, or --proxy with the address of the proxy "
        "that speaks TLS",
    )


def serve(
    engine: Engine,
    serving: Serving,
    on_ready: Callable[[Ready], None],
    pages: Callable[[Application], Sequence[BaseRoute]] = lambda application: (),
    beside: Future[int] | None = None,
) -> None:
    """Serve a store until SIGTERM or SIGINT.

    Args:
        engine: The store's engine. It must not drive executions.
        serving: Where and how.
        on_ready: Called once requests are accepted.
        pages: Returns the routes of the page.
        beside: A worker of this process, with which the server ends.
    """
    check(serving)
    records = ServerRecords(server_folder(engine.store.location))
    try:
        token, token_file = records.local_token()
        listening = _listen(serving)
        port = listening.getsockname()[1]
        hosts = Hosts(frozenset(_names(serving, port)), serving.pages)

        async def run() -> None:
            application = Application(engine, records, hosts, token, pages, serving.per_minute)
            server = BoundedServer(application, serving)
            server.on_ready = lambda: on_ready(Ready(_url(serving, port), token_file))
            if beside is not None:
                loop = asyncio.get_running_loop()

                def end(_: object) -> None:
                    if loop.is_running():
                        loop.call_soon_threadsafe(server.stop)

                beside.add_done_callback(end)
            await server.serve(sockets=[listening])

        run_on_new_loop(run())
    finally:
        records.close()


class _BehindProxy:
    """Lets only a proxy connect, whose word about the address of the client counts.

    Args:
        application: The application.
        proxies: Addresses of the proxies.
    """

    def __init__(self, application: Application, proxies: Sequence[str]) -> None:
        self._application = application
        self._proxies = proxies
        self._app: ASGIApp = ProxyHeadersMiddleware(application.asgi, [*proxies])  # type: ignore[arg-type, assignment]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        client = scope.get("client")
        if client is not None and client[0] in self._proxies:
            await self._app(scope, receive, send)
            return
        refused = RequestRefused(403, "only the proxy may connect")
        await self._application.note_refusal(scope, refused)
        await problem_response(refused)(scope, receive, send)


class BoundedServer(uvicorn.Server):
    """uvicorn's server with its limits. It ends its streams first when it stops.

    Args:
        application: The application.
        serving: Where and how to serve.
    """

    def __init__(self, application: Application, serving: Serving) -> None:
        in_plain_text = serving.certificate is None and not is_loopback(serving.host)
        app: ASGIApp = application.asgi
        if in_plain_text:
            app = _BehindProxy(application, serving.proxies)
        elif serving.proxies:
            app = ProxyHeadersMiddleware(app, [*serving.proxies])  # type: ignore[arg-type, assignment]
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                h11_max_incomplete_event_size=_LARGEST_HEAD,
                limit_concurrency=serving.connections,
                ws="none",
                lifespan="off",
                loop="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ssl_certfile=serving.certificate,
                ssl_keyfile=serving.private_key,
                timeout_graceful_shutdown=_GRACE,
            )
        )
        self._application = application
        self.on_ready: Callable[[], None] = lambda: None
        """Called once requests are accepted."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen. Connections inherit the option of their socket."""
        for listening in sockets or ():
            seconds = READER_SECONDS * 1000
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds)
        await super().startup(sockets)
        self._wanting = asyncio.create_task(self._application.want_replies())
        if not self.should_exit:
            self.on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: streams first, because they would last until the end of the grace time."""
        self._application.close()
        self._wanting.cancel()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at the first signal, and at once at the second. uvicorn would raise it again."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        try:
            for number in numbers:
                loop.add_signal_handler(number, self.stop)
        except (ValueError, RuntimeError):  # on another thread, whose program stops it itself
            yield
            return
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Stop, and at the second call at once."""
        self.force_exit = self.should_exit
        self.should_exit = True


def _listen(serving: Serving) -> socket.socket:
    """Return a listening socket.

    Raises:
        UsageError: The address cannot be used.
    """
    try:
        addresses = socket.getaddrinfo(serving.host, serving.port, type=socket.SOCK_STREAM)
        family, kind, _, _, address = addresses[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {serving.host}:{serving.port}: {error.strerror or error}",
            hint="choose another one: --port 0 takes any free port",
        ) from None
    listening.listen(2048)
    return listening


def _names(serving: Serving, port: int) -> Iterator[str]:
    """Yield the values of `Host` that mean this server."""
    for name in (*_LOCAL_NAMES, *([] if _is_any(serving.host) else [_in_url(serving.host)])):
        yield f"{name}:{port}".lower()
    for name in serving.public:
        yield name.lower()


def _url(serving: Serving, port: int) -> str:
    scheme = "http" if serving.certificate is None else "https"
    host = "127.0.0.1" if _is_any(serving.host) else _in_url(serving.host)
    return f"{scheme}://{host}:{port}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::", "")

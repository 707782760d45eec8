"""Health, readiness and metrics of a worker by HTTP. Needs Starlette and uvicorn (extra `serve`).

`routes` form a small separate application. A server can add them to its own routes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from flowengine.errors import FlowEngineError, UsageError
from flowengine.worker.measures import Measure

_CONNECTIONS = 64
_HEAD = 8192
"""Largest head of a request, in bytes."""
_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""The text format of Prometheus."""


def routes(is_ready: Callable[[], bool], measures: Callable[[], list[Measure]]) -> list[Route]:
    """Return the routes `/healthz`, `/readyz` and `/metrics`.

    Args:
        is_ready: Whether the worker accepts work. False before it begins and while it drains.
        measures: Returns its numbers.
    """

    async def health(_: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def readiness(_: Request) -> PlainTextResponse:
        ready = is_ready()
        return PlainTextResponse("ready\n" if ready else "not ready\n", 200 if ready else 503)

    async def metrics(_: Request) -> PlainTextResponse:
        try:
            values = measures()
        except FlowEngineError as error:
            return PlainTextResponse(f"{error}\n", 503)
        return PlainTextResponse("".join(map(_as_text, values)), media_type=_FORMAT)

    return [Route("/healthz", health), Route("/readyz", readiness), Route("/metrics", metrics)]


def _as_text(measure: Measure) -> str:
    kind = "counter" if measure.is_total else "gauge"
    name = f"flowengine_worker_{measure.name}"
    return f"# HELP {name} {measure.help}\n# TYPE {name} {kind}\n{name} {measure.value:g}\n"


class _Server(uvicorn.Server):
    """A server that leaves signals to the worker."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def answering(routes: list[Route], host: str, port: int) -> AsyncIterator[int]:
    """Answer requests on the running event loop while the context is open.

    Args:
        routes: The routes.
        host: Address to listen at.
        port: Its port. 0: any free one.

    Yields:
        The port.

    Raises:
        UsageError: The address cannot be used.
    """
    import asyncio

    server = _Server(
        uvicorn.Config(
            Starlette(routes=routes),
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            h11_max_incomplete_event_size=_HEAD,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
        )
    )
    try:
        sockets = [server.config.bind_socket()]
    except SystemExit:
        raise UsageError(
            f"cannot listen at {host}:{port}", hint="choose another port: --http 127.0.0.1:PORT"
        ) from None
    serving = asyncio.create_task(server.serve(sockets=sockets))
    try:
        number: int = sockets[0].getsockname()[1]
        yield number
    finally:
        server.should_exit = True
        await serving
        for socket in sockets:
            socket.close()

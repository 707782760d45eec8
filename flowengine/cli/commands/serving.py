"""Commands that run until stopped: the server, also of MCP over standard input, and a worker."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from io import TextIOWrapper

from flowengine import __version__
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, flag, many, one_of, section
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.logs import taking_records
from flowengine.cli.terminal.output import err, results
from flowengine.engines.host import SystemClock
from flowengine.engines.infos import ScheduledStart
from flowengine.engines.stores import temporal
from flowengine.errors import FlowEngineError, UsageError
from flowengine.kernel.notation.times import format_time
from flowengine.store_folder import remote_store
from flowengine.telemetry.worker_log import WorkerLog
from flowengine.util.blocking import run_on_new_loop
from flowengine.worker.backlog import CONCURRENCY
from flowengine.worker.loop import TakenExecution, Worker
from flowengine.worker.measures import Measure, measured
from flowengine.worker.service import STOP, until_stopped

PORT = 8383
RATE = 3000
_Work = Callable[["asyncio.Event"], Awaitable[None]]
_Until = Callable[[_Work, "WorkerLog"], Awaitable[None]]
"""Runs a worker until something stops it."""


def _address(text: str) -> tuple[str, int]:
    """Read an address to listen at.

    Returns:
        The host and the port.

    Raises:
        ArgumentTypeError: It is not valid.
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ArgumentTypeError(f"{text!r} is not an address such as 8080 or 0.0.0.0:8080")
    return host.strip("[]") or "127.0.0.1", int(port)


@command(
    "serve a page and an HTTP API over the store until stopped",
    """\
flowengine deploy expense.yaml refund.yaml && flowengine serve --worker
flowengine serve --host 0.0.0.0 --proxy 10.0.0.2 --hostname flows.example.com
flowengine serve --port 0
flowengine serve --mcp""",
    one_of(
        flag(
            "--mcp",
            "instead, offer deployed flows as tools of an MCP server over standard input and "
            "output",
        ),
        flag("--worker", "also drive the executions, as 'flowengine worker' does, for a first try"),
    ),
    section(
        "without --mcp",
        arg(
            "--host ADDRESS",
            "address to listen on (default: 127.0.0.1). Any but this machine's own needs TLS or "
            "--proxy",
            default="127.0.0.1",
        ),
        arg("--port N", f"default: {PORT}, 0: any free port", type=int, default=PORT),
        arg("--tls-certificate FILE", "certificate chain (PEM)"),
        arg("--tls-key FILE", "private key of the certificate (PEM)"),
        many(
            "--proxy ADDRESS", "IP address of a proxy in front, whose X-Forwarded-For is believed"
        ),
        many(
            "--hostname NAME",
            "further name under which users reach it, with the port unless it is the scheme's own",
        ),
        arg(
            "--rate N",
            f"requests of each token in a minute (default: {RATE}). Further ones get 429",
            type=int,
            default=RATE,
        ),
        many(
            "--temporal-page ORIGIN",
            "page of Temporal that may have payloads decoded: https://temporal.example.com",
        ),
    ),
)
def serve_command(arguments: Namespace) -> int:
    """Serve until SIGTERM or SIGINT, or with `--mcp` until standard input ends."""
    if arguments.mcp:
        return _serve_mcp(arguments)
    from flowengine.page.site import Site
    from flowengine.server.mcp.http import mcp_routes
    from flowengine.server.running import Ready, Serving, check, serve
    from flowengine.server.talk_routes import talk_routes

    def ready(served: Ready) -> None:
        if not arguments.quiet:
            err(f"serving {session.place} at {served.url}")
            err(f"your token is in {served.token_file}")

    serving = Serving(
        arguments.host,
        arguments.port,
        arguments.tls_certificate,
        arguments.tls_key,
        tuple(arguments.proxy),
        tuple(arguments.hostname),
        per_minute=arguments.rate,
        pages=tuple(page.lower().rstrip("/") for page in arguments.temporal_page),
    )
    if arguments.rate < 1:
        raise UsageError("--rate is at least 1")
    check(serving)
    beside = _worker_beside(arguments) if arguments.worker else nullcontext()
    with beside as worker, CliSession(arguments) as session:
        serve(
            session.engine,
            serving,
            ready,
            lambda served: [
                *Site(served).routes(),
                *mcp_routes(served),
                *talk_routes(served),
            ],
            worker,
        )
    return 0 if worker is None else worker.result()


def _serve_mcp(arguments: Namespace) -> int:
    """Serve MCP until standard input ends."""
    from flowengine.server.mcp.stdio import serve_stdio

    output = results()
    if isinstance(output, TextIOWrapper):
        output.reconfigure(encoding="utf-8")  # regardless of the locale
    with CliSession(arguments) as session:
        serve_stdio(session.engine, output, lambda id: session.command("show", id))
    return 0


DRAIN = 30.0
_WAKES = {True: "by notice", False: "each second"}
"""How a worker learns that another process has written to the store."""


@command(
    "drive the executions of a store until stopped",
    """\
flowengine worker
flowengine worker --concurrency 50 --per-flow 10 --drain 5m --log-format json
flowengine worker --offers gpu --concurrency 2
flowengine worker --store temporal://127.0.0.1:7233/default""",
    arg(
        "--drain DURATION",
        "on a stop signal, time for running attempts to end before they are interrupted "
        "(default: 30s). A second signal stops at once",
        type=read.duration,
        default=DRAIN,
    ),
    arg(
        "--concurrency N",
        "how many executions run at once (default: 16). In Temporal, how many attempts with "
        "needs (default: 100)",
        type=read.count,
    ),
    arg(
        "--per-flow N",
        "how many executions of one flow run at once (default: no separate limit)",
        type=read.count,
    ),
    read.OFFERS,
    arg(
        "--log-format",
        "the format of the lines on standard error (default: text)",
        choices=["text", "json"],
        default="text",
    ),
    arg(
        "--http [HOST:]PORT",
        "answer GET /healthz, /readyz and /metrics at this port (default HOST: 127.0.0.1)",
        type=_address,
    ),
    arg(
        "--heartbeat DURATION",
        "in Temporal, the time without a heartbeat after which an attempt counts as "
        "interrupted (default: $FLOWENGINE_HEARTBEAT, or 30s)",
        type=read.duration,
    ),
    arg(
        "--deployment NAME[:BUILD]",
        "in Temporal, the worker's deployment version. Executions stay on workers of the "
        "version on which they began (default BUILD: the version of flowengine)",
    ),
)
def worker_command(arguments: Namespace) -> int:
    """Work until SIGTERM or SIGINT.

    Raises:
        UsageError: An option does not apply to a store in Temporal.
    """
    return _run_worker(arguments, until_stopped)


def _run_worker(arguments: Namespace, until: _Until) -> int:
    """Run a worker, and return the exit code.

    Args:
        arguments: Those of `flowengine worker`.
        until: Runs it until something stops it.
    """
    if arguments.quiet:
        log = WorkerLog(arguments.log_format, SystemClock().now, lambda line: None)
    else:
        log = WorkerLog(arguments.log_format, SystemClock().now)
    address = remote_store(arguments.store or "")
    with taking_records(log):
        try:
            run_on_new_loop(
                _work(arguments, log, until)
                if address is None
                else _remote(arguments, log, address, until)
            )
        except FlowEngineError as error:
            if arguments.log_format == "text":
                raise
            log("error", message=error.message, hint=error.hint and str(error.hint))
            return error.exit_code
    return 0


@contextmanager
def _worker_beside(arguments: Namespace) -> Iterator[Future[int]]:
    """Run a worker with the default options on a thread while the context is open.

    Yields what it ends with: its exit code, or its error.

    Its engine is its own: that of a server drives nothing. At the end it drains, and a second
    signal ends the process at once.

    Args:
        arguments: Those of the program.
    """
    import signal
    from concurrent.futures import ThreadPoolExecutor
    from threading import Event

    parser = ArgumentParser()
    worker_command.add_arguments(parser)
    own = parser.parse_args([], Namespace(**vars(arguments)))
    ready, stopping, loops = Event(), asyncio.Event(), list[asyncio.AbstractEventLoop]()

    async def until(work: _Work, log: WorkerLog) -> None:
        loops.append(asyncio.get_running_loop())
        ready.set()
        await work(stopping)

    with ThreadPoolExecutor(1, "worker") as pool:
        running = pool.submit(_run_worker, own, until)
        running.add_done_callback(lambda _: ready.set())
        ready.wait()
        try:
            if running.done():
                running.result()
            yield running
        finally:
            for number in STOP:
                signal.signal(number, signal.SIG_DFL)
            if not running.done():
                loops[0].call_soon_threadsafe(stopping.set)
            running.result()


async def _work(arguments: Namespace, log: WorkerLog, until: _Until) -> None:
    """Take the work of a store in a directory."""
    if arguments.heartbeat is not None:
        raise UsageError(
            "--heartbeat applies to stores in Temporal",
            hint="leave it out: in a directory, a dead process is noticed within a second",
        )
    if arguments.deployment is not None:
        raise UsageError(
            "--deployment applies to stores in Temporal",
            hint="leave it out: in a directory, each version continues the executions of others",
        )
    arguments.linger = 0.0  # a waiting execution makes room for others
    with CliSession(arguments, named=True) as session, session.engine.guarded():
        concurrency = arguments.concurrency or CONCURRENCY
        engine = session.engine
        worker = Worker(
            engine,
            concurrency=concurrency,
            per_flow=arguments.per_flow,
            tell=lambda taken: _report(log, taken, engine.trace_of(taken.due.execution)),
            tell_start=partial(_report_start, log),
        )

        def begun() -> None:
            offers, wakes = _offers(arguments), _WAKES[worker.by_reports]
            log("started", store=session.place, concurrency=concurrency, offers=offers, wakes=wakes)

        measures = partial(measured, worker, engine)
        async with _answering(arguments, log, lambda: worker.is_ready, measures):
            await until(partial(worker.work, drain=arguments.drain, on_start=begun), log)


def _report(log: WorkerLog, taken: TakenExecution, trace: str | None) -> None:
    """Write the line about an execution that was taken, has failed, or cannot be run here."""
    due, error, result = taken.due, taken.error, taken.result
    if result is not None:
        if result.status == "failed" and result.error is not None:
            failure = f"{result.error['type']}: {result.error['message']}"
            log("failed", execution=due.execution, flow=due.flow, error=failure, trace=trace)
        return
    if error is not None:
        why = error.with_hint if isinstance(error, FlowEngineError) else str(error)
        log("refused", execution=due.execution, flow=due.flow, error=why, trace=trace)
        return
    deaths = due.deaths or None
    log("taken", execution=due.execution, flow=due.flow, why=due.why, deaths=deaths, trace=trace)


def _report_start(log: WorkerLog, start: ScheduledStart) -> None:
    """Write the line about a schedule that is due."""
    error = None if start.error is None else str(start.error)
    event = "begun" if start.execution else "refused" if error else "skipped"
    at = format_time(start.time)
    log(event, execution=start.execution, flow=start.flow, why="schedule", time=at, error=error)


def _offers(arguments: Namespace) -> str | None:
    """Return the offers of a worker, for its log."""
    return ",".join(sorted(set(arguments.offers))) or None


async def _remote(arguments: Namespace, log: WorkerLog, address: str, until: _Until) -> None:
    """Take the work of a store in Temporal."""
    if arguments.per_flow is not None or not (arguments.concurrency is None or arguments.offers):
        raise UsageError(
            "--per-flow, and --concurrency without --offers, apply to stores in a directory",
            hint="leave them out: Temporal distributes its work",
        )

    is_ready = False
    deployment = arguments.deployment
    if deployment is not None and ":" not in deployment:
        deployment = f"{deployment}:{__version__}"

    def begun() -> None:
        nonlocal is_ready
        is_ready = True
        log("started", store=address, offers=_offers(arguments))
        if (missing := temporal("working").without_objects()) is not None:
            log("warning", message=missing)

    def attempted(execution: str, flow: str, address: str) -> None:
        log("taken", execution=execution, flow=flow, why="attempt", step=address)

    async def work(stopping: asyncio.Event) -> None:
        await temporal("working").work(
            address,
            drain=arguments.drain,
            heartbeat=arguments.heartbeat,
            deployment=deployment,
            offers=arguments.offers,
            concurrency=arguments.concurrency,
            log_format=arguments.log_format,
            stopping=stopping,
            on_ready=begun,
            on_attempt=attempted,
            on_start=partial(_report_start, log),
        )

    async with _answering(arguments, log, lambda: is_ready, list):
        await until(work, log)


@asynccontextmanager
async def _answering(
    arguments: Namespace,
    log: WorkerLog,
    is_ready: Callable[[], bool],
    measures: Callable[[], list[Measure]],
) -> AsyncIterator[None]:
    """Answer requests about health, if an address is given."""
    if arguments.http is None:
        yield
        return
    from flowengine.worker import health  # needs the extra `serve`

    host, port = arguments.http
    async with health.answering(health.routes(is_ready, measures), host, port) as port:
        log("http", address=f"{host}:{port}")
        yield

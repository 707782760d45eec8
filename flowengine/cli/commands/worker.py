"""`flowengine worker`: take the work of a store until stopped."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from flowengine.cli.parsing import arguments as read
from flowengine.cli.terminal.output import err
from flowengine.errors import UsageError
from flowengine.store_folder import remote_store

HELP = "drive the executions of a store in Temporal until stopped"
EXAMPLE = """\
flowengine worker --store temporal://127.0.0.1:7233/default
flowengine worker --store temporal://127.0.0.1:7233/default --drain 5m"""
DRAIN = 30.0
HEARTBEAT = 10.0


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--drain",
        metavar="DURATION",
        type=read.duration,
        default=DRAIN,
        help="when stopped, how long attempts at work get to end before they are cut off; default: "
        "30s. A second signal stops at once",
    )
    parser.add_argument(
        "--heartbeat",
        metavar="DURATION",
        type=read.duration,
        default=HEARTBEAT,
        help="after how long without a sign of life an attempt counts as cut off; default: 10s",
    )


def run(arguments: Namespace) -> int:
    """Work until SIGTERM or SIGINT.

    Returns:
        The exit code.

    Raises:
        UsageError: The store is in a directory.
    """
    import asyncio

    address = remote_store(arguments.store or "")
    if address is None:
        raise UsageError(
            "only stores in Temporal have workers",
            hint="for a store in a directory, run this regularly: flowengine resume --due",
        )
    asyncio.run(_work(arguments, address))
    return 0


async def _work(arguments: Namespace, address: str) -> None:
    import asyncio
    import signal

    from flowengine.engines.temporal.opening import work

    stopping = asyncio.Event()

    def stop(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()
        if not arguments.quiet:
            err("stopping when attempts at work have ended; once more stops at once")

    def ready() -> None:
        if not arguments.quiet:
            err(f"taking the work of {address}")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    await work(
        address,
        drain=arguments.drain,
        heartbeat=arguments.heartbeat,
        stopping=stopping,
        on_ready=ready,
    )

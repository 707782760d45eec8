"""A worker as a process: signals that stop it, and a line of its log for each thing taken."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias

from flowengine.kernel.notation.times import format_time
from flowengine.sdk.visible_text import printable

Format: TypeAlias = Literal["text", "json"]
STOP = (signal.SIGTERM, signal.SIGINT)


class WorkerLog:
    """The log of a worker: one line for each event, on standard error.

    Args:
        form: `text` for people, `json` for programs: one object a line.
        now: Returns the time (ms).
        write: Writes a line. Default: standard error.
    """

    def __init__(
        self, form: Format, now: Callable[[], int], write: Callable[[str], None] | None = None
    ) -> None:
        self._is_json = form == "json"
        self._now = now
        self._write = write or _to_standard_error

    def __call__(self, event: str, **parts: Any) -> None:
        """Write a line.

        Args:
            event: What happened, in one word.
            **parts: Further facts. None is left out.
        """
        facts = {name: value for name, value in parts.items() if value is not None}
        at = format_time(self._now())
        if self._is_json:
            self._write(json.dumps({"at": at, "event": event, **facts}, ensure_ascii=False))
        else:
            self._write(printable(f"{at} {event:8} {_as_text(facts)}".rstrip()))


def _as_text(facts: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in facts.items())


def _to_standard_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


async def until_stopped(work: Callable[[asyncio.Event], Awaitable[None]], log: WorkerLog) -> None:
    """Run a worker until SIGTERM or SIGINT. A second signal ends the process at once.

    Args:
        work: Runs it, and returns some time after the event is set.
        log: Receives the signals.
    """
    stopping = asyncio.Event()

    def stop(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()
        log("draining", signal=signal.Signals(number).name, hint="a second signal stops at once")

    loop = asyncio.get_running_loop()
    for number in STOP:
        loop.add_signal_handler(number, stop, number)
    try:
        await work(stopping)
    finally:
        for number in STOP:
            loop.remove_signal_handler(number)
    log("stopped")

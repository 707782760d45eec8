"""Functions with side effects for the flows of these tests: each effect appends a line to a file.

The file is next to the flow files, like a user's modules.
"""

from __future__ import annotations

import json
import os
import threading
import time
from hashlib import sha256
from pathlib import Path

from flowengine.sdk import StepContext, StepError, quick

HERE = Path(__file__).parent
SLOWLY = float((HERE / "slowly").read_text() or 0.004) if (HERE / "slowly").exists() else 0.0
"""Seconds before and after each effect, in which the process may be killed."""


def note(context: StepContext, result: object) -> None:
    """Append a line in one write, so that a kill leaves a whole line or none.

    While a slow one is at work, there is a file `working.PID.THREAD`.
    """
    line = f"{context.address} {context.idempotency_key} {json.dumps(result)}\n"
    working = HERE / f"working.{os.getpid()}.{threading.get_ident()}"
    if SLOWLY:
        working.touch()
    time.sleep(SLOWLY)
    file = os.open(HERE / "effects.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)
    time.sleep(SLOWLY)
    working.unlink(missing_ok=True)


async def act(context: StepContext, value: int = 0) -> int:
    note(context, value + 1)
    return value + 1


def act_on_thread(context: StepContext, value: int = 0) -> int:
    note(context, value + 1)
    return value + 1


@quick
def add(a: int = 0, b: int = 0) -> int:
    return a + b


def may_go_on() -> bool:
    """Return whether the test has created the file `go`."""
    return (HERE / "go").exists()


async def stay(context: StepContext) -> str:
    """Wait until the test creates the file `go`."""
    import asyncio

    while not may_go_on():  # noqa: ASYNC110 - no event to await
        await asyncio.sleep(0.01)
    note(context, "rested")
    return "rested"


async def stay_and_log(context: StepContext) -> str:
    """Like `stay`, and log when it begins."""
    context.log.info("began")
    return await stay(context)


async def leave_slowly(context: StepContext) -> None:
    """Work until it is cancelled, and then until the test creates the file `go`."""
    import asyncio

    note(context, "entered")
    try:
        await asyncio.sleep(600)
    finally:
        while not may_go_on():  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)
        note(context, "left")


async def nap(context: StepContext, seconds: float = 0.01) -> str:
    import asyncio

    await asyncio.sleep(seconds)
    note(context, "rested")
    return "rested"


def block(seconds: float = 0.01) -> str:
    time.sleep(seconds)
    return "blocked"


async def fail_until(context: StepContext, attempt: int = 2) -> int:
    """Fail until the given attempt. Only attempts that ran to their end count."""
    name = HERE / f"tries-{context.address.replace('/', '_')}"
    tries = int(name.read_text()) + 1 if name.exists() else 1
    whole = name.with_suffix(".whole")
    whole.write_text(str(tries))
    whole.replace(name)  # a kill in between leaves the old count, never a partial one
    if tries < attempt:
        raise StepError(f"try {tries}", type="Flaky", retryable=True)
    note(context, tries)
    return tries


async def fail_beside(context: StepContext, beside: str, attempt: int = 2) -> int:
    """Fail like `fail_until`, but only once another step has taken effect."""
    import asyncio

    file = HERE / "effects.txt"
    while not (file.exists() and f"{beside} " in file.read_text()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return await fail_until(context, attempt)


async def refuse(message: str = "no") -> int:
    raise StepError(message, type="OutOfStock", retryable=False)


async def block_loop() -> None:
    """Block the event loop, like a step that is not as asynchronous as declared."""
    while not may_go_on():
        time.sleep(0.01)  # noqa: ASYNC251 - the subject of the tests


async def odd() -> object:
    return {1: object()}


@quick
def kilobyte(number: int) -> str:
    """Return a thousand characters that compress badly."""
    return "".join(sha256(f"{number} {part}".encode()).hexdigest() for part in range(16))[:1000]


async def interrupt(name: str) -> None:
    """Send a signal to this process, like a user who wants it to stop."""
    import asyncio
    import signal

    os.kill(os.getpid(), signal.Signals[name])
    await asyncio.sleep(60)


@quick
def break_at_once() -> int:
    raise StepError("broken")


async def cancel_itself() -> int:
    import asyncio

    raise asyncio.CancelledError


def fail_until_file(item: int) -> int:
    """Fail while the file `refused` names the item."""
    if str(item) in (HERE / "refused").read_text().split():
        raise StepError(f"item {item} is refused", type="Refused")
    return item

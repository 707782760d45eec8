"""Programs of this machine, started and killed together with what they start.

bubblewrap begins a sandbox in steps, each in a new process, which learns only at the end of its
step that it has to die with the one before. To kill the first process in between would leave the
others behind: they wait for it for ever, or go on without it, and keep its streams open.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import Any

from flowengine.sdk.process_tree import MARK, Family


class Started:
    """A program that leads a session, with its streams.

    Args:
        process: The process.
        mark: Variable and value that mark it and all that it starts; None: nothing does.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, mark: tuple[str, str] | None = None
    ) -> None:
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr
        self._process = process
        variable, value = mark or (MARK, None)
        self.family = Family(value, process.pid, variable=variable)
        """It, and all that it has started."""

    @property
    def pid(self) -> int:
        """Id of its first process."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code; negative: the signal that ended it; None: it is running."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait until it has ended, and return the exit code."""
        return await self._process.wait()

    def terminate(self) -> None:
        """Ask it to end."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """Kill it, and all that it has started."""
        for _ in range(2):  # one may just have started another; what is being killed no longer can
            self.family.signal(signal.SIGKILL)


async def start(*argv: str, mark: tuple[str, str] | None = None, **options: Any) -> Started:
    """Start a program in a session of its own; whoever is cancelled meanwhile leaves none behind.

    Args:
        argv: The program and its arguments.
        mark: As for `Started`; the caller sets the variable.
        options: As those of `asyncio.create_subprocess_exec`.

    Returns:
        The program.

    Raises:
        OSError: It cannot be started.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(*argv, start_new_session=True, **options)
    )
    try:
        return Started(await asyncio.shield(starting), mark)
    except asyncio.CancelledError:
        with suppress(OSError):
            program = Started(await starting, mark)
            program.kill()
            await program.wait()
        raise

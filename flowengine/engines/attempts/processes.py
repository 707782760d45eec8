"""Programs of steps: running them, and ending all processes that they start.

Output is read completely but held in memory only up to a limit. Larger output goes to a file.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, Any, NamedTuple

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk import StepError
from flowengine.sdk.processes import MARK, ROUNDS, Family
from flowengine.sdk.python.user_code import uncut
from flowengine.sdk.steps.context import Artifacts, Completed, File, StepContext

KEPT = 64 * 1024
"""Bytes of each output stream to keep."""
MOST = 64 * 1024 * 1024
"""Bytes of an output stream to write to a file. Output beyond that is dropped."""
GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""

_EXITING = 0.5
"""Seconds that the processes of an exited program have to exit, too: those of a pipe, for
example. They do not count as left running."""
_ROUND = 0.02
_STREAMS = ("stdout", "stderr")


class LeftRunning(StepError):
    """A program left processes running, and the settings are strict."""

    type = "LeftRunning"


class LeftProcess(NamedTuple):
    """A process that outlives the program that started it."""

    what: str
    """`process`."""
    name: str
    """Name of its program."""
    pid: int


def report_left(left: list[LeftProcess], attempt: StepContext) -> None:
    """Report the processes that a program left running, which were ended.

    Args:
        left: The processes, at least one.
        attempt: The attempt of the step.

    Raises:
        LeftRunning: The settings treat it as an error.
    """
    parts: Any = [each._asdict() for each in left]
    listed = ", ".join(f"process {each.pid} ({each.name})" for each in left)
    text = (
        f"still running after the step ended, so it was ended: {listed}. End it before the step "
        "ends, or open it as an environment"
    )
    if attempt.execution.strict:
        raise LeftRunning(text, data=parts, retryable=False)
    attempt.log.warning("%s", text)
    attempt.execution.warn(text, {"address": attempt.address, "left": parts, "ended": True})


class ProcessRunner:
    """Starts the processes of one attempt.

    Args:
        artifacts: Stores output that is too large for the result.
        mark: Identifies the attempt's activation on this machine.
        mask: Replaces secrets in the output.
        left: Called with the processes that a program left running, after they were ended.
        printed: Called with printed text as it arrives: `stdout` or `stderr`, and the text.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        mark: str,
        mask: Callable[[Plain], Plain],
        *,
        left: Callable[[list[LeftProcess]], None] | None = None,
        printed: Callable[[str, str], None] | None = None,
    ) -> None:
        self._artifacts = artifacts
        self._mark = mark
        self._mask = mask
        self._left = left
        self._printed = printed

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdin: bytes | None = None,
    ) -> Completed:
        """Run a program until it exits. See `flowengine.sdk.Processes`."""
        on_text = [None if self._printed is None else partial(self._printed, n) for n in _STREAMS]
        with _input(stdin) as source, _Capture(on_text[0]) as out, _Capture(on_text[1]) as err:
            process = subprocess.Popen(  # noqa: ASYNC220 - it returns as soon as it has started
                argv,
                env={**env, MARK: self._mark},
                cwd=cwd,
                stdin=source,
                stdout=out.pipe,
                stderr=err.pipe,
                start_new_session=True,
            )
            family = Family(self._mark, process.pid)
            try:
                await out.connect()
                await err.connect()
                await _ended(process)
                # Leftover processes are ended too, because they could hold the pipes open forever.
                left = await _end_left(family, GRACE)
                await asyncio.wait([out.closed, err.closed], timeout=GRACE)
            except BaseException:
                await uncut(_end_processes(family, GRACE))
                raise
            finally:
                if process.poll() is None:
                    family.kill()  # ending it was cut short, as its event loop was closed
                process.wait()
            stdout, stdout_file = self._keep(out, "stdout")
            stderr, stderr_file = self._keep(err, "stderr")
        if left and self._left is not None:
            self._left(left)
        code = process.returncode
        exit_code = code if code >= 0 else 128 - code
        return Completed(exit_code, stdout, stderr, stdout_file, stderr_file)

    def _keep(self, output: _Capture, name: str) -> tuple[str, File | None]:
        """Return the kept part of an output stream, and a file with all of it if it was cut."""
        text = output.text()
        if output.dropped:  # added before masking, which looks for partial secrets there
            text += f"\n... {output.dropped} bytes left out ...\n"
        text = str(self._mask(text))
        data = text.encode()
        if len(data) <= KEPT:
            return text, None
        file = self._artifacts.put(data, f"{name}.txt")
        head = data[: KEPT // 2].decode(errors="ignore")
        tail = data[-KEPT // 2 :].decode(errors="ignore")
        left_out = len(data) - KEPT
        dropped = f"; {output.dropped} more were dropped" if output.dropped else ""
        place = f"all is in the output's {name}_file{dropped}"
        return f"{head}\n... {left_out} bytes left out, {place} ...\n{tail}", file


class _Capture(asyncio.Protocol):
    """Reads an output stream to its end: a limited part into memory, more into a file."""

    def __init__(self, on_text: Callable[[str], None] | None) -> None:
        self._on_text = on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=2 * KEPT)  # noqa: SIM115
        self._transport: asyncio.BaseTransport | None = None
        self._size = 0
        source, sink = os.pipe()
        self._source: IO[bytes] = os.fdopen(source, "rb", buffering=0)
        self.pipe: IO[bytes] = os.fdopen(sink, "wb", buffering=0)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.dropped = 0

    def __enter__(self) -> _Capture:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._transport is not None:
            self._transport.close()
        self._source.close()
        self.pipe.close()
        self._file.close()

    async def connect(self) -> None:
        """Begin to read. From now on, only the program holds the writing end."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(lambda: self, self._source)
        self.pipe.close()

    def data_received(self, data: bytes) -> None:
        """Store the received data."""
        if self._file.closed:
            return
        wanted = data[: max(0, MOST - self._size)]
        self._size += len(wanted)
        self.dropped += len(data) - len(wanted)
        self._file.write(wanted)
        if self._on_text is not None:
            self._on_text(self._decoder.decode(data))

    def connection_lost(self, error: Exception | None) -> None:
        """Handle that all writing ends are closed."""
        if not self.closed.done():
            self.closed.set_result(None)

    def text(self) -> str:
        """Return everything that was read and not dropped."""
        self._file.seek(0)
        return self._file.read().decode(errors="replace")


@contextlib.contextmanager
def _input(data: bytes | None) -> Iterator[IO[bytes] | int]:
    """Provide a program's input as a file, which it can read at any time and in part."""
    if data is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has exited."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    handle = os.pidfd_open(process.pid)
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def _end_left(family: Family, grace: float) -> list[LeftProcess]:
    """End the processes that an exited program left running, and return them."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _EXITING
    members = await asyncio.to_thread(family.members)
    while members and loop.time() < deadline:
        await asyncio.sleep(_ROUND)
        members = await asyncio.to_thread(family.members)
    if not members:
        return []
    left = [LeftProcess("process", _name_of(pid), pid) for pid in members]
    await _end_processes(family, grace)
    return left


def _name_of(pid: int) -> str:
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file,
    ):
        return file.read().strip()
    return "?"


async def _end_processes(family: Family, grace: float) -> None:
    """Send SIGTERM to processes, and kill those still running after the grace period."""
    if not await asyncio.to_thread(family.signal, signal.SIGTERM):
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    while loop.time() < deadline:
        await asyncio.sleep(_ROUND)
        if not await asyncio.to_thread(family.members):
            return
    for _ in range(ROUNDS):
        if not await asyncio.to_thread(family.signal, signal.SIGKILL):
            return
        await asyncio.sleep(_ROUND)

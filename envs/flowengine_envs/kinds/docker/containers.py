"""Runs commands, each in its own container, of any image that a call names.

The containers share only the workspace. An image needs nothing from this project, not even Python:
the work that other kinds leave to their supervisor is done from outside.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowengine.sdk import ValidationError
from flowengine.sdk.environments import Request, both_forms
from flowengine_envs.kinds.results import (
    CommandResult,
    LimitMet,
    OnOutput,
    OutputStreams,
    limit_met,
    names_refused_size,
)
from flowengine_envs.kinds.workspace import InWorkspace
from flowengine_envs.sandboxes.docker import sandbox
from flowengine_envs.sandboxes.docker.accounts import HOME
from flowengine_envs.sandboxes.docker.building import wanted
from flowengine_envs.sandboxes.docker.gate import Gate
from flowengine_envs.sandboxes.docker.sandbox import Docker, ProgramMissing
from flowengine_envs.workspaces import files
from flowengine_envs.workspaces.files import LISTED, Draft, PathRefused, Workspace
from flowengine_envs.workspaces.free_space import GLANCE, FreeSpace
from flowengine_envs.workspaces.outside_files import OutsideFiles
from flowengine_envs.workspaces.own_folder import OWN

_READ = 1 << 18


@dataclass(eq=False)
class Captured:
    """One output stream."""

    name: str
    """`stdout` or `stderr`."""
    streams: OutputStreams
    """Receive the part that is kept."""
    workspace: Workspace
    """The directory that holds the file with the complete output."""
    path: str
    """Path of that file."""
    kept: int
    """Bytes in the result: half from the beginning, half from the end."""
    most: int
    """Maximum size of the file in bytes."""
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)
    _total: int = 0
    _in_file: int = 0
    _draft: Draft | None = None

    async def read(self, source: asyncio.StreamReader) -> None:
        """Read everything from the source."""
        while data := await source.read(_READ):
            self._append(data)

    def finish(self) -> dict[str, Any]:
        """Close the file, and return the description of this stream for `OutputStreams.text`."""
        if self._draft is not None:
            try:
                self._draft.finish()
            except PathRefused:
                self._in_file = 0
                self._draft.drop()
        self.streams.feed({"stream": self.name, "tail": True}, bytes(self._tail))
        kept = len(self._head) + len(self._tail)
        if self._total <= kept:
            return {}
        missing = self._total - self._in_file
        return {"left_out": self._total - kept, "file": self.path, "missing": missing}

    def _append(self, data: bytes) -> None:
        half = self.kept // 2
        begins = data[: half - len(self._head)]
        self._head += begins
        self._total += len(data)
        if begins:
            self.streams.feed({"stream": self.name}, begins)
        rest = data[len(begins) :]
        if not rest:
            return
        if self._draft is None and self._total > self.kept:
            self._begin_file()
        self._tail += rest
        if self._draft is not None:
            self._write(rest)
        if len(self._tail) > self.kept - half:
            del self._tail[: len(self._tail) - (self.kept - half)]

    def _begin_file(self) -> None:
        try:
            self._draft = self.workspace.write(self.path, 0o644)
        except PathRefused:
            return
        self._write(bytes(self._head))
        self._write(bytes(self._tail))

    def _write(self, data: bytes) -> None:
        part = data[: self.most - self._in_file]
        if self._draft is None or not part:
            return
        try:
            self._draft.add(part)
            self._in_file += len(part)
        except PathRefused:  # The disk is full. The result reports how much is missing.
            self.most = self._in_file


_KILLED = 137
_REFUSED = os.strerror(errno.EAGAIN)
"""Text with which programs report that a process could not be started."""


class Containers(OutsideFiles, InWorkspace):
    """Runs commands in containers. Only the files of the workspace persist.

    Args:
        image: Digest of the image for calls that name none.
        gate: Provides the network of the containers, if their policy allows any place.
    """

    def __init__(self, request: Request, image: str, gate: Gate | None = None) -> None:
        # Of the home directory on the host, programs see only `own`.
        super().__init__(request, str(request.config.workdir), HOME)
        self.image = image
        self.isolation = "container"
        self._files = files.Workspace(str(request.workspace), self.workdir)
        self._own = files.Workspace(str(request.home / OWN), self.own)
        self.places = [self._files, self._own]
        self._running: dict[Docker, None] = {}
        self._gate = gate

    @property
    def healthy(self) -> bool:
        """Whether it is usable, as far as is known without I/O."""
        return self._gate is None or self._gate.alive()

    async def _run(
        self,
        argv: Sequence[str],
        image: str | None = None,
        files: Mapping[str, bytes | Path] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run a command to its end, in a new container that is removed afterwards.

        Args:
            argv: Program and arguments, without a shell. The image's entry point is not used.
            image: The image. Default: the spec's, or else the project's own.
            files: Files to write to the workspace first: path → bytes, or a file of the host.
            env: Variables in addition to the declared ones.
            timeout: Seconds. Default and maximum: the spec's.
            stdin: Standard input. None: no input.
            on_output: Called with output as it arrives.

        Returns:
            Exit code, output, and the files that it created or changed.

        Raises:
            ValidationError: The command is invalid.
            ImageUnavailable: The image is not available.
            EnvironmentLost: The container or the daemon was lost.
        """
        if isinstance(argv, str):
            raise ValidationError(f"{self.name}: a command must be a list of words, not text")
        self.call_limits.check_words(argv, env or {})
        seconds = self.call_limits.seconds(timeout)
        for path, data in (files or {}).items():
            await self.write_file(path, data, 0o644)
        proxy = {} if self._gate is None else self._gate.variables
        variables = {"LANG": "C.UTF-8", **self.declared, **proxy, **(env or {})}
        # An image that is built stays the one from the opening.
        own = image is None and wanted(self.request.spec) is not None
        network = None if self._gate is None else self._gate.as_network()
        command = sandbox.ContainerCommand(
            list(argv), variables, self.image if own else image, own, network
        )
        box = Docker(self.request, command)
        before = await asyncio.to_thread(self._state)
        self._running[box] = None
        began = time.monotonic()
        streams = OutputStreams(on_output)
        captures = [self._captured(name, streams) for name in ("stdout", "stderr")]
        try:
            await box.open()
            code, limit, note = await self._finish(box, captures, stdin or b"", seconds)
        except ProgramMissing as error:
            code, limit, note = 127, None, f"{error.message}\n"
        finally:
            await asyncio.shield(box.close())
            del self._running[box]
            self.call_limits.spend(time.monotonic() - began)
        captured = {"stdout": captures[0].finish(), "stderr": captures[1].finish()}
        stdout, stderr = (streams.text(name, captured[name]) for name in ("stdout", "stderr"))
        stopped = {"time": "timeout", "disk": "disk"}.get(limit or "")
        if limit is None and code and names_refused_size(code, stderr):
            limit, note = "disk", f"{self.call_limits.file_too_large()}\n"
        after = await asyncio.to_thread(self._state)
        return CommandResult(
            exit_code=code,
            stdout=stdout,
            stderr=stderr + note + self._refusals(stdout + stderr),
            outputs=sorted(path for path in after if after[path] != before.get(path)),
            timed_out=limit == "time",
            truncated=any(captured.values()),
            duration=time.monotonic() - began,
            image=box.image,
            stopped=stopped,
            limit=limit,
            stdout_file=captured["stdout"].get("file"),
            stderr_file=captured["stderr"].get("file"),
        )

    run, async_run = both_forms(_run)

    def _refusals(self, stderr: str) -> str:
        """Return which limit was reached, if programs report processes that were not started."""
        # The control group, which counts them, is removed with the container.
        return f"if {self.call_limits.too_many_processes()}\n" if _REFUSED in stderr else ""

    async def _finish(
        self,
        box: Docker,
        captures: Sequence[Captured],
        stdin: bytes,
        seconds: float | None,
    ) -> tuple[int, LimitMet | None, str]:
        """Return the exit code, the limit that caused the failure, and a line about it."""
        streams = box.streams
        reading = asyncio.gather(
            captures[0].read(streams.stdout),
            captures[1].read(streams.stderr),
            _feed(streams.stdin, stdin),
        )
        full = asyncio.ensure_future(self._until_full())
        try:
            first: set[asyncio.Future[Any]] = {reading, full}
            await asyncio.wait(first, timeout=seconds, return_when="FIRST_COMPLETED")
            if reading.done():
                code, out_of_memory = await asyncio.to_thread(box.ended)
                limit = limit_met(None, out_of_memory=out_of_memory)
                return code, limit, self._note(limit)
            stopped = "disk" if full.done() else "timeout"
            await box.close()
            await asyncio.wait({reading}, timeout=5)
            limit = limit_met(stopped, out_of_memory=False)
            return _KILLED, limit, self._note(limit)
        finally:
            full.cancel()
            reading.cancel()
            await asyncio.gather(reading, full, return_exceptions=True)

    def _note(self, limit: LimitMet | None) -> str:
        """Return the line about a limit, except a time limit, which the caller describes."""
        if limit == "memory":
            return f"{self.call_limits.out_of_memory()}\n"
        return f"{self.call_limits.disk_full()}\n" if limit == "disk" else ""

    async def _until_full(self) -> None:
        """Wait until the program has used up the reserve of free space."""
        space = FreeSpace([self._files.fd, self._own.fd])
        while not space.is_short():  # noqa: ASYNC110 - it triggers no event
            await asyncio.sleep(GLANCE)

    def _captured(self, name: str, streams: OutputStreams) -> Captured:
        path = f"{self.own}/output/{name}-{os.urandom(4).hex()}.txt"
        kept, file = self.call_limits.kept, self.call_limits.file
        return Captured(name, streams, self._own, path, kept, file)

    def _state(self) -> dict[str, tuple[int, float]]:
        files = self._files.files(LISTED)
        return {path: (info.st_size, info.st_mtime) for path, info in files}

    async def close(self) -> None:
        """Remove the containers that still run. Call on the background loop."""
        for box in [*self._running]:
            await box.close()
        if self._gate is not None:
            await self._gate.close()


async def _feed(source: Any, data: bytes) -> None:
    """Write a program's standard input and close it."""
    with suppress(ConnectionError):
        source.write(data)
        await source.drain()
        source.write_eof()

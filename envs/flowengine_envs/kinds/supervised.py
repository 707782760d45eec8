"""Shared code of the kinds that run programs: a sandbox, a supervisor in it, and its files.

A kind adds the meaning of a call. Where the sandbox runs makes no difference to it.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from flowengine.sdk import (
    EnvironmentLost,
    EnvironmentStartFailed,
    EnvironmentUnavailable,
    LimitExceeded,
)
from flowengine.sdk.environments import (
    Capabilities,
    Program,
    Provider,
    Request,
    Sandbox,
    Spec,
    Tracer,
)
from flowengine.sdk.texts.sizes import size_text
from flowengine_envs.kinds.configurations import Programs
from flowengine_envs.kinds.results import (
    CommandResult,
    OnOutput,
    OutputStreams,
    limit_met,
    names_refused_size,
)
from flowengine_envs.kinds.workspace import InWorkspace
from flowengine_envs.link import bootstrap
from flowengine_envs.link.call_limits import DISK, GRACE, OUTPUT, Counted
from flowengine_envs.link.channel import COMMAND, Channel
from flowengine_envs.link.parts import part
from flowengine_envs.sandboxes.installations import installation
from flowengine_envs.sandboxes.mounts import check_mounted, identities
from flowengine_envs.sandboxes.processes import PATH
from flowengine_envs.workspaces.own_folder import OWN, make_own

_PIP = """\
[global]
disable-pip-version-check = true
[install]
user = true
break-system-packages = true
"""
"""Packages are installed below the home directory, so they last as long as the workspace."""
_NOT_STARTED = {2: 127, 20: 127, 13: 126, 8: 126}
"""Error number → the exit code that shells use for it."""


class Supervised(InWorkspace):
    """An open sandbox with a supervisor in it.

    Args:
        request: The request to open the environment.
        sandbox: The open sandbox.
        channel: The connection to its supervisor.
    """

    def __init__(self, request: Request, sandbox: Sandbox, channel: Channel) -> None:
        super().__init__(request, sandbox.workdir, sandbox.home)
        self.sandbox = sandbox
        self.isolation = sandbox.capabilities().isolation
        """How programs are isolated from the machine: `container`, `namespace` or `none`."""
        self.image = sandbox.image
        """Digest of the running image, or empty without an image."""
        self._channel = channel
        channel.cause = lambda: self.call_limits.out_of_memory() if sandbox.memory_kills() else ""
        installed = installation(request.spec)
        self.interpreter = None if installed is None else installed.program
        """The user's own interpreter, used instead of the sandbox's."""
        own = "" if installed is None else f"{os.path.dirname(installed.program)}:"
        self._variables = {
            "PATH": f"{own}{PATH}",
            "HOME": sandbox.home,
            "LANG": "C.UTF-8",
            **self.declared,
            **sandbox.variables,
        }

    @property
    def healthy(self) -> bool:
        """Whether it is usable, as far as is known without I/O."""
        return self._channel.alive and self.sandbox.alive()

    async def write_file(self, path: str, data: bytes | Path, mode: int) -> None:
        """Send a file through the supervisor."""
        exchange = self._channel.send_request("put", about=repr(path), path=path, mode=mode)
        await self._channel.feed(exchange, data)
        await self._channel.end(exchange)

    async def read_file(self, path: str, take: Callable[[bytes], Any], largest: int) -> int:
        """Receive a file from the supervisor, and count its bytes: it runs in the sandbox."""
        mode, size = 0o644, 0

        def on_answer(header: dict[str, Any], payload: bytes) -> None:
            nonlocal mode, size
            mode = header.get("mode", mode)
            size += len(payload)
            if size > largest:
                limit = size_text(largest)
                raise LimitExceeded(f"{self.name}: {path!r}: it has more than {limit}")
            take(payload)

        request = self._channel.request
        await request("get", about=repr(path), on_answer=on_answer, path=path, largest=largest)
        return mode

    async def entries(self, path: str, *, deep: bool) -> list[dict[str, Any]]:
        """Request the entries from the supervisor."""
        answer = await self._channel.request("list", about=repr(path), path=path, deep=deep)
        return list(answer["entries"])

    async def remove_entry(self, path: str) -> None:
        """Request the removal from the supervisor."""
        await self._channel.request("remove", about=repr(path), path=path)

    async def start(self, deadline: float) -> None:
        """Prepare the first call, once the supervisor runs. By default there is nothing to do."""

    async def program(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run a program to its end. Call on the background loop.

        Args:
            argv: Program and arguments, run without a shell.
            cwd: Working directory in the sandbox. Default: the workspace.
            timeout: Seconds. Default and maximum: the spec's.
            env: Variables in addition to the declared ones.
            stdin: Standard input. None: no input.
            on_output: Called with output as it arrives.

        Returns:
            Exit code and output.

        Raises:
            LimitExceeded: The total time of all calls is used up.
        """
        result, _ = await self._program(argv, cwd, timeout, env, stdin, on_output)
        return result

    async def _program(
        self,
        argv: Sequence[str],
        cwd: str | None,
        timeout: float | None,
        env: Mapping[str, str] | None,
        stdin: bytes | None,
        on_output: OnOutput | None,
        *,
        result: bool = False,
        file: bytes | Path = b"",
        preload: Sequence[str] | None = None,
    ) -> tuple[CommandResult, bytes]:
        """Run a program. Return its result and its output on descriptor 3.

        Args:
            argv: Program and arguments.
            cwd: Working directory in the sandbox.
            timeout: Seconds.
            env: Variables in addition to the declared ones.
            stdin: Standard input.
            on_output: Called with output as it arrives.
            result: Whether it writes to descriptor 3.
            file: Content that follows the standard input.
            preload: For a fork server, the modules that it imports before it forks.
        """
        self.call_limits.check_words(argv, env or {})
        streams = OutputStreams(on_output)
        seconds = self.call_limits.seconds(timeout)
        counted = Counted(self.sandbox)
        began = time.monotonic()
        exchange = self._channel.send_request(
            "run",
            about=argv[0],
            on_answer=streams.feed,
            argv=[*argv],
            env={**self._variables, **(env or {})},
            cwd=self._directory(cwd),
            limits=dict(self.sandbox.resource_limits()),
            timeout=seconds,
            grace=GRACE,
            result=result,
            preload=None if preload is None else [*preload],
            kept=self.call_limits.kept,
            file=self.call_limits.file,
        )
        await self._channel.feed(exchange, stdin or b"", file)
        answer = await self._channel.end(exchange)
        duration = time.monotonic() - began
        self.call_limits.spend(duration)
        return self._reported(answer, streams, duration, counted, timeout), answer["payload"]

    def _reported(
        self,
        answer: dict[str, Any],
        streams: OutputStreams,
        duration: float,
        counted: Counted,
        timeout: float | None,
    ) -> CommandResult:
        """Return what a program did, and the limits that it reached."""
        captured, stopped = answer["streams"], answer["stopped"]
        stderr = streams.text("stderr", captured["stderr"])
        exit_code = answer["exit_code"]
        if answer["failed"] is not None:
            exit_code = _NOT_STARTED.get(answer["failed"], 126)
            stderr += f"it cannot be started: {os.strerror(answer['failed'])}\n"
        elif exit_code is None:
            exit_code = 128 + answer["signal"]
        file_is_full = names_refused_size(exit_code, stderr)
        own = stopped != "timeout" or self.call_limits.is_own(timeout)
        met = self.call_limits.met(
            killed=counted.killed,
            refused=counted.refused,
            stopped=stopped if own else None,
            timeout=timeout,
            file=file_is_full,
            left_full=bool(answer["left_full"]),
        )
        return CommandResult(
            exit_code=exit_code,
            stdout=streams.text("stdout", captured["stdout"]),
            stderr=stderr + "".join(f"{each}\n" for each in met),
            timed_out=stopped == "timeout",
            truncated=any("left_out" in stream for stream in captured.values()),
            duration=duration,
            signal=answer["signal"],
            stopped=stopped,
            limit=limit_met(
                stopped,
                out_of_memory=counted.killed and exit_code != 0,
                file_is_full=file_is_full and exit_code != 0,
            ),
            stdout_file=captured["stdout"].get("file"),
            stderr_file=captured["stderr"].get("file"),
        )

    def _directory(self, cwd: str | None) -> str:
        if cwd is None:
            return self.sandbox.workdir
        return cwd if cwd.startswith("/") else f"{self.sandbox.workdir}/{cwd}"

    async def close(self) -> None:
        """End everything inside and remove the sandbox. Call on the background loop."""
        try:
            await self._channel.close()
        finally:
            await self.sandbox.close()


_Kind = TypeVar("_Kind", bound=Supervised)


class SupervisedProvider(Provider[_Kind]):
    """Base of providers whose resource is `Supervised`."""

    sandbox = "namespace"

    def config_model(self) -> type[BaseModel]:
        """Return the model of `config:`. The default contains only variables."""
        return Programs

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return the guarantees of the sandbox, and those of every supervisor."""
        return sandbox.also(
            {
                "time": "the supervisor stops a call, and kills what does not stop",
                "total_time": "the supervisor",
                "output": "cut in the sandbox, complete in a file beside the workspace",
            },
            {"output": OUTPUT, "disk": DISK},
        )

    async def probe(self, spec: Spec) -> None:
        """Look for the user's own interpreter, if the spec names one."""
        installation(spec)

    async def ensure(self, request: Request) -> _Kind:
        """Open the resource, and start it."""
        [made] = self.resource_types()
        resource = await self.open(request, made)
        try:
            await resource.start(request.deadline)
        except BaseException:
            await resource.close()
            raise
        return resource

    async def open(self, request: Request, make: Callable[..., _Kind]) -> _Kind:
        """Open the sandbox and start a supervisor in it.

        Args:
            request: The request for the environment.
            make: Makes the resource from request, sandbox and channel.

        Returns:
            The resource.

        Raises:
            EnvironmentUnavailable: No sandbox was chosen.
            EnvironmentStartFailed: It ended, or did not respond in time.
        """
        if request.sandbox is None:
            raise EnvironmentUnavailable(f"{request.spec}: no sandbox was chosen for it")
        sandbox = request.sandbox(request)
        make_own(request)
        folders = await asyncio.to_thread(identities, request) if sandbox.same_files else {}
        await sandbox.open()
        try:
            environment = {"LANG": "C.UTF-8"}
            program = await sandbox.start_supervisor(COMMAND, env=environment)
            channel = Channel(program, f"{request.spec}")
            try:
                hello = await channel.hello(request.deadline, **_facts(request, sandbox, folders))
                check_mounted(request, folders, hello["mounts"])
                return make(request, sandbox, channel)
            except BaseException:
                await asyncio.shield(channel.close(0))
                raise
        except (EnvironmentLost, EnvironmentStartFailed) as error:
            output = await asyncio.shield(_last_words(sandbox))
            message = (
                error.message if output in error.message else f"{error.message}; it said: {output}"
            )
            raise EnvironmentStartFailed(message) from None
        except BaseException:
            await asyncio.shield(sandbox.close())
            raise

    def health_check(self, resource: _Kind) -> bool:
        """Return whether its supervisor responds."""
        return resource.healthy

    async def release(self, resource: _Kind) -> None:
        """End everything inside. The workspace stays."""
        await resource.close()


async def _last_words(sandbox: Sandbox) -> str:
    """Remove a sandbox in which nothing starts, and return its last output."""
    try:
        return await sandbox.last_words()
    finally:
        await sandbox.close()


def _facts(request: Request, sandbox: Sandbox, folders: Iterable[str]) -> dict[str, Any]:
    """Return the facts that a supervisor needs."""
    return {
        "workspace": sandbox.workdir,
        "home": sandbox.home,
        "output": f"{sandbox.home}/{OWN}/output",
        "own_processes": sandbox.own_processes,
        "forwards": [*sandbox.forwards],
        "mounts": [*folders],
        "files": {f"{sandbox.home}/.config/pip/pip.conf": _PIP},
    }


# A sandbox that runs one program, whose standard streams are connected to the engine.


async def start_program(
    sandbox: Sandbox,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    limits: Mapping[str, int],
    mounts: Mapping[str, Any] | None = None,
) -> Program:
    """Start a program below a first process that forwards its connections out of the sandbox.

    Args:
        sandbox: An open sandbox, which ends remaining processes when it closes.
        argv: Program and arguments, run without a shell.
        env: Its variables. They pass through its standard input, so that no command line shows
            them.
        cwd: Its working directory in the sandbox. Default: the workspace.
        limits: Limits for each process, by resource name.
        mounts: Path in the sandbox → device and inode number that its directory must have.

    Returns:
        The program.
    """
    options = {
        "argv": [*argv],
        "env": {**env, **sandbox.variables},
        "cwd": cwd or sandbox.workdir,
        "limits": dict(limits),
        "forwards": [*sandbox.forwards],
        "folders": [sandbox.workdir, sandbox.home],
        "mounts": dict(mounts or {}),
        "unreadable": sandbox.capabilities().isolation != "none",
    }
    program = await sandbox.start(COMMAND, env={"LANG": "C.UTF-8"})
    assert program.stdin is not None
    program.stdin.write(bootstrap.first_process() + part(json.dumps(options).encode()))
    return program


# Resources that several sandboxes of one environment, or one sandbox of several, may leave.


class Traces:
    """Records facts in every environment that uses a resource, combined over several sandboxes.

    Args:
        first: Tracer of the first environment.
    """

    def __init__(self, first: Tracer) -> None:
        self._facts: dict[str, list[Any]] = {}
        self._tracers = [first]

    def __call__(self, **facts: Any) -> None:
        """Add facts. Each becomes a list of all values recorded under its name."""
        for name, value in facts.items():
            known = self._facts.setdefault(name, [])
            values = value if isinstance(value, list) else [value]
            known += [each for each in values if each not in known]
        for tracer in self._tracers:
            tracer(**{name: self._facts[name] for name in facts})

    def add(self, tracer: Tracer) -> None:
        """Record everything for one more environment."""
        if tracer not in self._tracers:
            tracer(**self._facts)
            self._tracers.append(tracer)

    def remove(self, tracer: Tracer) -> None:
        """Stop recording for an environment."""
        if tracer in self._tracers:
            self._tracers.remove(tracer)

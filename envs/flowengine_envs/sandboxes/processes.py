"""Shared code of sandboxes whose programs are processes of this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from flowengine.sdk import EnvironmentLost, EnvironmentStartFailed
from flowengine.sdk.environments import VARIABLE, Axis, Leftover, Program, Request, Sandbox
from flowengine.sdk.processes import MARK, Family
from flowengine_envs.link.call_limits import DISK, MEMORY, PROCESSES
from flowengine_envs.link.words import ENTRANCES
from flowengine_envs.sandboxes import cgroups

_LIMIT = 1 << 16
"""Approximate number of bytes that a program can write ahead of the reader."""


class _Streams(SubprocessStreamProtocol):
    """The streams of a program, which can be ended without being read to their ends.

    asyncio considers a program ended when its pipes are, and does not notice the end of a pipe that
    it has paused.
    """

    _dropped = False

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        if not self._dropped:
            super().pipe_data_received(fd, data)

    def drop(self, transport: asyncio.SubprocessTransport) -> None:
        """Read and discard all remaining output."""
        self._dropped = True
        for fd in (1, 2):
            pipe: Any = transport.get_pipe_transport(fd)
            if pipe is not None:
                pipe.resume_reading()


class StartedProgram:
    """A program that leads a session, with its streams.

    Args:
        transport: The process.
        streams: Its streams.
        mark: Variable and value that mark it and its descendants. None: no mark.
    """

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        streams: _Streams,
        mark: tuple[str, str] | None = None,
    ) -> None:
        process = Process(transport, streams, asyncio.get_running_loop())
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr
        self._process = process
        self._transport = transport
        self._streams = streams
        variable, value = mark or (MARK, None)
        self.family = Family(value, process.pid, variable=variable)
        """The program and its descendants."""

    @property
    def pid(self) -> int:
        """Id of its first process."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for the signal that ended it. None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait until it has ended, and return the exit code."""
        return await self._process.wait()

    def kill(self) -> None:
        """Kill it and its descendants. Unread output is lost."""
        self._streams.drop(self._transport)
        self.family.signal(signal.SIGKILL)


async def start(*argv: str, mark: tuple[str, str] | None = None, **options: Any) -> StartedProgram:
    """Start a program in its own session. If the caller is cancelled, the program is killed.

    Args:
        argv: The program and its arguments.
        mark: As for `StartedProgram`. The caller sets the variable.
        options: Those of `asyncio.create_subprocess_exec`.

    Returns:
        The program.

    Raises:
        OSError: It cannot be started.
    """
    loop = asyncio.get_running_loop()
    options = {"stdin": None, "stdout": None, "stderr": None, **options}
    starting = asyncio.ensure_future(
        loop.subprocess_exec(
            lambda: _Streams(_LIMIT, loop), *argv, start_new_session=True, **options
        )
    )
    try:
        return StartedProgram(*await asyncio.shield(starting), mark)
    except asyncio.CancelledError:
        with suppress(OSError):
            program = StartedProgram(*await starting, mark)
            program.kill()
            await program.wait()
        raise


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Search path inside: the system's, independent of the environment of this process."""
_CPUS = 0.75
"""The default share of few CPUs that a sandbox receives. Of more than four, all but one."""
OWN_PROCESSES = 9
"""Processes that a sandbox needs in addition to the limit."""
_OWN_MEMORY = 1024**3
"""Bytes for the supervisor, separate from the memory of the programs that it starts."""

_ENTER = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 97; shift; done; shift; exec "$@"'
"""Joins the control groups before `--` and becomes the program after it."""


class ProcessSandbox(Sandbox):
    """A sandbox whose programs are processes of this machine."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._open = False
        self._programs: list[StartedProgram] = []
        tree, name = cgroups.tree(), f"flowengine-{request.id}"
        self._group = None if tree is None else cgroups.Group(tree, name)
        """Contains the programs."""
        self._own_group = None if tree is None else cgroups.Group(tree, f"{name}-supervisor")
        """Contains the supervisor, so that programs at their limits do not slow it down."""

    async def open(self) -> None:
        """Create the control groups."""
        if self._group is not None and self._own_group is not None:
            groups = (self._group, self._own_group)
            self.request.trace(groups=[folder for group in groups for folder in group.folders])
            limits = self.request.limits
            processes = (limits.processes or PROCESSES) + OWN_PROCESSES
            try:
                self._group.make(limits.memory or MEMORY, processes, limits.cpus or cpus())
                self._own_group.make(_OWN_MEMORY)
            except OSError as error:
                await self._remove_groups()
                raise EnvironmentStartFailed(
                    f"{self.request.spec}: its control group cannot be made: {error}"
                ) from error
        self._open = True

    def alive(self) -> bool:
        """Return whether it was opened and not closed."""
        return self._open

    async def close(self) -> None:
        """Kill running programs and remove the control groups."""
        self._open = False
        for program in self._programs:
            if program.returncode is None:
                program.kill()
                await program.wait()
        await self._remove_groups()

    async def _remove_groups(self) -> None:
        for group in (self._group, self._own_group):
            if group is not None:
                await cgroups.remove(group.folders)

    @classmethod
    async def reap(cls, leftover: Leftover) -> None:
        """Remove the control groups of a dead owner."""
        groups = leftover.facts.get("groups") or []
        await cgroups.remove([str(folder) for folder in groups])

    def resource_limits(self) -> Mapping[str, int]:
        """Return the limits that the system enforces per process."""
        limits = self.request.limits
        held = {"CORE": 0, "FSIZE": limits.disk or DISK}
        if "memory" not in held_by_group():
            held["DATA"] = limits.memory or MEMORY
        return held

    def memory_kills(self) -> int:
        """Return how many processes were killed because memory was at its limit."""
        return 0 if self._group is None else cgroups.memory_kills(self._group.by_controller)

    def refused_processes(self) -> int:
        """Return how many process starts failed because the process limit was reached."""
        return 0 if self._group is None else cgroups.refused_processes(self._group.by_controller)

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Program:
        """Start a program in the control group with the limits."""
        return await self._start(argv, env, self._group, [])

    async def start_supervisor(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Program:
        """Start a supervisor outside that group, with the means for its programs to join it."""
        if self._group is None:
            return await self.start(argv, env=env)
        with self._group.opened() as fds:
            variables = {**env, ENTRANCES: ",".join(map(str, fds))}
            return await self._start(argv, variables, self._own_group, fds)

    async def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        group: cgroups.Group | None,
        fds: Sequence[int],
    ) -> Program:
        """Start a program inside.

        Args:
            group: The control group that it starts in.
            fds: Descriptors that it inherits, with the same numbers.
        """
        raise NotImplementedError

    async def _spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        group: cgroups.Group | None,
        fds: Sequence[int],
    ) -> StartedProgram:
        """Start a process of this machine, in a control group and its own session."""
        if not self._open:
            raise self._ended()
        if group is not None:
            argv = ["/bin/sh", "-c", _ENTER, "sh", *group.entrances, "--", *argv]
        try:
            program = await start(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**env, VARIABLE: self.request.mark},
                cwd=cwd,
                pass_fds=fds,
            )
        except OSError as error:
            raise EnvironmentStartFailed(f"{self.request.spec}: {argv[0]}: {error}") from error
        if not self._open:  # closed concurrently
            program.kill()
            await program.wait()
            raise self._ended()
        self._programs.append(program)
        self.request.trace(pids=[each.pid for each in self._programs])
        return program

    def _ended(self) -> EnvironmentLost:
        return EnvironmentLost(f"{self.request.spec}: its sandbox has ended")


def cpus() -> float:
    """Return the default number of CPUs for a sandbox, so that the machine stays usable."""
    there = len(os.sched_getaffinity(0))
    return max(there * _CPUS, there - 1)


def has(program: str) -> bool:
    """Return whether the system has a program."""
    return shutil.which(program, path=PATH) is not None


def held_by_group() -> dict[Axis, str]:
    """Return the limits that control groups enforce on this machine."""
    tree = cgroups.tree()
    if tree is None:
        return {}
    axes: dict[str, Axis] = {"memory": "memory", "pids": "processes", "cpu": "cpus"}
    return {axes[each]: f"control group, version {tree.version}" for each in tree.folders}


def defaults(held: Mapping[Axis, str]) -> dict[Axis, float]:
    """Return the default limits for processes, as far as they can be enforced here."""
    every: dict[Axis, float] = {"memory": MEMORY, "processes": PROCESSES, "cpus": cpus()}
    return {axis: value for axis, value in every.items() if axis in held}

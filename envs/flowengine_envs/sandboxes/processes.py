"""What sandboxes that are processes of this machine have in common: their group and their start."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from flowengine.sdk import EnvironmentLost, EnvironmentStartFailed
from flowengine.sdk.environments import VARIABLE, Axis, Leftover, Program, Request, Sandbox
from flowengine_envs.call_limits import MEMORY, PROCESSES
from flowengine_envs.sandboxes import cgroups

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for inside: the system's, whatever this process was started with."""
_CPUS = 0.75
"""The part of few processors that a sandbox gets by default: of more than four, all but one."""
OWN = 6
"""Processes that a sandbox itself needs beside those that may run in it."""

_ENTER = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 97; shift; done; shift; exec "$@"'
"""Enters the control groups before `--` and becomes the program after it."""


class Processes(Sandbox):
    """A sandbox whose programs are processes of this machine."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._open = False
        self._programs: list[asyncio.subprocess.Process] = []
        tree = cgroups.tree()
        self._group = None if tree is None else cgroups.Group(tree, f"flowengine-{request.id}")

    async def open(self) -> None:
        """Make the control group."""
        limits = self.request.limits
        if self._group is not None:
            self.request.trace(groups=self._group.folders)
            try:
                self._group.make(
                    cgroups.Limits(
                        limits.memory or MEMORY,
                        (limits.processes or PROCESSES) + OWN,
                        limits.cpus or cpus(),
                    )
                )
            except OSError as error:
                await self._group.remove()
                raise EnvironmentStartFailed(
                    f"{self.request.spec}: its control group cannot be made: {error}"
                ) from error
        self._open = True

    def alive(self) -> bool:
        """Return whether it was opened and not closed."""
        return self._open

    async def close(self) -> None:
        """Kill what runs and remove the control group."""
        self._open = False
        for program in self._programs:
            if program.returncode is None:
                with suppress(ProcessLookupError):
                    program.kill()
                await program.wait()
        if self._group is not None:
            await self._group.remove()

    @classmethod
    async def reap(cls, leftover: Leftover) -> None:
        """Remove the control groups of a dead owner."""
        groups = leftover.facts.get("groups") or []
        await cgroups.remove([str(folder) for folder in groups])

    def memory_kills(self) -> int:
        """Return how many processes were killed because memory was at its limit."""
        return 0 if self._group is None else self._group.memory_kills()

    def refused_processes(self) -> int:
        """Return how often no process was started because there were as many as may be."""
        return 0 if self._group is None else self._group.refused_processes()

    async def _start(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, **options: Any
    ) -> Program:
        """Start a process of this machine, in the control group and in a session of its own."""
        if not self._open:
            raise EnvironmentLost(f"{self.request.spec}: its sandbox has ended")
        if self._group is not None:
            argv = ["/bin/sh", "-c", _ENTER, "sh", *self._group.entrances, "--", *argv]
        try:
            program = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**env, VARIABLE: self.request.mark},
                cwd=cwd,
                start_new_session=True,
                **options,
            )
        except OSError as error:
            raise EnvironmentStartFailed(f"{self.request.spec}: {argv[0]}: {error}") from error
        self._programs.append(program)
        self.request.trace(pids=[each.pid for each in self._programs])
        return program


def cpus() -> float:
    """Return how many processors a sandbox gets by default, so that the machine stays usable."""
    there = len(os.sched_getaffinity(0))
    return max(there * _CPUS, there - 1)


def has(program: str) -> bool:
    """Return whether the system has a program."""
    return shutil.which(program, path=PATH) is not None


def held_by_group() -> dict[Axis, str]:
    """Return the limits that control groups hold on this machine."""
    tree = cgroups.tree()
    if tree is None:
        return {}
    axes: dict[str, Axis] = {"memory": "memory", "pids": "processes", "cpu": "cpus"}
    return {axes[each]: f"control group, version {tree.version}" for each in tree.folders}


def defaults(held: Mapping[Axis, str]) -> dict[Axis, float]:
    """Return what holds of processes where a spec says nothing, as far as it can be held here."""
    every: dict[Axis, float] = {"memory": MEMORY, "processes": PROCESSES, "cpus": cpus()}
    return {axis: value for axis, value in every.items() if axis in held}

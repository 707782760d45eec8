"""What a sandbox holds, and a program that runs in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

Isolation = Literal["none", "process", "namespace", "container"]
"""How strongly programs are isolated from the machine, weakest first."""
ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)
"""All values of `Isolation`, from the weakest to the strongest."""

Axis = Literal[
    "filesystem",
    "network",
    "user",
    "syscalls",
    "variables",
    "cpus",
    "memory",
    "processes",
    "disk",
    "time",
    "total_time",
    "output",
]
"""What can be enforced: what a program sees of files, network, users and environment variables,
which system calls it can make; and the limits."""
AXES: tuple[Axis, ...] = get_args(Axis)
"""All values of `Axis`."""


class Capabilities(NamedTuple):
    """What is enforced on this machine, and how; what is not named is not enforced."""

    isolation: Isolation = "none"
    holds: Mapping[Axis, str] = {}
    """Axis → mechanism: `{"memory": "cgroup v2", "network": "own network namespace"}`."""

    defaults: Mapping[Axis, float] = {}
    """Limit → default, if there is one."""

    def also(
        self, holds: Mapping[Axis, str], defaults: Mapping[Axis, float] | None = None
    ) -> Capabilities:
        """Return these combined with those of another, which takes precedence."""
        held = {**self.holds, **holds}
        return Capabilities(self.isolation, held, {**self.defaults, **(defaults or {})})

    def without(self, axis: Axis) -> Capabilities:
        """Return these without one that is not enforced."""
        return self._replace(holds={name: by for name, by in self.holds.items() if name != axis})


class Program(Protocol):
    """A process inside a sandbox, with its streams; `asyncio.subprocess.Process` is one."""

    stdin: StreamWriter | None
    stdout: StreamReader | None
    stderr: StreamReader | None

    @property
    def pid(self) -> int:
        """Process id on the host: of the program, or of the client that stands for it."""

    @property
    def returncode(self) -> int | None:
        """Its exit code; negative: the signal that ended it; None: it is running."""

    async def wait(self) -> int:
        """Wait until it has ended, and return the exit code."""

    def kill(self) -> None:
        """End it (SIGKILL)."""

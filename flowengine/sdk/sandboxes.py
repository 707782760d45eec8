"""Sandboxes: where the programs of an environment run.

A sandbox is found by its entry point in the group `flowengine.sandboxes`; the entry point's name is
what `provider:` of an environment says (`namespace`, `docker`, `host`). Kinds that run programs are
written once, against `Sandbox`, and so work in each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, get_args

from flowengine.sdk.errors import PathEscape

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

    from pydantic import BaseModel

    from flowengine.sdk.environments import Leftover, Request, Spec
    from flowengine.sdk.process_identity import Owner

Isolation = Literal["none", "process", "namespace", "container"]
"""How strongly programs are isolated from the machine, weakest first."""
ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)

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
        return self._replace(holds={one: by for one, by in self.holds.items() if one != axis})


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


class Sandbox:
    """One opened place where programs run. All its coroutines run on the background loop.

    Args:
        request: What is to be opened.
    """

    name: ClassVar[str]
    """The value of `provider:`."""
    own_processes: ClassVar[bool] = False
    """Whether only its own processes are visible inside (a PID namespace)."""
    image: str = ""
    """Digest of the image that runs (`sha256:...`), if there is one; known once it is open."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.workspace = request.workspace
        """The folder of the environment on the host; programs read and write it."""

    @property
    def workdir(self) -> str:
        """Path of the workspace inside."""
        return "/workspace"

    @property
    def scratch(self) -> str:
        """Path inside of a folder that is removed with the sandbox."""
        return "/tmp"

    @property
    def home(self) -> str:
        """Path of the home folder (`request.home`) inside; it is writable."""
        return "/home/flow"

    @classmethod
    def config_model(cls) -> type[BaseModel] | None:
        """Return the model of the settings in `config:` that the sandbox adds to those of the kind.

        Its fields need defaults: they are added to those of every kind that may run in it. Default:
        none.
        """
        return None

    @classmethod
    def capabilities(cls) -> Capabilities:
        """Return what this sandbox enforces on this machine; called often, so it must be fast."""
        raise NotImplementedError

    @classmethod
    def capabilities_of(cls, spec: Spec) -> Capabilities:
        """Return what it enforces for one spec, which may have opened some of it.

        Args:
            spec: What is asked for.

        Returns:
            The same as `capabilities`, but no network where the policy says `network: any`.
        """
        held = cls.capabilities()
        opened = getattr(spec.policy, "network", None) == "any"
        return held.without("network") if opened else held

    @classmethod
    async def probe(cls, spec: Spec) -> None:
        """Find out, before anything starts, whether this machine can provide the sandbox.

        Args:
            spec: What is asked for.

        Raises:
            EnvironmentUnavailable: It cannot; the message says why and what mends it.
        """
        raise NotImplementedError

    @classmethod
    async def prepare(cls, spec: Spec) -> Any:
        """Prepare what may take long and outlasts an opening, such as an image; default: nothing.

        It has more time than `open`. It may be cancelled.

        Args:
            spec: What is asked for.

        Returns:
            The value of `request.prepared`.

        Raises:
            StepError: It is not available.
        """
        return None

    async def open(self) -> None:
        """Make everything ready, calling `request.trace` before each thing that could be left over.

        It must leave nothing behind when it raises or is cancelled.

        Raises:
            EnvironmentStartFailed: It did not start; the message has the last lines of its log.
        """
        raise NotImplementedError

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Program:
        """Start a program inside, in the workspace, with pipes for its streams.

        Args:
            argv: Program and arguments; no shell.
            env: Its whole environment, apart from the marks of the sandbox.

        Returns:
            The running program.

        Raises:
            EnvironmentLost: The sandbox has ended.
            EnvironmentStartFailed: It cannot be started.
        """
        raise NotImplementedError

    async def start_supervisor(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Program:
        """Start the program that starts all others; as `start`, which is the default.

        A sandbox may start it outside the limits of the programs, so that it stays responsive when
        they reach them. It must then put each program that it starts under these limits.

        Args:
            argv: Program and arguments; no shell.
            env: Its whole environment, apart from the marks of the sandbox.

        Returns:
            The running program.
        """
        return await self.start(argv, env=env)

    async def last_words(self) -> str:
        """Return the sandbox's own output before it ended, for the message of a failed start.

        Default: nothing.
        """
        return ""

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables that every program inside gets; default: none."""
        return {}

    @property
    def forwards(self) -> Sequence[Mapping[str, Any]]:
        """The connections that the supervisor inside forwards out of the sandbox; default: none.

        For each allowed destination: the addresses at which it listens inside (`listen`: host and
        port), and the path inside of the Unix socket to which each connection is forwarded
        (`socket`).
        """
        return ()

    def resource_limits(self) -> Mapping[str, int]:
        """Return the limits of each single program: `{"NPROC": 64}` for RLIMIT_NPROC."""
        return {"CORE": 0}

    def memory_kills(self) -> int:
        """Return how many programs have been killed so far because memory was at its limit.

        Compared before and after a program, it shows why that was killed. Default: 0, which means
        unknown.
        """
        return 0

    def refused_processes(self) -> int:
        """Return how often so far a process was not started because the limit was reached.

        Used like `memory_kills`, with the same default.
        """
        return 0

    def alive(self) -> bool:
        """Return at once whether programs can still be started."""
        raise NotImplementedError

    async def close(self) -> None:
        """End everything inside, wait until it has ended, and remove the sandbox."""
        raise NotImplementedError

    @classmethod
    async def reap(cls, leftover: Leftover) -> None:
        """End what a dead process left of such a sandbox, in addition to its processes and folders.

        Args:
            leftover: What was recorded of it.
        """

    @classmethod
    async def sweep(cls, is_dead: Callable[[Owner], bool]) -> None:
        """End what carries the labels of a dead owner, for what has no entry in the registry.

        Args:
            is_dead: Says of an owner, as `Request.labels` name it, whether it is certainly gone.
        """

    def inside(self, path: str | Path) -> str:
        """Return the path inside of a path of the host.

        Args:
            path: A path below the workspace.

        Returns:
            The path inside.

        Raises:
            PathEscape: It is not below the workspace.
        """
        try:
            below = Path(path).relative_to(self.workspace)
        except ValueError:
            raise PathEscape(f"{path} is not in the workspace {self.workspace}") from None
        return str(PurePosixPath(self.workdir, *_plain(below.parts, str(path))))

    def outside(self, path: str) -> Path:
        """Return the path on the host of a path inside.

        Args:
            path: A path inside, absolute below the workspace or relative to it.

        Returns:
            The path on the host. Links are not followed: open it below the workspace only.

        Raises:
            PathEscape: It is not below the workspace.
        """
        below = PurePosixPath(self.workdir, path)
        try:
            parts = below.relative_to(self.workdir).parts
        except ValueError:
            raise PathEscape(f"{path} is not in the workspace {self.workdir}") from None
        return self.workspace.joinpath(*_plain(parts, path))


def _plain(parts: Sequence[str], path: str) -> Sequence[str]:
    if ".." in parts:
        raise PathEscape(f"{path} leads out of the workspace by '..'")
    return parts

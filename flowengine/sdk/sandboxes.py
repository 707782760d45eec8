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
"""How far programs are kept from the machine, from not at all to furthest."""
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
"""What can be held: what a program sees of files, network, users and environment variables, which
calls of the system it can make; and the limits."""
AXES: tuple[Axis, ...] = get_args(Axis)


class Capabilities(NamedTuple):
    """What is held, and how, on this machine; what is not named is not held."""

    isolation: Isolation = "none"
    holds: Mapping[Axis, str] = {}
    """Axis → by what: `{"memory": "cgroup v2", "network": "own network namespace"}`."""

    defaults: Mapping[Axis, float] = {}
    """Limit → what it is where the spec does not say, as far as there is one at all."""

    def also(
        self, holds: Mapping[Axis, str], defaults: Mapping[Axis, float] | None = None
    ) -> Capabilities:
        """Return these and what somebody else holds, who counts where both do."""
        held = {**self.holds, **holds}
        return Capabilities(self.isolation, held, {**self.defaults, **(defaults or {})})

    def without(self, axis: Axis) -> Capabilities:
        """Return these but for one that is not held."""
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
        """How it ended; negative: by which signal; None: it runs."""

    async def wait(self) -> int:
        """Return how it ended, once it has."""

    def kill(self) -> None:
        """End it (SIGKILL)."""


class Sandbox:
    """One opened place where programs run. All its coroutines run on the background loop.

    Args:
        request: What is to be opened.
    """

    name: ClassVar[str]
    """What `provider:` says."""
    own_processes: ClassVar[bool] = False
    """Whether only its own processes can be seen and signalled inside (a PID namespace)."""
    image: str = ""
    """Digest of the image that runs (`sha256:...`), where one does; known when it is open."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.workspace = request.workspace
        """The folder of the environment on the host; programs read and write it."""

    @property
    def workdir(self) -> str:
        """The workspace as programs inside see it."""
        return "/workspace"

    @property
    def scratch(self) -> str:
        """A folder, as programs inside see it, for what is gone when the sandbox is."""
        return "/tmp"

    @property
    def home(self) -> str:
        """The home folder (`request.home`) as programs inside see it; they may write it."""
        return "/home/flow"

    @classmethod
    def config_model(cls) -> type[BaseModel] | None:
        """Return the model of what `config:` may say of the sandbox beside what the kind defines.

        Its fields need defaults: they are added to those of every kind that may run in it. Default:
        nothing may be said.
        """
        return None

    @classmethod
    def capabilities(cls) -> Capabilities:
        """Return what this sandbox holds on this machine; may be asked often, so be quick."""
        raise NotImplementedError

    @classmethod
    def capabilities_of(cls, spec: Spec) -> Capabilities:
        """Return what it holds of one spec, which may have opened some of it.

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
        """Find out, before anything starts, whether this machine can give the sandbox.

        Args:
            spec: What is asked for.

        Raises:
            EnvironmentUnavailable: It cannot; the message says why and what mends it.
        """
        raise NotImplementedError

    @classmethod
    async def prepare(cls, spec: Spec) -> Any:
        """Get what may take long and outlasts an opening, such as an image; default: nothing.

        It has more time than `open`. It may be cancelled.

        Args:
            spec: What is asked for.

        Returns:
            What `request.prepared` is to be.

        Raises:
            StepError: It cannot be had.
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
            env: Its whole environment beside the marks of the sandbox.

        Returns:
            The running program.

        Raises:
            EnvironmentLost: The sandbox is gone.
            EnvironmentStartFailed: It cannot be started.
        """
        raise NotImplementedError

    async def start_supervisor(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Program:
        """Start the program that starts all others; as `start`, which is the default.

        A sandbox may start it outside the limits of the programs, so that it stays responsive when
        they reach them. It must then put each program that it starts under these limits.

        Args:
            argv: Program and arguments; no shell.
            env: Its whole environment beside the marks of the sandbox.

        Returns:
            The running program.
        """
        return await self.start(argv, env=env)

    async def last_words(self) -> str:
        """Return what the sandbox itself said before it ended, for the message of a failed start.

        Default: nothing.
        """
        return ""

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables that every program inside gets; default: none."""
        return {}

    @property
    def forwards(self) -> Sequence[Mapping[str, Any]]:
        """What the supervisor inside leads out of the sandbox; default: nothing.

        For each place that may be reached the addresses at which it listens inside (`listen`: host
        and port) and the path inside of a unix socket that each connection is joined to (`socket`).
        """
        return ()

    def resource_limits(self) -> Mapping[str, int]:
        """Return what each program is held to by itself: `{"NPROC": 64}` for RLIMIT_NPROC."""
        return {"CORE": 0}

    def memory_kills(self) -> int:
        """Return how many programs were killed up to now because memory was at its limit.

        Those who run programs compare it before and after, to tell why one was killed. Default: 0,
        which says that it is not known.
        """
        return 0

    def refused_processes(self) -> int:
        """Return how often up to now no process was started because there were as many as may be.

        Used, and by default not known, as `memory_kills`.
        """
        return 0

    def alive(self) -> bool:
        """Return at once whether programs can still be started."""
        raise NotImplementedError

    async def close(self) -> None:
        """End everything inside, wait until it has ended, and take the sandbox away."""
        raise NotImplementedError

    @classmethod
    async def reap(cls, leftover: Leftover) -> None:
        """End what a dead process left of such a sandbox, beyond its processes and folders.

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
        """Return a path of the host as programs see it.

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
        """Return a path that programs see as a path of the host.

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

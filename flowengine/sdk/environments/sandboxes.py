"""Requests for environments, and the sandboxes in which their programs run.

A sandbox is found by its entry point in the group `flowengine.sandboxes`. The entry point's name is
the value of `provider:` of an environment (`namespace`, `docker`, `host`). Kinds that run programs
are implemented once, against `Sandbox`, and so work in each sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, get_args

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.notation.addresses import shown_owner
from flowengine.sdk.errors import PathEscape
from flowengine.sdk.processes import ProcessIdentity

if TYPE_CHECKING:
    import logging
    from asyncio import StreamReader, StreamWriter

    from pydantic import BaseModel

    from flowengine.sdk.environments.models import ResourceLimits

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
"""Aspects that a sandbox can enforce: a program's view of files, network, users and environment
variables, the system calls that it can make, and the limits."""
AXES: tuple[Axis, ...] = get_args(Axis)
"""All values of `Axis`."""


class Capabilities(NamedTuple):
    """Aspects that are enforced on this machine, with their mechanisms.

    Aspects not listed are not enforced.
    """

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
        """Return these capabilities without an axis that is not enforced."""
        return self._replace(holds={name: by for name, by in self.holds.items() if name != axis})


class Program(Protocol):
    """A process inside a sandbox, with its streams. `asyncio.subprocess.Process` is one."""

    stdin: StreamWriter | None
    stdout: StreamReader | None
    stderr: StreamReader | None

    @property
    def pid(self) -> int:
        """Process id on the host: of the program, or of the client that represents it."""

    @property
    def returncode(self) -> int | None:
        """The exit code, or the negative number of the signal that ended the process.

        None while it runs.
        """

    async def wait(self) -> int:
        """Wait until it has ended, and return the exit code."""

    def kill(self) -> None:
        """End it (SIGKILL)."""


Scope = Literal["action_call", "region", "execution", "session", "agent", "request", "global"]
"""How widely an environment is shared."""


class Spec(NamedTuple):
    """A validated request with all defaults. It is a copy, which may be kept."""

    id: str
    """The same for equal specs."""
    kind: str
    scope: Scope
    owner_id: str
    resource_key: str
    """The name under which steps and tools find the resource."""
    provider: str
    """The sandbox, or for kinds without one the kind itself."""
    config: Any
    """An object of the provider's `config_model`. Secrets are references here."""
    policy: Any
    """An object of the provider's `policy_model`."""
    limits: ResourceLimits
    needs: Mapping[str, str]
    """Properties that this machine must provably enforce: axis → mechanism, or `isolation`."""
    folder: str = "."
    """Base of relative paths in the configuration."""
    user: str = ""
    """The user for whom it acts, if `Provider.acts_for_user`. Empty: unknown."""
    sources: Mapping[str, Mapping[str, str]] = {}
    """The sources of the secrets that the configuration refers to: `{env: VARIABLE}` and so on."""

    def __str__(self) -> str:
        return f"environment '{self.resource_key}' ({self.kind} by {self.provider}, {self.place})"

    @property
    def place(self) -> str:
        """Scope and owner, as shown to users."""
        return f"{self.scope} {shown_owner(self.owner_id)}".rstrip()


class Tracer(Protocol):
    """Records resources that may remain if this process dies."""

    def __call__(self, **facts: Plain) -> None:
        """Add facts to the entry on disk, which is stored when this returns.

        Call it *before* the resource is started, or directly afterwards if its name is only known
        then: `trace(container="...")`, `trace(pid=program.pid)`. Process ids under `pid` or `pids`
        are kept with their start time, and directories under `folder` or `folders`. The reaper
        removes these itself. All other facts are for `Provider.reap` and `Sandbox.reap`.

        Args:
            facts: Plain data by name, never a secret.
        """


class Changes(Protocol):
    """Reports changes in the tools or resources that an environment offers."""

    def __call__(
        self,
        *,
        added: Sequence[str] = (),
        changed: Sequence[str] = (),
        removed: Sequence[str] = (),
    ) -> None:
        """Send the event `changed` to subscribers.

        Args:
            added: New names. Of each list, the first 100 are sent, cut to 200 characters.
            changed: Changed names.
            removed: Removed names.
        """


def _untold(
    *, added: Sequence[str] = (), changed: Sequence[str] = (), removed: Sequence[str] = ()
) -> None:
    """Do nothing, because an environment opened without a manager has no subscribers."""


class Request(NamedTuple):
    """One opening of an environment: its spec and the objects that belong to it."""

    spec: Spec
    id: str
    """Id of the handle, unique on all machines."""
    generation: int
    """1 for the first opening of its spec, increased each time it is opened again."""
    config: Any
    """An object of the provider's `config_model` with the values of secrets. It is for this opening
    only, and must not be shown, kept or passed on."""
    policy: Any
    limits: ResourceLimits
    workspace: Path
    """A directory on the host that belongs to the environment. It is created and removed by the
    manager, and available again when the environment is reopened after a wait."""
    home: Path
    """The home directory of its programs on the host, which lasts as long as the workspace. It
    keeps all files that are not the user's out of the workspace. The manager creates it."""
    sandbox: type[Sandbox] | None
    """The sandbox for its programs. None for kinds that need no sandbox."""
    mounts: Mapping[str, Path]
    """Directories of other environments on the host: path inside → directory."""
    owner: ProcessIdentity
    manager: str
    """Id of the manager, for labels."""
    mark: str
    """Value of the environment variable `VARIABLE`, to be set for every process."""
    trace: Tracer
    deadline: float
    """Time when it must be ready, in seconds of the background loop's clock (`loop.time()`)."""
    log: logging.LoggerAdapter[logging.Logger]
    """Names the environment, and masks its secrets."""
    changed: Changes = _untold
    """Reports to subscribers that its offers have changed, while it is open."""
    read_only: Set[str] = frozenset()
    """The `mounts` whose own environment is read-only."""
    mask: Callable[[Any], Any] = lambda value: value
    """Replaces the values of its secrets in plain data that leaves the environment."""
    guarded: Sequence[Path] = ()
    """Directories on the host that belong to the engine, such as its store. No sandbox may see
    them."""
    prepared: Any = None
    """The result of the sandbox's `prepare`. None if it was not called."""

    def may_write(self, inside: str) -> bool:
        """Return whether programs may write a directory of `mounts`, by its path inside."""
        writable = self.policy.writable
        return inside not in self.read_only and (writable is None or inside in writable)

    @property
    def labels(self) -> dict[str, str]:
        """Labels for objects that can have them, such as containers. They name the owner."""
        return {
            "flowengine": "1",
            "flowengine.environment": self.id,
            "flowengine.manager": self.manager,
            "flowengine.scope": self.spec.scope,
            "flowengine.owner_id": self.spec.owner_id,
            "flowengine.resource_key": self.spec.resource_key,
            "flowengine.pid": str(self.owner.pid),
            "flowengine.started": str(self.owner.started),
            "flowengine.boot": self.owner.boot,
            "flowengine.host": self.owner.host,
        }


class Leftover(NamedTuple):
    """The record on disk of an environment whose owner is dead."""

    id: str
    kind: str
    provider: str
    manager: str
    owner: ProcessIdentity
    mark: str
    workspace: Path
    facts: Mapping[str, Any]
    """The facts passed to `trace`."""


class Sandbox:
    """One opened place where programs run. All its coroutines run on the background loop.

    Args:
        request: The opening.
    """

    name: ClassVar[str]
    """The value of `provider:`."""
    own_processes: ClassVar[bool] = False
    """Whether only its own processes are visible inside (a PID namespace)."""
    same_files: ClassVar[bool] = False
    """Whether directories of this machine have the same device and inode number inside."""
    image: str = ""
    """Digest of the running image (`sha256:...`), if there is one. Set once it is open."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.workspace = request.workspace
        """The directory of the environment on the host, which programs read and write."""

    @property
    def workdir(self) -> str:
        """Path of the workspace inside."""
        return "/workspace"

    @property
    def scratch(self) -> str:
        """Path inside of a directory that is removed with the sandbox."""
        return "/tmp"

    @property
    def home(self) -> str:
        """Path of the home directory (`request.home`) inside. It is writable."""
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
        """Return the aspects that this sandbox enforces on this machine.

        It is called often, so it must be fast.
        """
        raise NotImplementedError

    @classmethod
    def capabilities_of(cls, spec: Spec) -> Capabilities:
        """Return the aspects that it enforces for one spec, which may have lifted some of them.

        Args:
            spec: The requested environment.

        Returns:
            The same as `capabilities`, but without the network if the policy is `network: any`.
        """
        held = cls.capabilities()
        opened = getattr(spec.policy, "network", None) == "any"
        return held.without("network") if opened else held

    @classmethod
    async def probe(cls, spec: Spec) -> None:
        """Find out, before anything starts, whether this machine can provide the sandbox.

        Args:
            spec: The requested environment.

        Raises:
            EnvironmentUnavailable: The machine cannot provide it. The message contains the reason
                and the remedy.
        """
        raise NotImplementedError

    @classmethod
    async def prepare(cls, spec: Spec) -> Any:
        """Prepare resources that take long and outlast an opening, such as an image.

        It has more time than `open`, and may be cancelled. Default: nothing.

        Args:
            spec: The requested environment.

        Returns:
            The value of `request.prepared`.

        Raises:
            StepError: It is not available.
        """
        return None

    async def open(self) -> None:
        """Open the sandbox, calling `request.trace` before creating anything that could remain.

        It must leave nothing behind when it raises or is cancelled.

        Raises:
            EnvironmentStartFailed: It did not start. The message contains the last lines of its
                log.
        """
        raise NotImplementedError

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Program:
        """Start a program inside, in the workspace, with pipes for its streams.

        Args:
            argv: Program and arguments, run without a shell.
            env: All of its environment variables, apart from the marks of the sandbox.

        Returns:
            The running program.

        Raises:
            EnvironmentLost: The sandbox has ended.
            EnvironmentStartFailed: It cannot be started.
        """
        raise NotImplementedError

    async def start_supervisor(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Program:
        """Start the supervisor, which starts all other programs. Default: `start`.

        A sandbox may start it outside the limits of the programs, so that it stays responsive when
        they reach them. It must then put each program that it starts under these limits.

        Args:
            argv: Program and arguments, run without a shell.
            env: All of its environment variables, apart from the marks of the sandbox.

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
        """Environment variables for every program inside. Default: none."""
        return {}

    @property
    def forwards(self) -> Sequence[Mapping[str, Any]]:
        """The connections that the supervisor forwards out of the sandbox. Default: none.

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

    @property
    def proxies(self) -> Sequence[str]:
        """Addresses of its proxies inside.

        A kind has several with `proxies` in its configuration.

        All lead to the same destinations. Refused connections are counted per proxy. Default: none.
        """
        return ()

    def refused_connections(self, after: int = 0, proxy: int = 0) -> Sequence[tuple[int, str]]:
        """Return the connections through a proxy that the policy has refused.

        Args:
            after: The number of the last one that is known.
            proxy: Number of the proxy, from 0.

        Returns:
            Their numbers, from 1, each with the destination and the reason. Only the latest are
            kept. Default: none.
        """
        return ()

    def judge_connections(self, judge: Callable[[str, int], str] | None, proxy: int = 0) -> None:
        """Have a proxy submit each connection that the policy allows to a further check.

        Args:
            judge: Takes host and port, and returns the reason for a refusal, or an empty text to
                allow. None removes the check.
            proxy: Number of the proxy, from 0.

        Raises:
            NotImplementedError: This sandbox has no proxies.
        """
        raise NotImplementedError

    def alive(self) -> bool:
        """Return at once whether programs can still be started."""
        raise NotImplementedError

    async def close(self) -> None:
        """End all programs inside, wait until they have ended, and remove the sandbox."""
        raise NotImplementedError

    @classmethod
    async def reap(cls, leftover: Leftover) -> None:
        """End the remains of a dead process's sandbox, except processes and directories.

        Args:
            leftover: The record of the remains.
        """

    @classmethod
    async def sweep(cls, is_dead: Callable[[ProcessIdentity], bool]) -> None:
        """End objects that carry the labels of a dead owner and have no entry in the registry.

        Args:
            is_dead: Returns whether an owner, as named in `Request.labels`, is certainly dead.
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


def with_sandboxes(model: type[BaseModel], sandboxes: Iterable[type[Sandbox]]) -> type[BaseModel]:
    """Return the model of `config:` of a kind with the fields of its sandboxes.

    Args:
        model: The model of the kind.
        sandboxes: The sandboxes that a spec can name.

    Returns:
        A model with the fields of all.
    """
    from pydantic import create_model

    models = [each.config_model() for each in sandboxes]
    more = [each for each in models if each is not None]
    return create_model(model.__name__, __base__=(model, *more)) if more else model

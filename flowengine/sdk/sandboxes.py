"""Openings of environments: what is requested, and the sandboxes in which programs run.

A sandbox is found by its entry point in the group `flowengine.sandboxes`; the entry point's name is
what `provider:` of an environment says (`namespace`, `docker`, `host`). Kinds that run programs are
written once, against `Sandbox`, and so work in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.capabilities import Capabilities, Program
from flowengine.sdk.errors import PathEscape
from flowengine.sdk.process_identity import Owner

if TYPE_CHECKING:
    import logging

    from pydantic import BaseModel

    from flowengine.sdk.models import Limits

Scope = Literal["action_call", "region", "execution", "session", "agent", "request", "global"]
"""How far an environment is shared."""


class Spec(NamedTuple):
    """What is requested, checked and with all defaults; a copy, which may be kept."""

    id: str
    """The same for equal specs."""
    kind: str
    scope: Scope
    owner_id: str
    resource_key: str
    """The name under which steps and tools find the resource."""
    provider: str
    """The sandbox; for kinds without one, the kind itself."""
    config: Any
    """An object of the provider's `config_model`; secrets are references here."""
    policy: Any
    """An object of the provider's `policy_model`."""
    limits: Limits
    requires: Mapping[str, str]
    """What must be provable on this machine: axis → how it must be enforced, or `isolation`."""
    folder: str = "."
    """Base of relative paths in the configuration."""

    def __str__(self) -> str:
        return f"environment '{self.resource_key}' ({self.kind} by {self.provider}, {self.place})"

    @property
    def place(self) -> str:
        """Scope and owner, for people."""
        return f"{self.scope} {self.owner_id}" if self.owner_id else self.scope


class Tracer(Protocol):
    """Records what may be left over if this process dies."""

    def __call__(self, **facts: Plain) -> None:
        """Add facts to the entry on disk; they are stored when this returns.

        Call it *before* the thing is started, or right after if its name is only known then:
        `trace(container="...")`, `trace(pid=program.pid)`. Process ids under `pid` or `pids` are
        kept with their start time, and folders under `folder` or `folders`; the reaper removes
        those by itself. Anything else is for `Provider.reap` and `Sandbox.reap`.

        Args:
            facts: Plain data by name; never a secret.
        """


class Changes(Protocol):
    """Reports changes in what an environment offers."""

    def __call__(
        self,
        *,
        added: Sequence[str] = (),
        changed: Sequence[str] = (),
        removed: Sequence[str] = (),
    ) -> None:
        """Send the event `changed` to subscribers.

        Args:
            added: New names. Of each list the first 100, cut to 200 characters.
            changed: Names of what has changed.
            removed: Names of what was removed.
        """


def _untold(
    *, added: Sequence[str] = (), changed: Sequence[str] = (), removed: Sequence[str] = ()
) -> None:
    """Do nothing: an environment opened without a manager has no subscribers."""


class Request(NamedTuple):
    """One opening of an environment: what is requested, and what belongs to it."""

    spec: Spec
    id: str
    """Id of the handle, unique on all machines."""
    generation: int
    """1 for the first opening of its spec; higher each time it is opened again."""
    config: Any
    """An object of the provider's `config_model` with the values of secrets: for this opening only,
    never to be shown, kept or passed on."""
    policy: Any
    limits: Limits
    workspace: Path
    """A folder on the host that belongs to the environment. It is created and removed by the
    manager, and available again when the environment is reopened after a wait."""
    home: Path
    """The home folder of its programs on the host, which lasts as long as the workspace. It holds
    everything that is not the user's, to keep that out of the workspace. The manager creates it."""
    sandbox: type[Sandbox] | None
    """Where programs run; None for kinds that need no sandbox."""
    mounts: Mapping[str, Path]
    """Folders of other environments on the host: path inside → folder."""
    owner: Owner
    manager: str
    """Id of the manager, for labels."""
    mark: str
    """Value of the environment variable `VARIABLE`, to be set for every process."""
    trace: Tracer
    deadline: float
    """When it must be ready: seconds of the background loop's clock (`loop.time()`)."""
    log: logging.LoggerAdapter[logging.Logger]
    """Names the environment, and masks its secrets."""
    changed: Changes = _untold
    """Tells subscribers that what it offers has changed, while it is open."""
    read_only: Set[str] = frozenset()
    """The `mounts` whose own environment is read-only."""
    mask: Callable[[Any], Any] = lambda value: value
    """Replaces the values of its secrets in plain data that leaves the environment."""
    guarded: Sequence[Path] = ()
    """Folders of the engine's own on the host, such as its store: no sandbox may see them."""
    prepared: Any = None
    """What the sandbox's `prepare` returned; None if it was not called."""

    def may_write(self, inside: str) -> bool:
        """Return whether programs may write a folder of `mounts`, by its path inside."""
        writable = self.policy.writable
        return inside not in self.read_only and (writable is None or inside in writable)

    @property
    def labels(self) -> dict[str, str]:
        """Labels for things that can have them, such as containers; they name the owner."""
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
    """What the registry on disk knows of an environment whose owner is dead."""

    id: str
    kind: str
    provider: str
    manager: str
    owner: Owner
    mark: str
    workspace: Path
    facts: Mapping[str, Any]
    """The facts passed to `trace`."""


class Sandbox:
    """One opened place where programs run. All its coroutines run on the background loop.

    Args:
        request: What is to be opened.
    """

    name: ClassVar[str]
    """The value of `provider:`."""
    own_processes: ClassVar[bool] = False
    """Whether only its own processes are visible inside (a PID namespace)."""
    same_files: ClassVar[bool] = False
    """Whether folders of this machine have the same device and number inside."""
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

    @property
    def proxies(self) -> Sequence[str]:
        """Addresses inside of its proxies; a kind has several by `proxies` of its configuration.

        They lead to the same places. What is refused is counted for each. Default: none.
        """
        return ()

    def refused_connections(self, after: int = 0, proxy: int = 0) -> Sequence[tuple[int, str]]:
        """Return the connections that the policy has forbidden, as far as programs asked a proxy.

        Args:
            after: The number of the last one that is known.
            proxy: Which one was asked, from 0.

        Returns:
            Their numbers, from 1, and what was asked for and why it was refused; only the latest
            are kept. Default: none.
        """
        return ()

    def judge_connections(self, judge: Callable[[str, int], str] | None, proxy: int = 0) -> None:
        """Have a proxy ask about each connection that the policy allows.

        Args:
            judge: Takes host and port, and returns why they may not be reached; empty: they may.
                None: it asks no more.
            proxy: Which one, from 0.

        Raises:
            NotImplementedError: This sandbox has no proxies.
        """
        raise NotImplementedError

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


def with_sandboxes(model: type[BaseModel], sandboxes: Iterable[type[Sandbox]]) -> type[BaseModel]:
    """Return the model of `config:` of a kind and of the sandboxes it may run in.

    Args:
        model: The model of the kind.
        sandboxes: Those that a spec names.

    Returns:
        A model with the fields of all.
    """
    from pydantic import create_model

    found = [each.config_model() for each in sandboxes]
    more = [each for each in found if each is not None]
    return create_model(model.__name__, __base__=(model, *more)) if more else model

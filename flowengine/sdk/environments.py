"""The interface of managed environments.

A *provider* opens live resources of one *kind* (`python`, `sqlite`, `mcp`, ...). It is found by its
entry point in the group `flowengine.envs`, whose name is the kind. The manager decides when
something is opened, checked, reused or released; a provider only knows how.

    class Counters(Provider):
        kind = "counter"
        leaves_traces = False

        async def probe(self, spec): ...
        async def ensure(self, request): return Counter(request)
        def health_check(self, resource): return resource.open
        async def release(self, resource): resource.open = False

Coroutines of providers, sandboxes and resources run on one background loop (`background`).
`flowengine.testing.environment_conformance` checks that a provider conforms.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    get_args,
)

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.background import Background, background
from flowengine.sdk.process_identity import Owner
from flowengine.sdk.process_tree import VARIABLE
from flowengine.sdk.resources import Resource, awaitable, blocking
from flowengine.sdk.sandboxes import (
    AXES,
    ISOLATIONS,
    Axis,
    Capabilities,
    Isolation,
    Program,
    Sandbox,
)

if TYPE_CHECKING:
    import logging

    from pydantic import BaseModel

    from flowengine.sdk import Command, StepContext
    from flowengine.sdk.models import Limits

__all__ = [
    "AXES",
    "ISOLATIONS",
    "VARIABLE",
    "Axis",
    "Background",
    "Capabilities",
    "Changes",
    "Isolation",
    "Leftover",
    "Owner",
    "Program",
    "Provider",
    "Request",
    "Resource",
    "Sandbox",
    "Scope",
    "Spec",
    "Tracer",
    "awaitable",
    "background",
    "blocking",
]

Scope = Literal["action_call", "region", "execution", "session", "agent", "request", "global"]
"""How far an environment is shared."""

_Live = TypeVar("_Live")


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
    everything that is not the user's, to keep that out of the workspace. Created by whoever needs
    it."""
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


class Provider(Generic[_Live]):
    """Opens live resources of one kind. One object per process; calls may overlap."""

    kind: ClassVar[str]
    """The word in `kind:`."""
    sandbox: ClassVar[str | None] = None
    """The sandbox that is used if the spec names none; None: the kind needs no sandbox."""
    only_in: ClassVar[tuple[str, ...]] = ()
    """The sandboxes that it can run in; empty: all."""
    live: ClassVar[bool] = False
    """Whether its state is lost when it is closed, so that it is kept while an execution waits."""
    leaves_traces: ClassVar[bool] = True
    """Whether something can be left over when this process dies, so that a registry on disk is
    needed."""

    sample: ClassVar[Mapping[str, Plain]] = {}
    """The smallest `config:`, with which `flowengine envs doctor` probes the kind."""

    @classmethod
    def resource_types(cls) -> tuple[type, ...]:
        """Return the classes of its resources: functions in flows may use them as type hints.

        Default: the argument of `Provider[...]`; each member of a union.
        """
        for base in cls.__mro__:
            for generic in base.__dict__.get("__orig_bases__", ()):
                given = get_args(generic)
                each = [one for part in given for one in get_args(part) or (part,)]
                found = tuple(one for one in each if isinstance(one, type) and one is not Any)
                if found:
                    return found
        return ()

    def config_model(self) -> type[BaseModel]:
        """Return the model of `config:`; default: nothing can be configured."""
        from flowengine.sdk.models import Config

        return Config

    def policy_model(self) -> type[BaseModel]:
        """Return the model of `policy:`; default: the common vocabulary."""
        from flowengine.sdk.models import Policy

        return Policy

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return what is enforced, and how.

        Args:
            sandbox: What the sandbox enforces; nothing for kinds without one.

        Returns:
            These, and what the provider enforces itself, such as the time of a call.
        """
        return sandbox

    async def probe(self, spec: Spec) -> None:
        """Find out, before anything starts, whether this machine can provide the environment.

        The sandbox has been probed before.

        Args:
            spec: What is requested; secrets are references.

        Raises:
            EnvironmentUnavailable: It cannot; the message says why and how to fix that.
        """
        raise NotImplementedError

    async def ensure(self, request: Request) -> _Live:
        """Open a live resource, ready to be used.

        It must leave nothing behind when it raises or is cancelled.

        Args:
            request: What to open.

        Returns:
            The resource: a separate object for every request, preferably a `Resource`.

        Raises:
            EnvironmentStartFailed: It did not start.
        """
        raise NotImplementedError

    def health_check(self, resource: _Live) -> bool | Awaitable[bool]:
        """Return whether the resource still works, preferably as a plain value at once.

        Args:
            resource: What `ensure` returned.

        Returns:
            The answer, or an awaitable for it, to be awaited on the background loop.
        """
        raise NotImplementedError

    async def release(self, resource: _Live) -> None:
        """End the resource and everything it started; the workspace stays.

        Args:
            resource: What `ensure` returned; it may be broken.
        """
        raise NotImplementedError

    async def suspend(self, resource: _Live) -> None:
        """Release the resource for a wait; by default the same as `release`.

        Args:
            resource: What `ensure` returned.
        """
        await self.release(resource)

    async def reap(self, leftover: Leftover) -> None:
        """End what a dead process left, except processes, folders and what its sandbox reaps.

        Args:
            leftover: What was recorded about it.
        """

    async def sweep(self, is_dead: Callable[[Owner], bool]) -> None:
        """End what carries the labels of a dead owner and has no entry in the registry.

        Args:
            is_dead: Returns whether an owner, as named in `Request.labels`, is certainly dead.
        """

    async def run(
        self, resource: _Live, context: StepContext, command: Command
    ) -> dict[str, Plain]:
        """Run the command of a `run` step with `in:` to its end, whatever its exit code.

        Args:
            resource: What `ensure` returned.
            context: The attempt.
            command: What to run.

        Returns:
            `{exit_code, stdout, stderr, value, files}`.

        Raises:
            NotImplementedError: This kind of environment runs no commands.
        """
        raise NotImplementedError(f"environments of kind '{self.kind}' run no commands")


REQUIRED: Sequence[str] = ("probe", "ensure", "health_check", "release")
"""The attributes that every provider must define itself."""

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

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    TypeVar,
    get_args,
)

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.background import Background, background
from flowengine.sdk.capabilities import AXES, ISOLATIONS, Axis, Capabilities, Isolation, Program
from flowengine.sdk.process_identity import Owner
from flowengine.sdk.process_tree import VARIABLE
from flowengine.sdk.resources import Resource, awaitable, blocking
from flowengine.sdk.sandboxes import (
    Changes,
    Leftover,
    Request,
    Sandbox,
    Scope,
    Spec,
    Tracer,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from flowengine.sdk.context import Command, StepContext

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


_Live = TypeVar("_Live")


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
    runs_programs: ClassVar[bool] = False
    """Whether `run` takes a program with its arguments (`argv`), not only text."""
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
                each = [hint for part in given for hint in get_args(part) or (part,)]
                found = tuple(hint for hint in each if isinstance(hint, type) and hint is not Any)
                if found:
                    return found
        return ()

    def config_model(self) -> type[BaseModel]:
        """Return the model of `config:`; default: nothing can be configured."""
        from flowengine.sdk.models import Config

        return Config

    def default_sandbox(self, config: Mapping[str, Any]) -> str | None:
        """Return the sandbox that is used if the spec names none; default: `sandbox`.

        Args:
            config: As it was written, not checked; a text that is not known yet is empty, and
                what else is not known is missing.

        Returns:
            Its name; None: with this configuration, the kind needs no sandbox.
        """
        return self.sandbox

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

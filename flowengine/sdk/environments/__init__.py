"""The interface of managed environments.

A *provider* opens live resources of one *kind* (`python`, `sqlite`, `mcp`, ...). It is found by its
entry point in the group `flowengine.envs`, whose name is the kind. The manager decides when a
resource is opened, checked, reused or released. A provider implements these operations.

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
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, get_args

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.environments.resources import (
    Background,
    Resource,
    background,
    both_forms,
)
from flowengine.sdk.environments.sandboxes import (
    AXES,
    ISOLATIONS,
    Axis,
    Capabilities,
    Changes,
    Isolation,
    Leftover,
    Program,
    Request,
    Sandbox,
    Scope,
    Spec,
    Tracer,
)
from flowengine.sdk.processes import VARIABLE, ProcessIdentity

if TYPE_CHECKING:
    from pydantic import BaseModel

    from flowengine.sdk.files.logins import Login
    from flowengine.sdk.steps.context import Command, StepContext

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
    "LoginPage",
    "ProcessIdentity",
    "Program",
    "Provider",
    "Request",
    "Resource",
    "Sandbox",
    "Scope",
    "Screen",
    "Spec",
    "Tracer",
    "background",
    "both_forms",
]


_Live = TypeVar("_Live")


class Screen(NamedTuple):
    """The screen of an environment at one moment, for users."""

    text: str = ""
    """The lines of a terminal."""
    picture: bytes = b""
    """A PNG, such as of a browser's window."""
    title: str = ""
    """Of the page in a browser."""
    address: str = ""


class LoginPage(Protocol):
    """Leads a user to the page of an authorization server, and receives its redirect."""

    @property
    def redirect_uri(self) -> str:
        """The address to which the server redirects the user."""

    async def visit(self, url: str) -> Mapping[str, str]:
        """Lead the user to a page, and return the parameters of the redirect.

        Args:
            url: Its address: `https:`, or `http:` on this machine. It has no control characters.
        """


class Provider(Generic[_Live]):
    """Opens live resources of one kind. Each process has one object, and calls may overlap."""

    kind: ClassVar[str]
    """The word in `kind:`."""
    sandbox: ClassVar[str | None] = None
    """The sandbox used if the spec names none. None if the kind needs no sandbox."""
    only_in: ClassVar[tuple[str, ...]] = ()
    """The sandboxes that it can run in. Empty means all."""
    live: ClassVar[bool] = False
    """Whether closing it loses its state. If so, it stays open while an execution waits."""
    runs_programs: ClassVar[bool] = False
    """Whether `run` takes a program with its arguments (`argv`), not only text."""
    inert: ClassVar[bool] = False
    """Whether opening it starts no program and reaches no other machine, so that it is opened for
    the preview of a call before the call is approved."""
    leaves_traces: ClassVar[bool] = True
    """Whether something can remain when this process dies, so that a registry on disk is needed."""

    sample: ClassVar[Mapping[str, Plain]] = {}
    """The smallest `config:`, with which `flowengine doctor` probes the kind."""

    @classmethod
    def resource_types(cls) -> tuple[type, ...]:
        """Return the classes of its resources, which functions in flows may use as type hints.

        Default: the argument of `Provider[...]`, or each member of a union.
        """
        for base in cls.__mro__:
            for generic in base.__dict__.get("__orig_bases__", ()):
                given = get_args(generic)
                each = [hint for part in given for hint in get_args(part) or (part,)]
                hints = tuple(hint for hint in each if isinstance(hint, type) and hint is not Any)
                if hints:
                    return hints
        return ()

    def config_model(self) -> type[BaseModel]:
        """Return the model of `config:`. By default nothing can be configured."""
        from flowengine.sdk.environments.models import Config

        return Config

    def default_sandbox(self, config: Mapping[str, Any]) -> str | None:
        """Return the sandbox used if the spec names none. Default: `sandbox`.

        Args:
            config: The configuration as written, unchecked. Texts that are not known yet are empty,
                and other unknown values are missing.

        Returns:
            Its name, or None if the kind needs no sandbox with this configuration.
        """
        return self.sandbox

    def acts_for_user(self, config: Mapping[str, Any]) -> bool:
        """Return whether it acts for the user who started the execution. Default: false.

        Users then do not share it, and `Spec.user` names the user.

        Args:
            config: The configuration, with expressions evaluated.
        """
        return False

    async def log_in(self, login: Login, secret: str | None, page: LoginPage) -> Login:
        """Let a user log in at a server that an environment needs.

        Args:
            login: The login that an environment has prepared. It is not changed.
            secret: The secret of the OAuth client that the flow names, if it has one.
            page: Where the user logs in.

        Returns:
            The login with its tokens, which the caller keeps.

        Raises:
            Refused: The user or the server refused.
            StepError: The login failed for another reason.
        """
        raise NotImplementedError(f"environments of kind '{self.kind}' need no login")

    def policy_model(self) -> type[BaseModel]:
        """Return the model of `policy:`. Default: the common vocabulary."""
        from flowengine.sdk.environments.models import EnvironmentPolicy

        return EnvironmentPolicy

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return the enforced aspects and their mechanisms.

        Args:
            sandbox: Capabilities of the sandbox. Empty for kinds without one.

        Returns:
            These, and the aspects that the provider enforces itself, such as the time limit of a
            call.
        """
        return sandbox

    async def probe(self, spec: Spec) -> None:
        """Find out, before anything starts, whether this machine can provide the environment.

        The sandbox has been probed before.

        Args:
            spec: The requested environment. Secrets are references.

        Raises:
            EnvironmentUnavailable: The machine cannot provide it. The message contains the reason
                and the remedy.
        """
        raise NotImplementedError

    async def ensure(self, request: Request) -> _Live:
        """Open a live resource, ready to be used.

        It must leave nothing behind when it raises or is cancelled.

        Args:
            request: The opening.

        Returns:
            The resource: a separate object for every request, preferably a `Resource`.

        Raises:
            EnvironmentStartFailed: The resource did not start.
        """
        raise NotImplementedError

    def health_check(self, resource: _Live) -> bool | Awaitable[bool]:
        """Return whether the resource still works, preferably as a plain value at once.

        Args:
            resource: The result of `ensure`.

        Returns:
            The answer, or an awaitable for it, to be awaited on the background loop.
        """
        raise NotImplementedError

    async def release(self, resource: _Live) -> None:
        """End the resource and everything that it started. The workspace stays.

        Args:
            resource: The result of `ensure`, which may be broken.
        """
        raise NotImplementedError

    async def suspend(self, resource: _Live) -> None:
        """Release the resource for a wait. Default: the same as `release`.

        Args:
            resource: The result of `ensure`.
        """
        await self.release(resource)

    async def screen(self, resource: _Live) -> Screen:
        """Return the current screen of the environment, for a user who looks into it.

        It must not disturb the step that uses the environment at the moment. A kind that overrides
        it can be looked into from other processes.

        Args:
            resource: The result of `ensure`.

        Raises:
            NotImplementedError: This kind of environment has nothing to look at.
        """
        raise NotImplementedError(f"environments of kind '{self.kind}' have no screen")

    async def reap(self, leftover: Leftover) -> None:
        """End the remains of a dead process that the manager and the sandbox do not reap.

        The manager reaps processes and directories.

        Args:
            leftover: The record of the remains.
        """

    async def sweep(self, is_dead: Callable[[ProcessIdentity], bool]) -> None:
        """End objects that carry the labels of a dead owner and have no entry in the registry.

        Args:
            is_dead: Returns whether an owner, as named in `Request.labels`, is certainly dead.
        """

    async def run(
        self, resource: _Live, context: StepContext, command: Command
    ) -> dict[str, Plain]:
        """Run the command of a `run` step with `in:` to its end, with any exit code.

        Args:
            resource: The result of `ensure`.
            context: The attempt.
            command: The command to run.

        Returns:
            `{exit_code, stdout, stderr, value, files}`.

        Raises:
            NotImplementedError: This kind of environment runs no commands.
        """
        raise NotImplementedError(f"environments of kind '{self.kind}' run no commands")


REQUIRED: Sequence[str] = ("probe", "ensure", "health_check", "release")
"""The attributes that every provider must define itself."""


class NotReleased(NamedTuple):
    """An environment that could not be closed. Closing is retried later."""

    id: str
    resource_key: str
    error: str
    """Name of the error's type."""

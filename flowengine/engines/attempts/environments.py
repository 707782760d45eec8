"""What attempts and drivers need from the environments of executions. A host is given them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from flowengine.kernel.commands import Run
from flowengine.kernel.events import Opening
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.sdk import EnvironmentUnavailable, StepError
from flowengine.sdk.steps.context import CommandEnvironment, ExecutionContext

_TOLD = ("spec_id", "kind", "provider", "scope", "owner_id", "resource_key", "generation")


class AttemptEnvironment(CommandEnvironment):
    """An environment that an attempt uses."""

    opening: Opening | None
    """How it was opened, if no earlier attempt of the execution has used it."""

    @property
    @abstractmethod
    def resource(self) -> Any:
        """The live resource."""


class NotAgain(Exception):
    """An environment that an execution used before cannot be reopened.

    Args:
        why: The manager's error. Its data also identify the environment.
        which: The manager's record of it.
    """

    def __init__(self, why: StepError, which: Mapping[str, Any]) -> None:
        super().__init__(why.message)
        more = why.data if isinstance(why.data, dict) else {}
        why.data = {**more, "environment": {key: which.get(key) for key in _TOLD}}
        self.why = why


class Environments(Protocol):
    """The environments of the executions of a host. See `EngineEnvironments`."""

    def named(self, spec: Mapping[str, Any], /) -> tuple[str, str]:
        """Check a spec without opening anything, and return its name and scope."""

    async def have(
        self,
        context: ExecutionContext,
        run: Run,
        secrets: Mapping[str, Plain],
        later: Collection[str] = (),
    ) -> Mapping[str, AttemptEnvironment]:
        """Open all environments that an attempt requests, or none of them."""

    async def give_back(self, execution: str, had: Iterable[Any]) -> None:
        """Release the environments that end with an attempt."""

    def lent(
        self, context: ExecutionContext, run: Run, secrets: Mapping[str, Plain], *, opens: bool
    ) -> AbstractAsyncContextManager[dict[str, Any]]:
        """Provide the environments of a waiting call to its preview, and release them."""

    def opened(self, execution: str, name: str) -> Any:
        """Return the open environment of an execution with this name, or None."""

    def has_any(self, execution: str) -> bool:
        """Return whether any environment is kept for an execution."""

    async def end_region(self, context: ExecutionContext, region: int) -> None:
        """Release the environments of a region that has ended."""

    async def suspend(self, context: ExecutionContext) -> None:
        """Release the environments not needed while an execution waits or is not driven."""

    async def finish(self, context: ExecutionContext, flow: CompiledFlow) -> None:
        """Release all environments of an execution that has ended."""

    def close(self) -> None:
        """Close all environments."""


def none_here() -> EnvironmentUnavailable:
    """Return the error of a step or start that needs an environment of a host without any."""
    return EnvironmentUnavailable(
        "this host opens no environments: it was composed without `environments`"
    )

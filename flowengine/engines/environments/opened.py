"""The environments of one attempt: open ones, or the error that one cannot be reopened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.kernel.events import Opening
from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk import Command, CommandEnvironment, EnvironmentUnavailable, StepError

if TYPE_CHECKING:
    from flowengine.execution_environment import Handle
    from flowengine.sdk import StepContext

_ANEW = "(reopened: variables set before in this environment are gone, files are still there)"
_ENDING = 5.0
"""Seconds that a command has to exit when its attempt is withdrawn."""
_TOLD = ("spec_id", "kind", "provider", "scope", "owner_id", "resource_key", "generation")


class Opened(CommandEnvironment):
    """An environment that an attempt uses.

    Args:
        handle: The hold.
        fresh: Whether it was reopened since the execution used it last.
    """

    def __init__(self, handle: Handle, fresh: bool) -> None:
        self.handle = handle
        self.fresh = fresh

    @property
    def resource(self) -> Any:
        """The live resource."""
        return self.handle.resource

    @property
    def generation(self) -> int:
        """1 for the first opening, and higher after each reopening."""
        return self.handle.generation

    async def run(self, context: StepContext, command: Command) -> dict[str, Plain]:
        """Run a command of a `run` step in it, and return the result.

        Args:
            context: The context of the attempt.
            command: The command to run.

        Returns:
            `{exit_code, stdout, stderr, value, files}`.

        Raises:
            EnvironmentUnavailable: Its kind cannot run commands.
        """
        from flowengine import registry
        from flowengine.sdk.background import background

        provider = registry.provider(self.handle.kind)
        # Providers run on the loop that owns their resources, whichever loop drives this.
        running = provider.run(self.handle.resource, context, command)
        try:
            result = await background().see_through(running, _ENDING)
        except NotImplementedError as error:
            raise EnvironmentUnavailable(str(error)) from None
        if self.fresh and provider.live:
            result = {**result, "stderr": f"{_ANEW}\n{result['stderr']}"}
        return result


class Had(NamedTuple):
    """The environments of one attempt."""

    environments: dict[str, Opened]
    """By the names under which the step uses them."""
    holds: list[Handle]
    """The holds that end with the attempt."""
    openings: list[Opening]
    """Those that were opened for the execution, and that no earlier attempt has used."""


def opening_of(name: str, scope: str, handle: Handle) -> Opening:
    """Return how an environment was opened, for the journal.

    Args:
        name: Its name in the flow.
        scope: Its scope in the flow.
        handle: A hold on it.
    """
    return {
        "name": name,
        "kind": handle.kind,
        "scope": scope,
        "provider": handle.provider,
        "asked": int(handle.asked_at * 1000),
        "ready": int(handle.ready_at * 1000),
    }


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

"""Environments that are open, were left open by a dead process, or are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flowengine.engines.infos import ScreenInfo
from flowengine.engines.results import WaitInfo
from flowengine.errors import FlowEngineError
from flowengine.kernel.notation.addresses import execution_of, shown_owner
from flowengine.kernel.notation.times import format_time
from flowengine.sdk import EnvironmentFailure

if TYPE_CHECKING:
    from flowengine.execution_environment import EnvironmentManager
    from flowengine.execution_environment.registry.screens import ScreenAnswer

_OF_EXECUTIONS = frozenset({"action_call", "region", "execution"})
"""Scopes whose owner is an execution, or a part of one."""
MISSING = "missing"
"""State of an environment for which an execution is stalled."""


def open_environments(
    manager: EnvironmentManager, waits: Iterable[WaitInfo], execution: str | None
) -> list[dict[str, Any]]:
    """Return the recorded environments, oldest first, and those that executions are stalled for.

    Args:
        manager: Reads the record.
        waits: Open questions.
        execution: Full id: only those of this execution.
    """
    environments = [
        with_execution(environment) for environment in (*manager.written(), *_missing(waits))
    ]
    return [
        environment for environment in environments if execution in (None, environment["execution"])
    ]


def with_execution(environment: dict[str, Any]) -> dict[str, Any]:
    """Return an environment with the execution that owns it. None: it belongs to none."""
    owner = str(environment["owner_id"])
    if environment["scope"] not in _OF_EXECUTIONS:
        return {**environment, "execution": None}
    return {**environment, "owner_id": shown_owner(owner), "execution": execution_of(owner) or None}


def screen_info(id: str, seen: ScreenAnswer) -> ScreenInfo:
    """Return the screen of an environment as plain data."""
    from base64 import b64encode

    at, screen = seen
    shown = screen._asdict() | {"picture": b64encode(screen.picture).decode()}
    return {
        "environment": id,
        "at": format_time(at),
        "screen": {name: text for name, text in shown.items() if text},
    }


@contextmanager
def failures() -> Iterator[None]:
    """Turn failures of environments into errors of the engine.

    Raises:
        FlowEngineError: With the message of the failure.
    """
    try:
        yield
    except EnvironmentFailure as error:
        raise FlowEngineError(error.message) from None


def _missing(waits: Iterable[WaitInfo]) -> Iterator[dict[str, Any]]:
    """Yield the environments that cannot be opened again: keys as of `written`, and the `error`."""
    for wait in waits:
        if wait.get("ran") == "no":
            error: Any = wait["error"]
            yield {
                **error["data"]["environment"],
                "id": wait["id"],
                "state": MISSING,
                "since": wait["since"],
                "process": None,
                "host": None,
                "alive": None,
                "workspace": None,
                "traces": {},
                "error": error["message"],
            }

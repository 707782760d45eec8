"""Features not supported in Temporal yet, which are refused before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flowengine.engines.temporal.requests import MOST_OFFERED
from flowengine.errors import UsageError
from flowengine.kernel.graph.environment_uses import of_step, scopes
from flowengine.kernel.graph.specs import CompiledFlow

HINT = "use a store in a directory for it"


def unsupported(what: str, user: str | None = None) -> UsageError:
    """Return the error that a feature is not supported yet.

    Args:
        what: The feature.
        user: The part of the flow that needs it.
    """
    by = "" if user is None else f"; {user} needs that"
    return UsageError(f"a store in Temporal does not support {what} yet{by}", hint=HINT)


def check_supported(flow: CompiledFlow) -> None:
    """Check that executions of a flow can run in Temporal.

    Args:
        flow: The flow.

    Raises:
        UsageError: The flow needs an unsupported feature.
    """
    for step in flow["steps"]:
        for needed in _needed_by_step(step):
            raise unsupported(needed, f"step '{step['id']}'")


def check_started(event: Mapping[str, Any]) -> None:
    """Check that an execution can begin with its first event.

    Raises:
        UsageError: It was given something that is not supported yet.
    """
    given = event["execution"]
    for key, what in (
        ("environments", "environments of an execution"),
        ("resources", "objects of the caller for steps"),
        ("outer", "executions that steps of others begin"),
    ):
        if given.get(key):
            raise unsupported(what)


def _needed_by_step(step: Mapping[str, Any]) -> Iterator[str]:
    """Yield the unsupported features that a step needs."""
    needs = step.get("needs", ())
    if len(needs) > MOST_OFFERED:
        yield f"more than {MOST_OFFERED} labels of a worker (needs)"
    if needs and set(scopes(of_step(step))) - {"step"}:  # type: ignore[arg-type]
        yield "environments of other scopes than 'step' where labels are needed (needs)"

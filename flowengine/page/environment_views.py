"""The environments that are open, and how operators look into them and end them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from flowengine.errors import Conflict, FlowEngineError, NotFound
from flowengine.kernel.notation.times import parse_time
from flowengine.page.looks import duration, now
from flowengine.page.view import PageView, checked, with_error
from flowengine.server import administration
from flowengine.server.calls import ApiCall
from flowengine.server.models import OwnedQuery, ReleaseBody
from flowengine.server.problems import status_of


def list_environments(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the environments that are open, were left open, or are missing, oldest first."""
    return _listed(call, given.get("execution"), None)


def release(call: ApiCall, given: dict[str, str]) -> PageView:
    """End an environment, and show the others."""
    body = checked(ReleaseBody, {"force": given.get("force") == "true"})
    try:
        ended = administration.release_environment(call._replace(body=body))
        if ended.get("error"):
            raise FlowEngineError(f"it could not be ended: {ended['error']}")
    except FlowEngineError as error:
        return _listed(call, None, error)
    return PageView("", {}, redirect="/environments")


def look(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the current content of an environment."""
    shown: dict[str, Any] = {"environment": administration.show_environment(call)}
    try:
        screen = administration.look_into_environment(call)
    except Conflict as error:  # it cannot be looked into
        shown |= {"error": error, "hint": error.hint_for("page")}
        return PageView("screen.html", shown, status_of(error))
    return PageView("screen.html", {**shown, "at": screen["at"], "screen": screen["screen"]})


def _listed(call: ApiCall, execution: str | None, error: FlowEngineError | None) -> PageView:
    query = checked(OwnedQuery, {"execution": execution or None})
    items = administration.list_environments(call._replace(query=query))["items"]
    return with_error(
        "environments.html",
        {
            "items": [
                {
                    **item,
                    "age": duration(now() - parse_time(item["since"])),
                    "opened_by": _opened_by(call, item["execution"]),
                }
                for item in items
            ],
            "execution": execution,
        },
        error,
    )


def _opened_by(call: ApiCall, execution: str | None) -> dict[str, Any] | None:
    """Return the execution that has opened an environment, as a list has it."""
    with suppress(NotFound):  # it was deleted
        return dict(call.engine.executions.summary(execution)) if execution else None
    return None

"""How operators change the course of an execution on the page: retry, fork and cancel it."""

from __future__ import annotations

from typing import Any

from flowengine.errors import FlowEngineError, NotFound
from flowengine.page.execution_views import frame
from flowengine.page.fields import MORE
from flowengine.page.forms import changes_in, inputs_of
from flowengine.page.view import PageView, checked
from flowengine.server import executions
from flowengine.server.calls import ApiCall
from flowengine.server.models import CancelBody, ForkBody, RetryBody
from flowengine.server.problems import status_of
from flowengine.server.rights import Right


def retry(call: ApiCall, given: dict[str, str]) -> PageView:
    """Record a retry of what failed in an execution, and show it."""
    return _shown(executions.retry(call._replace(body=checked(RetryBody, {}))))


def show_fork(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the form of a fork: the state before the step, and the versions of the flow."""
    return _fork(call, given.get("at", ""), {}, None)


def fork(call: ApiCall, given: dict[str, str]) -> PageView:
    """Record a fork that begins where a step started, and show it. A refused form stays."""
    step = given.get("from_step", "")
    has_form = "flow" in given
    if has_form and MORE in given:
        return _fork(call, step, given, None)
    try:
        schemas, known = _state(call, step) if has_form else ({}, {})
        fields = {"from_step": step, "set": changes_in(schemas, known, given)}
        body = checked(ForkBody, {**fields, "flow": given.get("flow") or None})
        return _shown(executions.fork(call._replace(body=body)))
    except FlowEngineError as error:
        if not has_form:
            raise
        return _fork(call, step, given, error)


def refuse_fork(call: ApiCall, given: dict[str, str], error: FlowEngineError) -> PageView:
    """Show the form of a fork again, of which a file was refused."""
    return _fork(call, given.get("from_step", ""), given, error)


def _fork(
    call: ApiCall, step: str, given: dict[str, str], error: FlowEngineError | None
) -> PageView:
    id = call.path["execution"]
    schemas, known = _state(call, step)
    head = call.engine.summary(id)
    fields = inputs_of(schemas, known, given, group="set", optional=True)
    return PageView(
        "fork.html",
        {
            **frame(call, head),
            "step": step,
            "fields": fields,
            "versions": call.engine.deployed(head["flow"]),
            "flow": given.get("flow", ""),
            "error": error,
            "hint": None if error is None else error.hint_for("page"),
        },
        200 if error is None else status_of(error),
    )


def _state(call: ApiCall, step: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return name → JSON Schema of the state of an execution's flow, and its values.

    They are those right before a step. Users without the right to see content receive none.

    Raises:
        NotFound: The step has not started.
    """
    id = call.path["execution"]
    events = call.engine.events(id)
    first = next((event["seq"] for event in events if event.get("address") == step), None)
    if first is None:
        raise NotFound(f"step '{step}' has not started", hint="choose one of the execution's steps")
    declared = call.engine.flow_of(id, step=step).compiled.get("state", {})
    schemas = {name: value.get("schema", {}) for name, value in declared.items()}
    if not call.may(Right.CONTENT, call.flow):
        return schemas, {}
    past: Any = call.engine.show(id, until=first)
    return schemas, dict(past["state"])


def cancel(call: ApiCall, given: dict[str, str]) -> PageView:
    """Request that an execution is cancelled, and show it."""
    body = checked(CancelBody, {"reason": given.get("reason", "")})
    return _shown(executions.cancel(call._replace(body=body)))


def _shown(answer: dict[str, Any]) -> PageView:
    return PageView("", {}, redirect=f"/executions/{answer['execution']}")

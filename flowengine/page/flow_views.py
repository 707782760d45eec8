"""The deployed flows, and the form that starts one of them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from flowengine.errors import FlowEngineError, InputError, NotFound
from flowengine.page.forms import entered_inputs, inputs_of
from flowengine.page.pictures import graph
from flowengine.page.view import View, new_id
from flowengine.server import administration, executions
from flowengine.server.calls import Call, flow_of_execution
from flowengine.server.models import StartBody
from flowengine.server.problems import status_of
from flowengine.server.rights import Right


def list_flows(call: Call, given: dict[str, str]) -> View:
    """Show the deployed flows."""
    return View("flows.html", administration.list_flows(call))


def show_flow(call: Call, given: dict[str, str]) -> View:
    """Show a flow, and the form that starts it, with the inputs of the execution `like`."""
    known: dict[str, Any] = {}
    like = given.get("like")
    if like:
        call.need(Right.CONTENT, flow_of_execution(call.engine, call.principal, like).flow)
        known = dict(call.engine.show(like, until=1)["inputs"])
    return _flow(call, known, {}, None)


def start(call: Call, given: dict[str, str]) -> View:
    """Start an execution, and show it. A refused form keeps its values."""
    flow = administration.show_flow(call)
    call.need(Right.START, flow["flow"])
    try:
        body = StartBody(
            flow=call.path["flow"],
            inputs=entered_inputs(flow["inputs"], given),
            id=given.get("id") or None,
            labels=_labels(given.get("labels", "")),
        )
        started = executions.start_execution(call._replace(body=body))
    except FlowEngineError as error:
        return _flow(call, {}, given, error)
    return View("", {}, redirect=f"/executions/{quote(started['execution'])}")


def address_again(call: Call, execution: str, flow: str) -> str | None:
    """Return the address of the form with the inputs of an execution.

    None if the user may not start it, or its flow is not deployed.
    """
    if not (call.may(Right.START, flow) and call.may(Right.CONTENT, flow)):
        return None
    try:
        administration.show_flow(call._replace(path={"flow": flow}))
    except NotFound:
        return None
    return f"/flows/{quote(flow)}?like={quote(execution)}"


def _flow(
    call: Call, known: dict[str, Any], given: dict[str, str], error: FlowEngineError | None
) -> View:
    flow = administration.show_flow(call)
    fields = [
        field._replace(value=given.get(field.name, "")) if given else field
        for field in inputs_of(flow["inputs"], known)
    ]
    names = {field.name.removeprefix("input.") for field in fields}
    return View(
        "flow.html",
        {
            "flow": flow,
            "fields": fields,
            "paths": [name for name in flow["inputs"] if name not in names],
            "labels": given.get("labels", ""),
            "id": new_id(),
            "may_start": call.may(Right.START, flow["flow"]),
            "error": error,
            "hint": None if error is None else error.hint_for("page"),
            **graph(call.engine.kept_flow(flow["hash"]), ()),
        },
        200 if error is None else status_of(error),
    )


def _labels(text: str) -> dict[str, str]:
    """Return the labels of a form.

    Raises:
        InputError: A line is not `NAME=VALUE`.
    """
    labels = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise InputError(f"the label {line!r} is not NAME=VALUE", field="labels")
        labels[name.strip()] = value.strip()
    return labels

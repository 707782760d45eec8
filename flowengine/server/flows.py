"""The routes of deployed flows, and of the schedules that start them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from flowengine.errors import FlowFileError, NotAllowed
from flowengine.flow.source.diagnostics import Diagnostic
from flowengine.kernel.notation.times import format_time
from flowengine.server.calls import ApiCall, deployed_flow, moment
from flowengine.server.flow_checks import CheckedText, check_text
from flowengine.server.rights import Right
from flowengine.server_settings import DeployRules

_MOST_TIMES = 1000


def list_flows(call: ApiCall) -> Any:
    """List the deployed flows, each with its current version, or with all versions."""
    flows = [
        item
        for item in call.engine.deployed(call.query.flow)
        if (item["current"] or call.query.versions) and call.may(Right.SEE, item["flow"])
    ]
    return {"items": [_flow_item(call, item) for item in flows]}


def show_flow(call: ApiCall) -> Any:
    """Show a deployed flow, with the schemas of its inputs."""
    flow = deployed_flow(call, call.path["flow"])
    return next(
        _flow_item(call, item)
        for item in call.engine.deployed(flow.id)
        if item["hash"] == flow.form
    )


def flow_graph(call: ApiCall) -> Any:
    """Return the graph of a deployed flow, and a picture of it."""
    from flowengine.drawing.data import drawn, node_link

    flow = deployed_flow(call, call.path["flow"])
    return node_link(drawn(flow, plumbing=call.query.plumbing))


def show_definition(call: ApiCall) -> Any:
    """Return the definition of a deployed flow as text. It is not a flow file."""
    from flowengine.flow.export.definition import definition

    flow = deployed_flow(call, call.path["flow"])
    call.need(Right.CONTENT, flow.id)
    return {
        "flow": flow.id,
        "version": flow.version,
        "hash": flow.form,
        "definition": definition(flow.compiled),
    }


def check_flow(call: ApiCall) -> Any:
    """Check a flow that is given as text. Nothing of the server's machine is read."""
    checked = _checked(call, call.engine.settings.deploys or DeployRules())
    id = None if checked.flow is None else checked.flow.id
    return {"errors": checked.errors, "warnings": checked.warnings, "flow": id}


def deploy(call: ApiCall) -> Any:
    """Deploy a flow that is given as text, within the limits of the host's settings."""
    rules = _rules(call)
    checked = _checked(call, rules)
    flow = checked.flow
    if flow is None:
        raise FlowFileError(checked.report, [Diagnostic(**error) for error in checked.errors])
    if flow.on_host and not rules.host:
        raise NotAllowed(
            f"flow '{flow.id}' runs programs on the host: {flow.on_host}",
            hint="use a sandbox, or allow it in the host's settings.yaml: deploys: {host: true}",
        )
    for user, paths in flow.host_files.items():
        for path in paths:
            if not rules.allows(path):
                named = "a file that an expression names" if path is None else repr(path)
                raise NotAllowed(
                    f"flow '{flow.id}' uses files of the host: {user} uses {named}",
                    hint="use an environment without 'path', with the name 'files' in steps of "
                    "file and document tools, or allow the directory in the host's settings.yaml, "
                    "with `folders: [/srv/data]` in 'deploys'",
                )
    return {**_flow_item(call, call.engine.deploy(flow)), "warnings": flow.warnings}


def deploy_version(call: ApiCall) -> Any:
    """Make a deployed version of a flow the current one again."""
    _rules(call)
    flow = deployed_flow(call, call.path["flow"])
    return {**_flow_item(call, call.engine.deploy(flow)), "warnings": []}


def _rules(call: ApiCall) -> DeployRules:
    """Return what the host allows to flows that are deployed through the server.

    Raises:
        NotAllowed: None are.
    """
    rules = call.engine.settings.deploys
    if rules is None:
        raise NotAllowed(
            "this server's host does not allow deployments through the server",
            hint="its settings.yaml allows them with: deploys: {}",
        )
    return rules


def undeploy(call: ApiCall) -> Any:
    """Remove a deployed flow, or an earlier version of it. Its executions are unaffected."""
    return {"removed": call.engine.undeploy(call.path["flow"])}


def list_schedules(call: ApiCall) -> Any:
    """List the schedules of deployed flows, each with its next time."""
    starts = call.engine.starts(call.query.flow)
    return {
        "items": [
            item for item in starts if "schedule" in item and call.may(Right.SEE, item["flow"])
        ]
    }


def pause_schedules(call: ApiCall) -> Any:
    """Pause the schedules of a deployed flow."""
    return _schedules(call.engine.pause_schedules(_flow(call, Right.OPERATE)))


def resume_schedules(call: ApiCall) -> Any:
    """Resume the schedules of a deployed flow, from their next times on."""
    return _schedules(call.engine.resume_schedules(_flow(call, Right.OPERATE)))


def trigger(call: ApiCall) -> Any:
    """Record an execution of a deployed flow out of turn, with the inputs of its schedule."""
    flow = _flow(call, Right.START)
    return {"execution": call.engine.trigger(flow, schedule=call.body.schedule)}


def backfill(call: ApiCall) -> Any:
    """Record the executions of past times of a deployed flow's schedules. Repeating it is safe."""
    body = call.body
    since, until = (
        datetime.now(UTC) if text is None else datetime.fromtimestamp(moment(text) / 1000, UTC)
        for text in (body.since, body.until)
    )
    flow = _flow(call, Right.START)
    started = call.engine.record_past(flow, since, until, schedule=body.schedule, most=_MOST_TIMES)

    def shown(error: Any) -> str | None:
        has_content = error is None or call.may(Right.CONTENT, flow)
        shown = error if has_content else error.without_quotes()
        return None if shown is None else str(shown)

    return {
        "items": [
            {
                "flow": item.flow,
                "schedule": item.schedule,
                "time": format_time(item.time),
                "execution": item.execution,
                "error": shown(item.error),
            }
            for item in started
        ]
    }


def _checked(call: ApiCall, rules: DeployRules) -> CheckedText:
    """Return the result of checking the flow in the body, in a process with limits."""
    folder = os.path.join(call.records.folder, "modules")  # contains none
    return check_text(call.body.text, call.body.name, folder, rules.modules, host=rules.host)


def _flow(call: ApiCall, right: Right) -> str:
    """Return the id of the deployed flow in the path, on which the user has a right.

    Raises:
        NotFound: There is none.
        NotAllowed: The user lacks the right.
    """
    id = deployed_flow(call, call.path["flow"]).id
    call.need(right, id)
    return id


def _schedules(starts: Any) -> dict[str, Any]:
    return {"items": [start for start in starts if "schedule" in start]}


def _flow_item(call: ApiCall, deployed: Any) -> dict[str, Any]:
    flow = call.engine.kept_flow(deployed["hash"])
    return {
        **deployed,
        "title": flow.compiled.get("title", ""),
        "inputs": flow.inputs,
        "modules": flow.modules,
        "starts": call.engine.starts(flow.id) if deployed["current"] else [],
    }

"""The routes of deployed flows, and of the schedules that start them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

from flowengine.drawing.data import drawn, node_link
from flowengine.engines.flows import LoadedFlow, load_text
from flowengine.errors import FlowFileError, NotAllowed
from flowengine.flow.export.definition import definition
from flowengine.flow.source.diagnostics import Diagnostic
from flowengine.kernel.notation.times import format_time
from flowengine.server.calls import ApiCall, deployed_flow, moment
from flowengine.server.refusals import RequestRefused
from flowengine.server.rights import Right
from flowengine.server_settings import DeployRules

SECONDS = 10
"""Processor seconds of a check."""
_MOST_SECONDS = 120
"""The same in real time, on a busy machine."""
_BYTES = 2 * 1024**3
"""Maximum address space of a check."""
_MOST_PROBLEMS = 1_000
"""Maximum errors and warnings in an answer."""
_MOST_COMPILED = 64 * 1024**2
"""Maximum size of a compiled flow, whose text has at most 1 MiB."""
SHORT_WAIT = 1.0
"""Seconds that a check waits for those of others."""
LONG_WAIT = 60.0
"""The same before a deployment, which few users may make."""


class CheckedText(NamedTuple):
    """The result of a check."""

    errors: list[dict[str, Any]]
    """As `Diagnostic.as_dict` returns them."""
    report: str
    """The errors as text."""
    warnings: list[dict[str, Any]]
    flow: LoadedFlow | None
    """Compiled. None: it has errors."""


def check_text(
    text: str, name: str, folder: str, modules: Sequence[str], *, host: bool
) -> CheckedText:
    """Check and compile a flow.

    Args:
        text: The content of a flow file.
        name: Its name in errors.
        folder: The directory where its modules are searched first.
        modules: Patterns of the names of Python modules that it may name.
        host: Whether its tools may use the directory that its executions work in.

    Raises:
        RequestRefused: The check exceeds its limits (422).
    """
    given = {"text": text, "name": name, "folder": folder, "modules": [*modules], "host": host}
    data = msgpack.packb({**given, "seconds": SECONDS})
    command = [sys.executable, "-P", "-m", __name__]
    try:
        ended = subprocess.run(
            command, input=data, capture_output=True, timeout=_MOST_SECONDS, cwd="/", check=True
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        raise RequestRefused(
            422,
            f"the flow cannot be checked in {SECONDS} s",
            hint="look for schemas that combine others many times, and for very many errors",
        ) from None
    problems, report, compiled = msgpack.unpackb(ended.stdout, strict_map_key=False)
    warnings = [item for item in problems if item["code"].startswith("W")]
    errors = [item for item in problems if not item["code"].startswith("W")]
    flow = None if compiled is None else LoadedFlow(compiled[0], compiled[1], warnings)
    return CheckedText(errors, report, warnings, flow)


def _main() -> None:
    """Check the flow on standard input, and write the result to standard output."""
    import resource

    given = msgpack.unpackb(sys.stdin.buffer.read())
    seconds = given.pop("seconds")
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    report, compiled = "", None
    try:
        flow = load_text(**given)
        problems, compiled = flow.warnings, [flow.compiled, flow.form]
    except FlowFileError as error:
        problems = [diagnostic.as_dict() for diagnostic in error.diagnostics]
        report = error.message
    packed = msgpack.packb([problems[:_MOST_PROBLEMS], report[:100_000], compiled])
    if len(packed) > _MOST_COMPILED:
        sys.exit(1)
    sys.stdout.buffer.write(packed)


if __name__ == "__main__":
    _main()


_MOST_TIMES = 1000


def list_flows(call: ApiCall) -> Any:
    """List the deployed flows, each with its current version, or with all versions."""
    flows = [
        item
        for item in call.engine.flows.versions(call.query.flow)
        if (item["current"] or call.query.versions) and call.may(Right.SEE, item["flow"])
    ]
    return {"items": [_flow_item(call, item) for item in flows]}


def show_flow(call: ApiCall) -> Any:
    """Show a deployed flow, with the schemas of its inputs."""
    flow = deployed_flow(call, call.path["flow"])
    return next(
        _flow_item(call, item)
        for item in call.engine.flows.versions(flow.id)
        if item["hash"] == flow.form
    )


def flow_graph(call: ApiCall) -> Any:
    """Return the graph of a deployed flow, and a picture of it."""
    flow = deployed_flow(call, call.path["flow"])
    return node_link(drawn(flow))


def show_definition(call: ApiCall) -> Any:
    """Return the definition of a deployed flow as text. It is not a flow file."""
    flow = deployed_flow(call, call.path["flow"], Right.CONTENT)
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
    return {**_flow_item(call, call.engine.flows.deploy(flow)), "warnings": flow.warnings}


def deploy_version(call: ApiCall) -> Any:
    """Make a deployed version of a flow the current one again."""
    _rules(call)
    flow = deployed_flow(call, call.path["flow"])
    return {**_flow_item(call, call.engine.flows.deploy(flow)), "warnings": []}


def _rules(call: ApiCall) -> DeployRules:
    """Return the host's rules for flows that are deployed through the server.

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
    return {"removed": call.engine.flows.undeploy(call.path["flow"])}


def list_schedules(call: ApiCall) -> Any:
    """List the schedules of deployed flows, each with its next time."""
    starts = call.engine.flows.starts(call.query.flow)
    return _schedules(start for start in starts if call.may(Right.SEE, start["flow"]))


def pause_schedules(call: ApiCall) -> Any:
    """Pause the schedules of a deployed flow."""
    flow = deployed_flow(call, call.path["flow"], Right.OPERATE).id
    return _schedules(call.engine.flows.pause(flow))


def resume_schedules(call: ApiCall) -> Any:
    """Resume the schedules of a deployed flow, from their next times on."""
    flow = deployed_flow(call, call.path["flow"], Right.OPERATE).id
    return _schedules(call.engine.flows.resume(flow))


def trigger(call: ApiCall) -> Any:
    """Record an execution of a deployed flow now, with the inputs of its schedule."""
    flow = deployed_flow(call, call.path["flow"], Right.START).id
    return {"execution": call.engine.flows.trigger(flow, schedule=call.body.schedule)}


def backfill(call: ApiCall) -> Any:
    """Record the executions of past times of a deployed flow's schedules. Repeating it is safe."""
    body = call.body
    since, until = (
        datetime.now(UTC) if text is None else datetime.fromtimestamp(moment(text) / 1000, UTC)
        for text in (body.since, body.until)
    )
    flow = deployed_flow(call, call.path["flow"], Right.START).id
    started = call.engine.flows.record_past(
        flow, since, until, schedule=body.schedule, limit=_MOST_TIMES
    )

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


def _schedules(starts: Any) -> dict[str, Any]:
    return {"items": [start for start in starts if "schedule" in start]}


def _flow_item(call: ApiCall, deployed: Any) -> dict[str, Any]:
    flow = call.engine.flows.kept(deployed["hash"])
    return {
        **deployed,
        "title": flow.compiled.get("title", ""),
        "inputs": flow.inputs,
        "modules": flow.modules,
        "starts": call.engine.flows.starts(flow.id) if deployed["current"] else [],
    }

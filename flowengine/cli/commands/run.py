"""`flowengine run`: start an execution of a flow file and drive it."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, cast

from flowengine.cli.driving.drive import drive, warn_of_host_steps
from flowengine.cli.driving.resuming import leave_recorded
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, flag, many
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out, out_json, paint
from flowengine.cli.views.outcome import as_object
from flowengine.engines.flows import LoadedFlow
from flowengine.errors import NotFound
from flowengine.journal.records import ENDED


@command(
    "run a flow until it finishes or has to wait",
    """\
flowengine run hello.yaml -i name=Ada
flowengine run expense.yaml -i @expense.json --label team=sales
flowengine run expense@2 -i amount=80
echo '{"name": "Ada"}' | flowengine --json run hello.yaml -i -""",
    arg("flow FLOW", "a flow file, FILE.py:NAME, or a deployed flow: ID, ID@VERSION or its hash"),
    many(
        "-i --input NAME=VALUE|@FILE|-",
        "an input (plain text, or JSON for other types), or all of them: a JSON or YAML "
        "file, or JSON on standard input",
        type=read.given_input,
    ),
    many("--file NAME=FILE", "a file as an input", type=read.assignment),
    read.WORKDIR,
    arg(
        "--id ID",
        "id of the execution: the same id with the same flow and inputs continues the first",
    ),
    many("--label K=V", "a label for lists", type=read.assignment),
    read.MODEL,
    flag("--no-resume", "record the execution without running it, and print its id"),
    read.DRIVING,
)
def run_command(arguments: Namespace) -> int:
    labels = dict(arguments.label) | read.model_labels(arguments.model)
    named = read.model_named(arguments.model)
    with named, CliSession(arguments, make=arguments.flow) as session:
        if session.is_served:
            client: Any = session.engine
            schemas = client.flows.show(arguments.flow)["inputs"]
            inputs = read.inputs(schemas, arguments.input) | _files(session, arguments)
            id = client.start(arguments.flow, inputs, id=arguments.id, labels=labels)
            return _report_id(session, id)
        flow = load(session, arguments.flow)
        inputs = read.inputs(flow.inputs, arguments.input) | _files(session, arguments)
        if arguments.id is not None:
            warn_of_other_form(session, flow, arguments.id)
        if arguments.no_resume:
            execution = session.engine.start(flow, inputs, id=arguments.id, labels=labels)
            leave_recorded(session, [execution])
            return _report_id(session, execution)
        warn_of_host_steps(session, flow)
        return drive(
            session, lambda: session.engine.run(flow, inputs, id=arguments.id, labels=labels)
        )


def _files(session: CliSession, arguments: Namespace) -> dict[str, Any]:
    """Return the inputs that are files, which the store keeps from now on."""
    from pathlib import Path

    inputs: dict[str, Any] = {}
    for name, path in arguments.file:
        if session.is_served:
            client: Any = session.engine
            inputs[name] = client.upload(path)._asdict()
        else:
            store = session.engine.store
            kept = store.hold_artifact(Path(path), os.path.basename(path))
            inputs[name] = {"path": str(store.fetch_artifact(kept.sha256)), **kept._asdict()}
    return inputs


def _report_id(session: CliSession, execution: str) -> int:
    """Print the id of an execution that another process drives, with --json its record."""
    if session.arguments.json:
        out_json(as_object(session, session.engine.executions.result(execution)))
    else:
        out(execution)
    return 0


def load(session: CliSession, name: str) -> LoadedFlow:
    """Load a deployed flow, or a flow file, and print the warnings of the check.

    Args:
        session: Its store keeps deployed flows, and caches compiled ones.
        name: `ID`, `ID@VERSION` or the hash of a deployed flow, the path of a file, or
            `FILE.py:NAME`. With a server, a deployed flow, which the server loads.

    Returns:
        The flow.
    """
    if session.is_served:
        return cast("LoadedFlow", name)
    if read.is_deployed(name):
        return session.engine.flows.find(name)
    flow = session.engine.load(read.flow_named(name))
    if not session.arguments.quiet:
        for warning in flow.warnings:
            err(one_line_of(warning))
    return flow


def one_line_of(warning: Mapping[str, Any]) -> str:
    """Return a warning of the check as one line."""
    place = f"{warning['file']}:{warning['line']}:{warning['column']}"
    hint = f" ({warning['hint']})" if warning["hint"] else ""
    return f"{place}: warning[{warning['code']}]: {warning['message']}{hint}"


def warn_of_other_form(session: CliSession, flow: LoadedFlow, execution: str) -> None:
    """Report that an execution was started with another version of the flow, which it keeps."""
    try:
        record = session.engine.store.execution(execution)
    except NotFound:
        return
    if record.flow != flow.id or record.hash == flow.form or session.arguments.quiet:
        return
    text = f"{execution} was started before this file changed, and continues with its old version"
    if record.status not in ENDED:
        move = session.command("upgrade", session.arguments.flow, execution)
        text += f" (to move it to the changed flow: {move})"
    err(f"{paint('warning:', 'yellow')} {text}")

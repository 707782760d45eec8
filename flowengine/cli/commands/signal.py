"""`flowengine signal`: send a message to an execution, or start one with it."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from typing import Any

from flowengine.cli.driving.drive import drive_recorded, show_recorded
from flowengine.cli.driving.resuming import leave_recorded
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, one_of
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out_json
from flowengine.cli.views.outcome import as_object
from flowengine.engines.results import ExecutionResult
from flowengine.errors import InputError, NoWorker, UsageError


@command(
    "send a signal to an execution, to the open one with a key, or start one",
    """\
flowengine signal 01k8xq7mf4jb payment --data '{"amount": 50}'
flowengine signal --key B7 payment --data @payment.json --id msg-1
flowengine signal --key B7 placed --file order.yaml
flowengine signal 01k8xq7mf4jb agent.steer --text "Look only at the invoices."\
""",
    arg(
        "execution ID",
        "the execution, by any unambiguous prefix of its id (not with --key)",
        nargs="?",
    ),
    arg("name NAME", "the name of the signal"),
    arg("--key KEY", "send it to the open execution with this key"),
    arg(
        "--file FILE", "deploy this flow first: its 'start' starts an execution if none has the key"
    ),
    one_of(
        arg("--data JSON|@FILE", "data of the signal"),
        arg("--text TEXT", "data of the signal, as text"),
    ),
    arg("--step ADDRESS", "the step whose subflow or agent receives it"),
    arg(
        "--id ID", "id of the message. The same id and data are stored once, other data is refused"
    ),
    read.on_behalf("send it on behalf of another user"),
    read.NO_RESUME,
    read.LINGER,
)
def signal_command(arguments: Namespace) -> int:
    """Send it, then resume the execution.

    Raises:
        UsageError: No receiver is named, or more than one.
    """
    if (arguments.execution is None) == (arguments.key is None):
        raise UsageError(
            "a signal needs an execution or a key as its receiver",
            hint="flowengine signal 01k8xq7mf4jb payment, or: flowengine signal --key B7 payment",
        )
    if arguments.file is not None and arguments.key is None:
        raise UsageError(
            "a flow is started by key: give --key with --file",
            hint="flowengine signal --key B7 placed --file order.yaml",
        )
    data: Any = arguments.text
    if arguments.data is not None:
        data = read.json_argument(arguments.data, "the data")
    with CliSession(arguments, make=arguments.file) as session:
        engine = session.engine
        try:
            sent = engine.signal(
                arguments.name,
                data,
                execution=arguments.execution,
                key=arguments.key,
                id=arguments.id,
                by=arguments.by,
                flow=arguments.file,
                step=arguments.step,
                resume=False,
            )
        except InputError as error:
            if data is None and not error.field:  # it is about the data as a whole
                error.hint = "give its data: --data JSON"
            raise
        if not arguments.quiet:
            did = "started" if sent.began else "sent to" if sent.first else "was already sent to"
            err(f"{arguments.name} {did} {session.short(sent.execution)}")
        if not (arguments.no_resume or session.is_served):
            resumed = partial(_resumed, session, sent.execution)
            return drive_recorded(session, sent.execution, resumed)
        leave_recorded(session, [sent.execution])
        if arguments.json:
            out_json(as_object(session, engine.executions.result(sent.execution)))
        return 0


def _resumed(session: CliSession, execution: str) -> ExecutionResult | None:
    """Resume an execution. None: no worker is running, and the next one takes the message."""
    try:
        return session.engine.resume(execution)
    except NoWorker as error:
        show_recorded(session, execution, error)
        return None

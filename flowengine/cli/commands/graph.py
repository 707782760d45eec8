"""`flowengine graph`: the compiled graph as a picture, or as data."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack, suppress
from os.path import isfile
from typing import Any

from flowengine.cli.parsing.arguments import flow_named, is_deployed, names_python
from flowengine.cli.parsing.declared import arg, command
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import out_json, out_text
from flowengine.drawing.data import Drawn, drawn, graphml, node_link, read_node_link, statuses_of
from flowengine.drawing.dot import dot
from flowengine.drawing.mermaid import mermaid
from flowengine.drawing.svg import svg
from flowengine.engines.flows import load
from flowengine.errors import FlowEngineError, NotFound, UsageError
from flowengine.journal.shapes import Sound


@command(
    "draw the compiled graph of a file or a deployed flow, or of an execution with its state",
    """\
flowengine graph expense.yaml
flowengine graph expense@2
flowengine graph 01k8xq7mf4jb --format svg > expense.svg
flowengine graph expense.yaml --format dot | dot -Tpng > expense.png
flowengine graph expense.yaml --format graphml > expense.graphml""",
    arg(
        "what FLOW|ID", "a flow file, a deployed flow (ID, ID@VERSION or its hash), or an execution"
    ),
    arg(
        "--format",
        "as a picture: mermaid (default), dot, svg, or as data: graphml, or JSON with --json",
        choices=["mermaid", "dot", "svg", "graphml"],
        default="mermaid",
    ),
)
def graph_command(arguments: Namespace) -> None:
    with ExitStack() as stack:
        flow = _found(arguments, stack)
        if arguments.json:
            return out_json(node_link(flow))
        out_text(_as_text(flow, arguments.format).rstrip("\n"))


def _as_text(flow: Drawn, format: str) -> str:
    if format == "graphml":
        return graphml(flow)
    if format == "mermaid":
        return mermaid(flow.picture)
    if format == "dot":
        return dot(flow.picture)

    return svg(flow.picture)


def _found(arguments: Namespace, stack: ExitStack) -> Drawn:
    """Return a file, a deployed flow or an execution, to be drawn.

    Args:
        stack: Left once it is drawn.

    Raises:
        NotFound: There is none of them with this name.
    """
    what = arguments.what
    if isfile(what) or names_python(what):
        return drawn(load(flow_named(what)))
    try:
        with CliSession(arguments) as session:
            return _kept(session, what, stack)
    except NotFound as error:
        raise NotFound(f"there is no file {what}, and {error.message}", hint=error.hint) from None


def _kept(session: CliSession, what: str, stack: ExitStack) -> Drawn:
    """Return a deployed flow or an execution.

    An execution with this id comes first, then a flow, then an execution whose id begins so.
    """
    missing: FlowEngineError | None = None
    execution = ""
    try:
        execution = session.engine.executions.find(what)
    except (NotFound, UsageError) as error:  # none, or several
        missing = error
    if execution != what and is_deployed(what):
        with suppress(NotFound):
            return _of_flow(session, what, stack)
    if missing is not None:
        raise missing
    return _of_execution(session, execution, stack)


def _of_flow(session: CliSession, name: str, stack: ExitStack) -> Drawn:
    if session.is_served:
        client: Any = session.engine
        return read_node_link(client.flows.graph(name))
    flow = session.engine.flows.find(name)
    stack.enter_context(Sound(f"flow {flow.form}"))
    return drawn(flow)


def _of_execution(session: CliSession, id: str, stack: ExitStack) -> Drawn:
    if session.is_served:
        client: Any = session.engine
        return read_node_link(client.executions.graph(id))
    flow, statuses = session.flow_of(id), statuses_of(session.engine.executions.show(id)["steps"])
    stack.enter_context(Sound(f"flow {flow.form}"))
    return drawn(flow, statuses)

"""`flowengine graph`: the compiled graph as a picture, or as data."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
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

_FORMATS: dict[str, Callable[[Drawn], str]] = {
    "mermaid": lambda flow: mermaid(flow.picture),
    "dot": lambda flow: dot(flow.picture),
    "svg": lambda flow: svg(flow.picture),
    "graphml": graphml,
}


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
        choices=_FORMATS,
        default="mermaid",
    ),
)
def graph_command(arguments: Namespace) -> None:
    with ExitStack() as stack:
        flow = _found(arguments, stack)
        if arguments.json:
            return out_json(node_link(flow))
        out_text(_FORMATS[arguments.format](flow).rstrip("\n"))


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
    engine: Any = session.engine
    missing: FlowEngineError | None = None
    execution = ""
    try:
        execution = engine.executions.find(what)
    except (NotFound, UsageError) as error:  # none, or several
        missing = error
    if execution != what and is_deployed(what):
        with suppress(NotFound):
            if session.is_served:
                return read_node_link(engine.flows.graph(what))
            flow = engine.flows.find(what)
            stack.enter_context(Sound(f"flow {flow.form}"))
            return drawn(flow)
    if missing is not None:
        raise missing
    if session.is_served:
        return read_node_link(engine.executions.graph(execution))
    flow = session.flow_of(execution)
    statuses = statuses_of(engine.executions.show(execution)["steps"])
    stack.enter_context(Sound(f"flow {flow.form}"))
    return drawn(flow, statuses)

"""`flowengine graph`: the compiled graph as a picture."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from os.path import isfile
from typing import TYPE_CHECKING, Any

from flowengine.cli.drawing.picture import Arrow, Box, Frame, Picture, draw
from flowengine.cli.output import as_json, print_or_write
from flowengine.cli.session import Session
from flowengine.engines.views import wholes
from flowengine.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flowengine.engines.results import StepInfo

HELP = "draw the compiled graph of a file, or of an execution with its state"
EXAMPLE = """\
flowengine graph expense.yaml
flowengine graph 01k8xq7m --format svg -o expense.svg
flowengine graph expense.yaml --format dot | dot -Tpng > expense.png"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("what", metavar="FILE|ID", help="a flow file, or an execution")
    parser.add_argument(
        "--format",
        choices=["mermaid", "dot", "svg"],
        default="mermaid",
        help="mermaid (default), dot or svg",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file")


def run(arguments: Namespace) -> int:
    """Draw it.

    Args:
        arguments: Of the command line.

    Returns:
        The exit code.
    """
    picture = _picture(arguments)
    text = as_json(_plain(picture)) if arguments.json else _drawn(picture, arguments.format)
    return print_or_write(text, arguments.output, quiet=arguments.quiet)


def _plain(picture: Any) -> Any:
    """Return a picture, or a part of one, as plain data."""
    if isinstance(picture, list):
        return [_plain(part) for part in picture]
    if isinstance(picture, Picture | Frame | Box | Arrow):
        return {name: _plain(part) for name, part in picture._asdict().items()}
    return picture


def _drawn(picture: Picture, format: str) -> str:
    if format == "mermaid":
        from flowengine.cli.drawing.mermaid import mermaid

        return mermaid(picture)
    if format == "dot":
        from flowengine.cli.drawing.dot import dot

        return dot(picture)
    from flowengine.cli.drawing.svg import svg

    return svg(picture)


def _picture(arguments: Namespace) -> Picture:
    """Return the picture of a file, or of an execution.

    Raises:
        NotFound: There is neither a file nor an execution of that name.
    """
    what = arguments.what
    if isfile(what):
        from flowengine.flow.compile import compile_file

        return draw(compile_file(what).flow)
    try:
        with Session(arguments) as session:
            found = session.engine.show(session.engine.find(what))
            compiled = session.flow_of(found["execution"]).compiled
            return draw(compiled, _statuses(found["steps"]))
    except NotFound as error:
        raise NotFound(f"there is no file {what}, and {error.message}", hint=error.hint) from None


def _statuses(steps: list[StepInfo]) -> dict[str, Iterable[str]]:
    """Return the statuses to count for each step: of a map its items, of a loop its rounds."""
    whole = {one for step in steps for one in wholes(step["address"])}
    counted: dict[str, list[str]] = {}
    for step in sorted(steps, key=lambda step: step["address"] in whole):
        statuses = counted.setdefault(step["step"], [])
        if step["address"] not in whole or step["status"] not in statuses:
            statuses.append(step["status"])
    return dict(counted)

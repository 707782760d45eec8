"""`flowengine why`: the wait of each live branch."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from flowengine.cli.session import NEWEST, CliSession
from flowengine.cli.terminal.output import marked_lines, out, out_json, when
from flowengine.cli.views.waits import is_overdue, undecidable
from flowengine.sdk.visible_text import printable

if TYPE_CHECKING:
    from flowengine.engines.infos import Reason

HELP = "show why each live branch is waiting, since when, and what will resume it"
EXAMPLE = "flowengine why 01k8xq7mf4jb"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("execution", metavar="ID", nargs="?", help=NEWEST)


def run(arguments: Namespace) -> int:
    """Explain it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        execution = session.execution(arguments.execution)
        reasons = session.engine.why(execution)
        for reason in reasons:
            session.make_pasted(reason)
        if arguments.json:
            out_json(reasons)
            return 0
        for reason in reasons:
            what = f"{reason['address'] or session.short(execution)}: {reason['what']}"
            for line in marked_lines(when(what)):
                out(line)
            for timer in reason.get("timers", []):
                late = " (overdue)" if is_overdue(timer["due"]) else ""
                out(f"  {timer['what']:11} {when(timer['due'])}{late}")
            for why in _nobody(session, reason):
                out(f"  {'nobody':11} {why}")
            commands = reason.get("commands", {})
            for name in ("since", "due", "wakes", "command"):
                if reason.get(name) and not (commands and name == "command"):
                    text = when(str(reason[name]))
                    late = " (overdue)" if name == "due" and is_overdue(reason["due"]) else ""
                    out(f"  {name:11} {text}{late}")
            for choice, command in commands.items():
                out(f"  {choice:11} {command}")
    return 0


def _nobody(session: CliSession, reason: Reason) -> list[str]:
    """Return why no user may decide what a branch waits for."""
    if "nobody" not in reason:
        return []
    return undecidable(session, session.engine.wait(reason["wait"])) or [
        printable(reason["nobody"])
    ]

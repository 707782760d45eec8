"""Shared parts of `approvals claim`, `release` and `delegate`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING

from flowengine.cli.parsing import arguments as read
from flowengine.cli.terminal.output import err, out, out_json
from flowengine.cli.views.approvals import link_text
from flowengine.cli.views.waits import answers

if TYPE_CHECKING:
    from flowengine.cli.session import CliSession
    from flowengine.engines.infos import WaitInfo


def configure(parser: ArgumentParser) -> None:
    """Add the arguments that all three take."""
    parser.add_argument("wait", metavar="ID", help="an approval, by any unambiguous prefix")
    parser.add_argument(
        "--as", dest="by", metavar="USER", type=read.user, help="act on behalf of another user"
    )


def say(session: CliSession, wait: WaitInfo) -> int:
    """Report the last change of an approval's ownership, and how to answer it.

    Returns:
        The exit code.
    """
    if session.arguments.json:
        out_json(wait)
        return 0
    short = session.short_wait(wait["id"])
    out(f"{short} {link_text(wait['handed'][-1])}")
    if wait.get("claimed_by") == session.engine.user and not session.arguments.quiet:
        for name, words in answers(session, wait, short):
            err(f"  {name:11} {session.command(*words)}")
    return 0

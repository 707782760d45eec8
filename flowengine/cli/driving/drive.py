"""Drives an execution for `run`, `resume`, `retry`, `fork` and `signal`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from flowengine.cli.driving.watching import watch
from flowengine.cli.terminal.output import is_terminal
from flowengine.cli.views.outcome import show_outcome

if TYPE_CHECKING:
    from flowengine.cli.session import CliSession
    from flowengine.engines.results import ExecutionResult


def drive(
    session: CliSession, call: Callable[[], ExecutionResult | None], *, ask: bool = False
) -> int:
    """Drive an execution and show its progress. At a terminal, prompt for pending decisions.

    Args:
        call: Drives it, and returns its state. None: it is not driven here.
        ask: Ask for approvals, if this is a terminal.

    Returns:
        The exit code.
    """
    at_terminal = is_terminal(sys.stdin) and is_terminal(sys.stderr)
    if ask and not session.arguments.json and not session.is_served and at_terminal:
        from flowengine.cli.driving.dialogue import drive_and_ask

        result = drive_and_ask(session, call)
    else:
        result, _ = watch(session, call)
    return 0 if result is None else show_outcome(session, result)

"""Driving an execution while its progress is shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from flowengine.cli.driving.live_progress import LiveProgress
from flowengine.cli.driving.progress import ProgressDisplay
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import is_terminal
from flowengine.engines.attempts.printed import heard
from flowengine.engines.results import ExecutionResult

Beside = Callable[[ProgressDisplay], AbstractContextManager[None]]
_FRAME = 0.01
"""Seconds between two pieces of a reply on the screen. Writing more often has no visible effect."""


class UserInterrupt(KeyboardInterrupt):
    """The user has stopped the process. The message reports where the execution is saved."""


def watch(
    session: CliSession,
    call: Callable[[], ExecutionResult | None],
    beside: Beside | None = None,
    progress: ProgressDisplay | None = None,
) -> tuple[ExecutionResult | None, ProgressDisplay]:
    """Drive an execution and show its progress.

    Args:
        call: Drives it.
        beside: A context that is active at the same time.
        progress: Shows it, with text that steps print. None: as the command's options require.

    Returns:
        The result of the call, and the progress.

    Raises:
        UserInterrupt: The user has stopped it.
    """
    if session.is_served:  # a worker drives it
        return call(), ProgressDisplay(session)
    output = session.arguments.verbose or progress is not None
    if progress is None:
        is_live = not session.arguments.quiet and is_terminal(sys.stderr)
        progress = LiveProgress(session) if is_live else ProgressDisplay(session)
    end = session.engine.subscribe(progress, output=output, gather=_FRAME)
    end_logs: Callable[[], object] = lambda: None  # noqa: E731 - nothing is logged
    if session.arguments.log_level or os.environ.get("FLOWENGINE_LOG_LEVEL"):
        from flowengine.cli.driving.agent_logs import log_agents

        end_logs = log_agents(session)
    try:
        with heard(), progress, nullcontext() if beside is None else beside(progress):
            try:
                result = call()
            finally:
                end(None)  # before anything else is shown
    except KeyboardInterrupt as error:
        if progress.execution is None:
            raise UserInterrupt(str(error) or "nothing was run") from None
        raise interrupted(session, progress.execution) from None
    finally:
        end()
        end_logs()
    return result, progress


def interrupted(session: CliSession, execution: str) -> UserInterrupt:
    """Return the error about an execution that was stopped, with the place where it is saved."""
    short = session.short(execution)
    if session.is_remote:
        follow = session.command("resume", short)
        return UserInterrupt(f"{short} continues at a worker. To follow it: {follow}")
    return UserInterrupt(f"saved as {short}; to resume: {session.command('resume', short)}")

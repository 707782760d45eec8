"""The state of an execution after a command: as text on standard error, or as JSON."""

from __future__ import annotations

from typing import Any

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import (
    STATUS_COLOURS,
    duration,
    err,
    error_text,
    marked_lines,
    out,
    out_json,
    paint,
)
from flowengine.cli.views.waits import LINES, again_lines, evidence_lines, evidence_of, say_waits
from flowengine.engines.results import ExecutionResult
from flowengine.flow.export.yaml_text import entry

EXIT_CODES = {
    "succeeded": 0,
    "failed": 1,
    "waiting": 4,
    "stalled": 5,
    "cancelled": 6,
    "running": 4,
    "interrupted": 4,
    "recorded": 4,
    "quarantined": 4,
}


def show_outcome(session: CliSession, result: ExecutionResult) -> int:
    """Show the state of an execution, and return the exit code."""
    code = EXIT_CODES[result.status]
    if session.arguments.json:
        out_json(as_object(session, result))
        return code
    if result.ended:
        took = ""
        if not session.is_served:
            record = session.engine.store.execution(result.execution)
            begun = max(record.created_at, session.began)  # the time between commands is no work
            took = f" in {duration((record.ended_at or begun) - begun)}"
        if not session.arguments.quiet:
            err(f"{paint(result.status, STATUS_COLOURS.get(result.status))}{took}")
        if result.error is not None:
            _show_error(session, result)
        for name, value in (result.outputs or {}).items():
            out(output_entry(name, value))
    elif not session.arguments.quiet:
        say_waits(session, result)
    return code


def as_object(session: CliSession, result: ExecutionResult) -> dict[str, Any]:
    """Return a result as the documented JSON object."""
    data = {key: value for key, value in result._asdict().items() if key != "due"}
    if result.status == "failed":
        reason, *_ = session.engine.executions.why(result.execution)  # then notifications
        data |= {key: reason[key] for key in ("not_undone", "undone_by") if key in reason}
        session.make_pasted(reason)
        if "command" in reason:
            data["command"] = reason["command"]
    return data


def output_entry(name: str, value: Any) -> str:
    """Return an output as YAML.

    A run of an agent in Python has its answer, its messages and more in one output. Of these, only
    the answer is shown here: `--json` has all of them.
    """
    if isinstance(value, dict) and {"result", "messages", "no_progress"} <= value.keys():
        value = value["result"]
    return entry(name, value)


def _show_error(session: CliSession, result: ExecutionResult) -> None:
    error: Any = result.error
    if result.status == "cancelled":
        if error["message"]:
            err(f"  reason      {error['message']}")
        return

    first, *more = marked_lines(error_text(error, error.get("step")))
    for line in (f"{paint('error:', 'red')} {first}", *more):
        err(line)
    step, evidence = evidence_of(session, result.execution, error)
    several = step if error["type"] == "CompensationFailed" else ""
    for line in evidence_lines(evidence, most=LINES, step=several):
        err(line)
    if result.status == "failed":
        short = session.short(result.execution)
        words = ["show", short, *(["--step", step] if evidence else [])]
        err(f"  look        {session.command(*words)}")
        for line in again_lines(session, as_object(session, result)):
            err(f"  {line}")

"""Error messages, as text and as JSON."""

from __future__ import annotations

from typing import Any

from flowengine.cli.terminal.output import err, err_text, out_json, paint
from flowengine.errors import FlowEngineError, FlowFileError


def report(error: FlowEngineError, *, as_json: bool) -> int:
    """Report an error, and return the exit code."""
    if as_json:
        out_json({"errors": _as_dicts(error)})
    if isinstance(error, FlowFileError):
        err_text(error.message)
    else:
        show_error(error)
    return error.exit_code


def show_error(error: FlowEngineError) -> None:
    """Write an error as text."""
    first, *more = error.message.split("\n")
    err(f"{paint('error:', 'red')} {first}")
    for line in [*more, *(error.hint_for("cli") or "").splitlines()]:
        err(f"  {line}")


def _as_dicts(error: FlowEngineError) -> list[dict[str, Any]]:
    if isinstance(error, FlowFileError) and error.diagnostics:
        return [diagnostic.as_dict() for diagnostic in error.diagnostics]
    return [
        {
            "file": None,
            "line": None,
            "column": None,
            "code": type(error).__name__,
            "message": error.message,
            "hint": error.hint_for("cli"),
        }
    ]

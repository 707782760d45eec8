"""Runs the lines of standard input in a shell, as a shell does with a script."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import Any

from flowengine.cli.sandbox_shell.escape_filter import EscapeFilter
from flowengine.cli.terminal.output import err, out_json

_UNFINISHED = ("unexpected end of file", "unexpected EOF", "here-document at line")
"""Messages of bash about a command that continues on the next line."""
_PATIENCE = 0.5
"""Seconds after which the output of a running command is shown."""
_MUCH = 4_000_000
"""Characters transferred to this process per second: the whole output is sent each time."""
_MESSAGES = {
    "timeout": "the command was stopped: it timed out",
    "cancelled": "the command was stopped",
    "disk": "the command was stopped: the disk of the sandbox is full",
    "lost": "the shell has ended",
}


def run_lines(shell: Any, *, as_json: bool) -> int:
    """Run every line as a command, and several lines together where they form one command.

    A command that waits for input gets the next line.

    Args:
        shell: The open shell.
        as_json: Print each result as one line of JSON, instead of its output.

    Returns:
        The exit code of the last command.
    """
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    lines = iter(sys.stdin)
    code, text = 0, ""
    for line in lines:
        text += line
        if not text.strip():
            continue
        result = _run(shell, text.rstrip("\n"), lines, None if as_json else OutputWriter())
        if is_unfinished(result):
            continue
        code, text = _tell(result, as_json), ""
        if ended(result):
            return code
    if text.strip():  # incomplete at the end of the input
        code = _tell(shell.run(text.rstrip("\n")), as_json)
    return code


class OutputWriter:
    """Writes the output of a command as it arrives."""

    def __init__(self) -> None:
        self._text = ""
        self._filter = EscapeFilter() if sys.stdout.isatty() else None

    def __call__(self, text: str) -> None:
        """Write the new part of a command's output."""
        known = self._text
        if not text.startswith(known):  # its last line was written over
            known = known[: known.rfind("\n") + 1]
        new = text.removeprefix(known)
        sys.stdout.write(new if self._filter is None else self._filter.of(new.encode()).decode())
        sys.stdout.flush()
        self._text = text


def is_unfinished(result: Any) -> bool:
    """Return whether a command continues on the next line."""
    return result.status == "syntax_error" and any(sign in result.output for sign in _UNFINISHED)


def ended(result: Any) -> bool:
    """Return whether the shell has ended with a command."""
    return bool(result.shell_restarted or result.status == "lost")


def message_of(result: Any) -> str | None:
    """Return the message about how a command ended, if there is one besides its output."""
    if result.status == "syntax_error":
        return str(result.output).rstrip("\n")
    return _MESSAGES.get(result.status)


def code_of(result: Any) -> int:
    """Return the exit code of a result."""
    if result.status == "timeout":
        return 124
    return 1 if result.exit_code is None else int(result.exit_code)


def _run(shell: Any, command: str, lines: Iterator[str], show: OutputWriter | None) -> Any:
    """Run a command to its end, and give it the input that it waits for."""
    result = shell.run(command, wait=_PATIENCE)
    while result.busy:
        if show is not None:
            show(result.output)
        if result.status == "waiting_for_input":
            _feed(shell, result, lines)
        result = shell.wait(max(_PATIENCE, len(result.output) / _MUCH))
    if show is not None and result.status != "syntax_error":
        show(result.output)
    return result


def _feed(shell: Any, result: Any, lines: Iterator[str]) -> None:
    """Give a command the next line. If there is none, end its input, then the command."""
    line = next(lines, None)
    if line is not None:
        shell.send(line if line.endswith("\n") else f"{line}\n")
        return
    shell.keys("C-d")
    if shell.wait(_PATIENCE).status == "waiting_for_input":
        shell.interrupt()


def _tell(result: Any, as_json: bool) -> int:
    if as_json:
        out_json(_data(result))
    elif (message := message_of(result)) is not None:
        err(message)
    sys.stdout.flush()
    return code_of(result)


def _data(result: Any) -> dict[str, Any]:
    kept = ("status", "output", "cwd", "duration", "pipe_codes", "signal", "background")
    data = {name: getattr(result, name) for name in kept}
    data["pipe_codes"] = list(data["pipe_codes"])
    data["jobs"] = [job._asdict() for job in result.jobs]
    return {"exit_code": code_of(result), **data, "shell_restarted": result.shell_restarted}

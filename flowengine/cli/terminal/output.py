"""Printing: results on standard output, everything else on standard error.

Every line goes through `rendered`, because it may contain text from flows, inputs and steps, which
must not control the terminal or look like a separate line. Colors are used on terminals only.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from flowengine.errors import FlowEngineError, FlowFileError, UsageError
from flowengine.sdk.texts.json_values import plain
from flowengine.sdk.texts.visible_text import DISGUISING, printable

_STDOUT, _STDERR = 1, 2


class _Results:
    stream: TextIO | None = None


def results() -> TextIO:
    """Return the stream of results: the real standard output."""
    return _Results.stream or sys.stdout


@contextmanager
def results_apart(*, restore: bool) -> Iterator[None]:
    """Send everything that is written to standard output, except results, to standard error.

    Args:
        restore: Whether to restore standard output afterwards. Not needed by a process that ends
            now: then threads that are still running cannot write after the results.
    """
    stdout = sys.stdout
    if not isinstance(stdout, TextIOWrapper) or not (
        stdout is sys.__stdout__ and stdout.fileno() == _STDOUT
    ):
        with _as_results(stdout), redirect_stdout(sys.stderr):  # a stream set by this program
            yield
        return
    stdout.flush()
    copy = os.dup(_STDOUT)
    buffering, line_buffering = (1 if stdout.isatty() else -1), stdout.line_buffering
    stream = open(copy, "w", buffering, stdout.encoding, stdout.errors)  # noqa: SIM115 - see below
    _turn(_STDERR)
    stdout.reconfigure(line_buffering=True)  # keeps the order with standard error
    if not restore:
        _Results.stream = stream
        yield
        return
    try:
        with _as_results(stream):
            yield
    finally:
        stdout.flush()
        _turn(copy)
        stdout.reconfigure(line_buffering=line_buffering)
        stream.close()


@contextmanager
def _as_results(stream: TextIO) -> Iterator[None]:
    before, _Results.stream = _Results.stream, stream
    try:
        yield
    finally:
        _Results.stream = before


def _turn(to: int) -> None:
    """Make standard output a copy of another descriptor, unless that is closed."""
    try:
        os.dup2(to, _STDOUT)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDOUT)
        os.close(nowhere)


_COLOURS = {
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
    "bold": "1",
    "dim": "2",
}
STATUS_COLOURS = {
    "succeeded": "green",
    "failed": "red",
    "refused": "red",
    "rejected": "red",
    "expired": "red",
    "cancelled": "dim",
    "skipped": "dim",
    "running": "cyan",
    "retrying": "yellow",
    "waiting": "yellow",
    "stalled": "red",
    "interrupted": "red",
    "recorded": "yellow",
    "quarantined": "red",
    "uncertain": "red",
}
_PEN = f"<{os.urandom(8).hex()}>"
"""Marks where a color starts or ends until the line is written. Foreign text cannot contain it."""


class Colours:
    """Whether colors are enabled. Streams other than terminals never receive any."""

    allowed = True


class OutputLost(FlowEngineError):
    """The results cannot be written. Committed work is saved."""

    exit_code = 74


@contextmanager
def _written() -> Iterator[None]:
    """Turn system errors of writing results into `OutputLost`, except a closed pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or str(error)
        raise OutputLost(f"the results cannot be written to standard output: {why}") from None


def out(text: str = "") -> None:
    """Write a line of the result."""
    with _written():
        results().write(f"{rendered(text)}\n")


def out_piece(text: str) -> None:
    """Write a piece of a line of the result, at once."""
    with _written():
        results().write(rendered(text))
        results().flush()


def flush() -> None:
    """Flush the results to their reader."""
    with _written():
        results().flush()


def out_text(text: str) -> None:
    """Write the lines of a text as results."""
    for line in text.split("\n"):
        out(line)


def out_json(value: Any) -> None:
    """Write a value as JSON on one line of the result."""
    out(as_json(value))


def as_json(value: Any) -> str:
    """Return a value as JSON on one line, with bytes as base64 text."""
    import json

    ascii_only = (results().encoding or "").lower().replace("-", "") != "utf8"
    text = json.dumps(value, ensure_ascii=ascii_only, default=plain)
    return DISGUISING.sub(lambda match: json.dumps(match[0])[1:-1], text)


def err(text: str = "") -> None:
    """Write a line that is not a result: progress, a hint, an error.

    It may be lost, because no command fails if standard error has no reader. Earlier results are
    written first, so that a log of both streams has them in order.
    """
    with suppress(OSError, ValueError):  # reported when the results end
        results().flush()
    try:
        sys.stderr.write(f"{rendered(text)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def err_text(text: str) -> None:
    """Write the lines of a text that is not a result."""
    for line in text.split("\n"):
        err(line)


def ask(prompt: str) -> None:
    """Write a prompt that is answered on the same line."""
    with suppress(OSError, ValueError):
        sys.stderr.write(rendered(paint(prompt, "bold")))
        sys.stderr.flush()


def rendered(line: str) -> str:
    """Return a line in its written form: foreign text made harmless, our colors inserted."""
    return printable(line).replace(_PEN, "\x1b[")


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Create the directory of a file that is written inside, and report what prevents that.

    Args:
        path: The file that the command line names.

    Raises:
        UsageError: It cannot be written.
    """
    if os.fspath(path) == "-":
        raise UsageError("'-' is the name of no file here", hint="./- is a file of this name")
    above = Path(path).parent
    try:
        above.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        there = next(each for each in (above, *above.parents) if each.exists())
        why = error.strerror if there.is_dir() else f"{there} is not a directory"
        raise UsageError(f"{path} cannot be written: {why}") from None


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def colourful(stream: TextIO) -> bool:
    """Return whether colors may be written to a stream."""
    if not Colours.allowed or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


def paint(text: str, colour: str | None, stream: TextIO | None = None) -> str:
    """Return a text in a color, if the stream accepts colors.

    Args:
        text: The text to show.
        colour: Name of a color used here. None: unchanged.
        stream: Where it will be written. Default: standard error.
    """
    if colour is None or not colourful(stream or sys.stderr):
        return text
    return f"{_PEN}{_COLOURS[colour]}m{text}{_PEN}0m"


def first_line(text: object, longest: int = 200) -> str:
    """Return the first line of a text, cut if it is long."""
    line, _, more = str(text).strip().partition("\n")
    line = printable(line)
    if len(line) > longest:
        return f"{line[: longest - 1]}…"
    return f"{line} …" if more.strip() else line


def error_text(error: Any, place: str | None = None) -> str:
    """Return the type of an error, its place, and its message, if that differs from the type."""
    what = error["type"] + (f" at {place}" if place else "")
    message = error["message"].strip()
    adds_nothing = message in ("", error["type"].rpartition(".")[2])
    return what if adds_nothing else f"{what}: {message}"


def marked_lines(text: object, indent: str = "  ") -> Iterator[str]:
    """Yield the lines of a text that others may have written.

    Those after a line break begin with `|`, so that the text cannot imitate other lines.

    Args:
        text: The text.
        indent: Before each line but the first.
    """
    first, *more = str(text).strip().split("\n")
    yield printable(first)
    yield from (f"{indent}| {printable(line)}".rstrip() for line in more)


def table(rows: Iterable[Sequence[str]], head: Sequence[str]) -> list[str]:
    """Return rows as lines with columns below a header. Cells may contain any text."""
    cells = [head, *([*map(printable, row)] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def out_result(arguments: Namespace, value: Any, lines: Iterable[str], nothing: str = "") -> None:
    """Write a result: as JSON with `--json`, otherwise as lines.

    Args:
        arguments: Those of the command line.
        value: The result.
        lines: Are read only if they are shown.
        nothing: What is said, if given, instead of the lines of an empty result.
    """
    if arguments.json:
        out_json(value)
    elif nothing and not value:
        err(nothing)
    else:
        for line in lines:
            out(line)


def out_table(rows: Iterable[Sequence[str]], *head: str) -> None:
    """Write rows below a header."""
    for line in table(rows, head):
        out(line)


def when(text: str) -> str:
    """Return a text whose times have no milliseconds."""
    return re.sub(r"(T\d\d:\d\d:\d\d)\.\d{3}Z", r"\1Z", text)


def duration(ms: float) -> str:
    """Return a duration in readable form: `0.4s`, `48m 10s`, `3d 2h`."""
    if ms < 59_950:
        return f"{max(ms, 0) / 1000:.1f}s"
    seconds = round(ms / 1000)
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


# Error messages, as text and as JSON.


def report(error: FlowEngineError, *, as_json: bool) -> int:
    """Report an error, and return the exit code."""
    if as_json:
        faults: list[dict[str, Any]] = [
            {
                **dict.fromkeys(("file", "line", "column")),
                "code": type(error).__name__,
                "message": error.message,
                "hint": error.hint_for("cli"),
            }
        ]
        if isinstance(error, FlowFileError) and error.diagnostics:
            faults = [diagnostic.as_dict() for diagnostic in error.diagnostics]
        out_json({"errors": faults})
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

"""Keeps standard output for results: text printed by steps goes to standard error.

Functions of steps run in this process, and may print in any way: `print`, a C library, a child
process. So the file descriptor itself is redirected while a command runs, and results are written
to a copy of the original.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from typing import TextIO

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
    if not isinstance(stdout, TextIOWrapper) or not _is_real(stdout):
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


def _is_real(stdout: TextIO) -> bool:
    """Return whether a stream is the standard output of this process, not a replacement."""
    return stdout is sys.__stdout__ and stdout.fileno() == _STDOUT


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

"""A conversation with a shell at a terminal: a prompt, and all keys for the command that runs."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from flowengine.cli.sandbox_shell.escape_filter import AT_THE_END, EscapeFilter
from flowengine.cli.sandbox_shell.script import code_of, ended, is_unfinished, message_of
from flowengine.cli.terminal.output import err, out, paint
from flowengine.sdk.visible_text import printable

_GLANCE = 0.05
"""Seconds between two checks of a command's output."""
_MUCH = 4_000_000
"""Bytes transferred to this process per second: the whole output is sent each time."""
_KEYS = 1024
_NOTICED = 0.2
"""Seconds within which Ctrl-C at the prompt is noticed."""


def talk(shell: Any, name: str) -> int:
    """Read commands at a prompt and run them until the input or the shell ends.

    At the prompt, Ctrl-C discards the line and Ctrl-D ends the session. While a command runs, it
    receives all keys.

    Args:
        shell: The open shell.
        name: Of the environment, for the prompt.

    Returns:
        The exit code of the last command.
    """
    with suppress(ImportError):
        import readline  # noqa: F401 - lines are edited, earlier ones come back

    err(paint(f"a shell in '{name}' (Ctrl-D ends it and all its processes)", "dim"))
    size = _Size(shell)
    code, text, cwd = 0, "", ""
    while True:
        try:
            with _woken():
                line = input(_prompt(name, cwd, code) if not text else "> ")
        except EOFError:
            out()
            return code
        except KeyboardInterrupt:
            out()
            text = ""
            continue
        text += line + "\n"
        if not text.strip():
            text = ""
            continue
        with _raw():
            result = _run(shell, text.rstrip("\n"), size)
        if is_unfinished(result):
            continue
        text, code, cwd = "", code_of(result), result.cwd
        message = message_of(result)
        if message is not None:
            err(message)
        if ended(result):
            return code


@contextmanager
def _woken() -> Iterator[None]:
    """Wake a thread that waits for a key regularly, so that Ctrl-C is noticed without one.

    Python checks for signals when a wait is interrupted by one, but misses one that arrived just
    before the wait started, or in another thread.
    """
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _NOTICED, _NOTICED)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _prompt(name: str, cwd: str, code: int) -> str:
    failed = f" [{code}]" if code else ""
    return f"{name}{':' if cwd else ''}{printable(cwd)}{failed}$ "


class _Size:
    """Keeps the shell's terminal the same size as this one."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._size: os.terminal_size | None = None

    def follow(self) -> None:
        """Pass a change of this terminal's size to the shell."""
        with suppress(OSError):  # the terminal was closed
            size = os.get_terminal_size(sys.stdout.fileno())
            if size != self._size and size.columns and size.lines:
                self._size = size
                self._shell.resize(size.columns, size.lines)


def _run(shell: Any, command: str, size: _Size) -> Any:
    """Run a command, connected to the terminal and its keys."""
    shown, escapes = 0, EscapeFilter()
    decoder = getincrementaldecoder("utf-8")("replace")
    size.follow()
    result = shell.run(command, wait=_GLANCE)
    while True:
        if result.status != "syntax_error":
            shown = _show(result.raw, shown, escapes)
        if not result.busy:
            _write(AT_THE_END)
            return result
        size.follow()
        waits = result.status == "waiting_for_input"
        # A waiting command is checked again when something is typed.
        ready, _, _ = select.select([sys.stdin], [], [], _GLANCE if waits else 0)
        if ready:
            typed = os.read(sys.stdin.fileno(), _KEYS)
            if not typed:  # the terminal was closed
                shell.interrupt()
            keys = decoder.decode(typed)
            if keys:
                shell.send(keys)
        result = shell.wait(max(_GLANCE, len(result.raw) / _MUCH))


def _show(raw: bytes, shown: int, escapes: EscapeFilter) -> int:
    """Write the new part of a command's output, and return the output's length."""
    new = raw[shown:] if len(raw) >= shown else b""
    if new:
        _write(escapes.of(new))
    return max(shown, len(raw))


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@contextmanager
def _raw() -> Iterator[None]:
    """Let every key be read immediately and unchanged, without echo."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)

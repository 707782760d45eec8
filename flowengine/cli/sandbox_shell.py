"""A conversation with the shell of a sandbox: at a terminal, or with lines from standard input."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Any

from flowengine.cli.terminal.output import err, out, out_json, paint
from flowengine.sdk.texts.visible_text import DISGUISING, REPLACEMENT, printable

# Limits the terminal sequences of programs in a sandbox to writing and drawing.
#
# A terminal obeys control sequences. It puts text on the clipboard, prints, renames its window,
# and answers queries as if the answer had been typed, perhaps when the user's shell is reading. So
# only sequences that draw are let through.

_SEQUENCE = re.compile(
    r"\x1b(?:\[(?P<private>[<=>?]?)(?P<numbers>[0-9:;]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|(?P<text>[\]PX^_])"
    r"|(?P<set>[()*+][0-9A-Z])"
    r"|(?P<short>[0-Z\\`-~]))"
)
_BEGUN = re.compile(r"\x1b(?:\[[<=>?]?[0-9:;]*[ -/]*|[()*+])?\Z")
"""An incomplete sequence."""
_LONGEST = 200
"""Maximum length of an incomplete sequence."""
_END = re.compile("[\x07\x18\x1a\x9c]|\x1b\\\\?")
"""The end of a text that is meant for the terminal itself."""
_DRAWS = frozenset("@ABCDEFGHIJKLMPSTXZ`abdefghlmrsu")
"""Final letters: move, erase, insert, scroll, color, and the modes below."""
_MODES = {
    "": frozenset({"4"}),
    "?": frozenset({"1", "5", "6", "7", "12", "25", "47", "1047", "1048", "1049"}),
}
"""Modes of keys, the cursor, wrapping and the second screen, but none that reports anything."""
_SHORT = frozenset("78=>DEHM")
_KEPT = "\r\b\a\x0e\x0f"


class EscapeFilter:
    """Lets through text and sequences that draw. Output may come in pieces."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._inside = False
        """Whether a text meant for the terminal itself has started and not ended."""

    def of(self, data: bytes) -> bytes:
        """Return the part of the next piece that may be written.

        Args:
            data: The piece.

        Returns:
            Text and sequences that draw. An unfinished one is kept for the next piece.
        """
        text, self._rest = self._rest + self._decoder.decode(data), ""
        shown: list[str] = []
        at = 0
        while at < len(text):
            if self._inside:
                end = _END.search(text, at)
                if end is None:
                    break
                if end.group() == "\x1b" and end.end() == len(text):
                    self._rest = "\x1b"
                    break
                self._inside, at = False, end.end() if end.group() != "\x1b" else end.start()
                continue
            escape = text.find("\x1b", at)
            shown.append(_harmless(text[at : escape if escape >= 0 else len(text)]))
            if escape < 0:
                break
            match = _SEQUENCE.match(text, escape)
            if match is None and len(text) - escape < _LONGEST and _BEGUN.match(text, escape):
                self._rest = text[escape:]
                break
            at = escape + 1 if match is None else match.end()
            if match is not None:
                self._inside = match["text"] is not None
                shown.append(match.group() if _draws(match) else "")
        return "".join(shown).encode()


def _harmless(text: str) -> str:
    """Return text without sequences, with the characters replaced that could disguise it."""
    return DISGUISING.sub(lambda match: match[0] if match[0] in _KEPT else REPLACEMENT, text)


def _draws(match: re.Match[str]) -> bool:
    """Return whether a sequence only draws."""
    if match["set"]:
        return True
    if match["short"]:
        return match["short"] in _SHORT
    final = match["final"]
    if final is None or match["between"] or final not in _DRAWS:
        return False
    if final in "hl":
        return set(match["numbers"].split(";")) <= _MODES.get(match["private"], frozenset())
    return match["private"] == "" or (match["private"] == "?" and final in "JK")


AT_THE_END = b"\x0f\x1b[0m\x1b[?25h"
"""Resets modes that a program may leave behind: line-drawing characters, colors, cursor."""


# Runs the lines of standard input in a shell, as a shell does with a script.

_UNFINISHED = ("unexpected end of file", "unexpected EOF", "here-document at line")
"""Messages of bash about a command that continues on the next line."""
_PATIENCE = 0.5
"""Seconds after which the output of a running command is shown."""
_MUCH = 4_000_000
"""Bytes or characters transferred to this process per second: all output is sent each time."""
_MESSAGES = {
    "timeout": "the command was stopped: it timed out",
    "cancelled": "the command was stopped",
    "disk": "the command was stopped: the disk is almost full",
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
        result = _run_line(shell, text.rstrip("\n"), lines, None if as_json else OutputWriter())
        if is_unfinished(result):
            continue
        code, text = _report(result, as_json), ""
        if ended(result):
            return code
    if text.strip():  # incomplete at the end of the input
        code = _report(shell.run(text.rstrip("\n")), as_json)
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


def _run_line(shell: Any, command: str, lines: Iterator[str], show: OutputWriter | None) -> Any:
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


def _report(result: Any, as_json: bool) -> int:
    if as_json:
        kept = ("status", "output", "cwd", "duration", "pipe_codes", "signal", "background")
        data = {name: getattr(result, name) for name in kept}
        data["pipe_codes"] = list(data["pipe_codes"])
        data["jobs"] = [job._asdict() for job in result.jobs]
        out_json({"exit_code": code_of(result), **data, "shell_restarted": result.shell_restarted})
    elif (message := message_of(result)) is not None:
        err(message)
    sys.stdout.flush()
    return code_of(result)


# A conversation with a shell at a terminal: a prompt, and all keys for the command that runs.

_GLANCE = 0.05
"""Seconds between two checks of a command's output."""
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
            result = _run(shell, text.rstrip("\n"))
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


def _follow(shell: Any, size: os.terminal_size | None) -> os.terminal_size | None:
    """Give the terminal of a shell the size of this one, if that has changed, and return it."""
    with suppress(OSError):  # the terminal was closed
        now = os.get_terminal_size(sys.stdout.fileno())
        if now != size and now.columns and now.lines:
            shell.resize(now.columns, now.lines)
            return now
    return size


def _run(shell: Any, command: str) -> Any:
    """Run a command, connected to the terminal and its keys."""
    shown, escapes = 0, EscapeFilter()
    decoder = getincrementaldecoder("utf-8")("replace")
    size = _follow(shell, None)
    result = shell.run(command, wait=_GLANCE)
    while True:
        if result.status != "syntax_error":
            new = result.raw[shown:] if len(result.raw) >= shown else b""
            if new:
                _write(escapes.of(new))
            shown = max(shown, len(result.raw))
        if not result.busy:
            _write(AT_THE_END)
            return result
        size = _follow(shell, size)
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

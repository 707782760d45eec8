"""Input from a user at a terminal, limited to keys pressed after the question is shown.

    with listening(sys.stdin.fileno()) as keyboard:
        show(question)
        answer = keyboard.line()

Text typed or pasted before was meant for another program or question, so it is discarded. A paste
is one text with its line breaks. Only Enter ends an answer, and Alt-Enter continues it on a new
line.
"""

from __future__ import annotations

import os
import re
import termios
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from select import select
from time import monotonic
from typing import Any
from unicodedata import combining, east_asian_width

from flowengine.sdk.texts.visible_text import printable

QUIET = 0.1
"""Seconds without a key before a question is shown. The rest of a long paste arrives in pieces, and
a terminal delivers each only after the previous one was read."""
_GLANCE = 0.2
"""Seconds between two looks whether the answer is still needed."""
_PIECE = 65_536
_PASTES = ("\x1b[?2004h", "\x1b[?2004l")
"""Enable and disable the marking of pastes by the terminal."""
_BEGIN, _END = "\x1b[200~", "\x1b[201~"
"""The marks of a paste."""
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|[^\[O\x00-\x1f])")
"""Sequence sent by a key such as an arrow."""
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
_NEXT_LINE = ("\x1b\r", "\x1b\n")
"""Sequences sent by Alt-Enter."""


class AnswerWithdrawn(Exception):
    """The answer is no longer needed."""


@contextmanager
def listening(
    handle: int, *, seconds: float | None = None, withdrawn: Callable[[], bool] | None = None
) -> Iterator[Keyboard]:
    """Discard pending input, and read keys instead of lines until the end of the block.

    Args:
        handle: File descriptor of the terminal.
        seconds: How long the whole block waits for keys. None means without a limit.
        withdrawn: Returns whether the answer is no longer needed. It is called several times per
            second while a line is awaited.

    Yields:
        The keyboard. Keys pressed from now on answer a question that is shown now.

    Raises:
        EOFError: The terminal was closed.
        TimeoutError: The time is up.
        AnswerWithdrawn: The answer is no longer needed.
    """
    before = termios.tcgetattr(handle)
    keyboard = Keyboard(handle, before[6], seconds, withdrawn)
    by_key = [*before]
    by_key[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
    by_key[6] = [*before[6]]
    by_key[6][termios.VMIN], by_key[6][termios.VTIME] = 1, 0
    marks_pastes = os.environ.get("TERM", "dumb") != "dumb"
    try:
        termios.tcsetattr(handle, termios.TCSAFLUSH, by_key)
        keyboard.discard()
        if marks_pastes:
            keyboard.write(_PASTES[0])
        yield keyboard
    finally:
        if marks_pastes:
            keyboard.write(_PASTES[1])
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(handle, termios.TCSADRAIN, before)


class Keyboard:
    """The keys of a terminal without echo.

    Args:
        handle: File descriptor of the terminal.
        control: Its control characters, as in `termios`.
        seconds: How long to wait for keys. None means without a limit.
        withdrawn: Returns whether the answer is no longer needed.
    """

    def __init__(
        self,
        handle: int,
        control: Sequence[Any],
        seconds: float | None,
        withdrawn: Callable[[], bool] | None,
    ) -> None:
        self._handle = handle
        self._control = control
        self._end = None if seconds is None else monotonic() + seconds
        self._withdrawn = withdrawn

    def discard(self) -> None:
        """Read until no key is pressed for a moment."""
        while self._read(QUIET):
            pass

    def line(self) -> str:
        """Return the text that is typed or pasted before Enter, without its end.

        Raises:
            EOFError: Ctrl-D, or the terminal was closed.
            TimeoutError: The time is up.
            AnswerWithdrawn: The answer is no longer needed.
        """
        line = _Line(self, self._control)
        decoder = getincrementaldecoder("utf-8")("replace")
        while True:
            chars = decoder.decode(self._awaited())
            for at, char in enumerate(chars):
                is_followed = at + 1 < len(chars) or bool(select([self._handle], [], [], 0)[0])
                if line.feed(char, is_followed=is_followed):
                    self.write("\n")
                    return line.text

    def write(self, text: str) -> None:
        """Write to the terminal, if it can be written to."""
        with suppress(OSError):
            os.write(self._handle, text.encode(errors="replace"))

    def _awaited(self) -> bytes:
        """Return the next keys.

        Raises:
            EOFError: The terminal was closed.
            TimeoutError: The time is up.
            AnswerWithdrawn: The answer is no longer needed.
        """
        if self._withdrawn is None:
            return self._read(None)
        while not self._withdrawn():
            if data := self._read(_GLANCE):
                return data
        raise AnswerWithdrawn

    def _read(self, seconds: float | None) -> bytes:
        """Return the pressed keys, empty if there were none within the given seconds."""
        left = None if self._end is None else max(0.0, self._end - monotonic())
        limits = [one for one in (seconds, left) if one is not None]
        if not select([self._handle], [], [], min(limits, default=None))[0]:
            if self._end is not None and monotonic() >= self._end:
                raise TimeoutError
            return b""
        try:
            data = os.read(self._handle, _PIECE)
        except OSError:
            data = b""
        if not data:
            raise EOFError
        return data


class _Line:
    """A text that is being typed and shown so far.

    Args:
        terminal: The terminal that shows it.
        control: Control characters of the terminal.
    """

    def __init__(self, terminal: Keyboard, control: Sequence[Any]) -> None:
        self._terminal = terminal
        key = {name: control[at].decode("latin-1") for name, at in _KEYS.items()}
        self._backspace = {*"\x08\x7f", key["erase"]}
        self._key = key
        self._chars: list[str] = []
        self._escape = ""
        """The beginning of a sequence."""
        self._is_pasting = False

    @property
    def text(self) -> str:
        return "".join(self._chars)

    def feed(self, char: str, *, is_followed: bool) -> bool:
        """Process a character, and return whether it ends the text.

        Args:
            char: The character.
            is_followed: Whether more input has already arrived. That is faster than typing, so it
                is a paste, even if the terminal does not mark pastes.

        Returns:
            Whether the text has ended.

        Raises:
            EOFError: Ctrl-D.
        """
        if (self._escape or char == "\x1b") and self._takes_sequence(char):
            return False
        if char in "\r\n":
            if not self._is_pasting and not is_followed:
                return True
            self._add("\n")
        elif self._is_pasting:
            self._add_typed(char)
        elif char in self._backspace:
            self._take_back(1)
        elif char == self._key["word"]:
            words = self.text.rsplit(None, 1)
            spaces = len(self.text) - len(self.text.rstrip())
            self._take_back(spaces + len(words[-1] if words else ""))
        elif char == self._key["line"]:
            self._take_back(len(self._chars))
        elif char == self._key["end"]:
            if not self._chars:
                raise EOFError
        else:
            self._add_typed(char)
        return False

    def _takes_sequence(self, char: str) -> bool:
        """Return whether a character belongs to an escape sequence, not to the text."""
        self._escape += char
        if self._escape in _NEXT_LINE:
            self._escape = ""
            self._add("\n")
            return True
        if _SEQUENCE.fullmatch(self._escape):
            if self._escape in (_BEGIN, _END):
                self._is_pasting = self._escape == _BEGIN
            self._escape = ""
            return True
        if not _BEGUN.fullmatch(self._escape):
            self._escape = char if char == "\x1b" else ""
        return self._escape != ""

    def _add_typed(self, char: str) -> None:
        if char == "\t" or not re.match(r"[\x00-\x1f\x7f-\x9f]", char):
            self._add(char)

    def _add(self, char: str) -> None:
        self._chars.append(char)
        self._terminal.write(_shown(char))

    def _take_back(self, count: int) -> None:
        taken = [self._chars.pop() for _ in range(min(count, len(self._chars)))]
        if "\n" in taken:
            rest = self.text.rpartition("\n")[2]
            self._terminal.write("\n" + "".join(map(_shown, rest)))
            return
        columns = sum(map(_columns, taken))
        self._terminal.write("\b" * columns + " " * columns + "\b" * columns)


_KEYS = {
    "erase": termios.VERASE,
    "word": termios.VWERASE,
    "line": termios.VKILL,
    "end": termios.VEOF,
}


def _shown(char: str) -> str:
    if char in "\n\t":
        return {"\n": "\n", "\t": " "}[char]
    return printable(char)


def _columns(char: str) -> int:
    if combining(char):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1

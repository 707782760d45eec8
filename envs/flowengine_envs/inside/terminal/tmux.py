"""A terminal in tmux, controlled by one client in control mode: lines of text over two pipes.

tmux forwards output unchanged, byte for byte (`%output`, with some bytes in octal), never wrapped
and independent of its history limit. A reply to a command is enclosed in `%begin` and `%end`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Optional

from flowengine_envs.inside.commands import Say
from flowengine_envs.inside.keepers import Launch
from flowengine_envs.inside.loop import EventLoop, Outbox, close_quietly
from flowengine_envs.inside.programs import ProgramEnd, ProgramStarter
from flowengine_envs.link.masking import masked

SOCKET = "socket"
SESSION = "term"
COLUMNS, ROWS = 200, 50
_OCTAL = re.compile(rb"\\([0-7]{3})")
_PIECE = 500
"""Bytes of input in one command."""
_WORDS = 2000
SETTINGS = """\
set -g default-shell /bin/sh
set -g default-terminal screen-256color
set -g remain-on-exit on
set -g history-limit 5000
set -g default-size 200x50
set -g status off
set -g bell-action none
set -g visual-activity off
set -g allow-rename off
set -g update-environment ""
set -s escape-time 0
set -s exit-empty on
set -s set-clipboard off
"""

Reply = Callable[[bool, bytes], None]


class Tmux:
    """A tmux server with one window of one pane, and the client that controls it.

    Args:
        programs: Starts it.
        folder: Contains its `settings` and the script `pane`, which runs on the terminal. It is the
            server's working directory, so that the path of its socket can be short.
        env: The whole environment.
        cwd: Its working directory.
        limits: Resource limits by name.
        output: Called with output of programs.
        ended: Called once, when it has ended or could not be started, with its last output.
    """

    def __init__(
        self,
        programs: ProgramStarter,
        folder: str,
        env: Mapping[str, str],
        cwd: str,
        limits: Mapping[str, int],
        output: Callable[[bytes], None],
        ended: Callable[[ProgramEnd, str], None],
    ) -> None:
        loop = programs.loop
        self._loop = loop
        self._output = output
        self._ended = ended
        self._rest = b""
        self._block: Optional[list[bytes]] = None  # noqa: UP045
        self._ours = False
        self._replies: deque[Optional[Reply]] = deque()  # noqa: UP045
        self._held: Optional[list[bytes]] = []  # noqa: UP045
        """Commands held back until there is a window, because tmux may read them before."""
        self._words = b""
        self.columns = COLUMNS
        self._command = f"exec /bin/sh {shlex.quote(os.path.join(folder, 'pane'))}"
        source, self._feed = os.pipe()
        self._reader, sink = os.pipe()
        for fd in (self._feed, self._reader):
            os.set_blocking(fd, False)
        self._input = Outbox(loop, self._feed, _nothing)
        argv = ["tmux", "-u", "-S", SOCKET, "-f", "settings", "-C", "new-session", "-s", SESSION]
        argv += ["-x", str(COLUMNS), "-y", str(ROWS), "-c", cwd, self._command]
        fds = {0: source, 1: sink, 2: sink}
        self.program = programs.start(Launch(argv, env, folder, limits), fds, self._has_ended)
        os.close(source)
        os.close(sink)
        loop.reading(self._reader, self._read)
        self._keep_size()

    def do(self, *words: str, reply: Optional[Reply] = None) -> None:  # noqa: UP045
        """Run a tmux command.

        Args:
            words: The command and its arguments, quoted where necessary.
            reply: Called with whether it succeeded, and the output of tmux.
        """
        self._replies.append(reply)
        line = " ".join(map(_quoted, words)).encode() + b"\n"
        if self._held is None:
            self._input.write(line)
        else:
            self._held.append(line)

    def type(self, data: bytes, reply: Optional[Reply] = None) -> None:  # noqa: UP045
        """Send bytes to the terminal as typed input."""
        for start in range(0, len(data), _PIECE):
            last = start + _PIECE >= len(data)
            codes = [f"{byte:02x}" for byte in data[start : start + _PIECE]]
            self.do("send-keys", "-t", SESSION, "-H", *codes, reply=reply if last else None)

    def press(self, keys: Sequence[str], reply: Reply) -> None:
        """Press keys, with tmux's key names."""
        self.do("send-keys", "-t", SESSION, "--", *keys, reply=reply)

    def screen(self, reply: Reply) -> None:
        """Report the content of the screen."""
        self.do("capture-pane", "-p", "-J", "-t", SESSION, reply=reply)

    def drawn(self, reply: Reply) -> None:
        """Report the content of the screen, with its colors as escape sequences."""
        self.do("capture-pane", "-p", "-e", "-t", SESSION, reply=reply)

    def cursor(self, reply: Reply) -> None:
        """Report the position of the cursor: column and row, from 0."""
        self.do("display-message", "-p", "-t", SESSION, "#{cursor_x} #{cursor_y}", reply=reply)

    def resize(self, columns: int, rows: int, reply: Reply) -> None:
        """Set the size of the window, and of later ones."""
        self.columns = columns
        self.do("set-option", "-t", SESSION, "default-size", f"{columns}x{rows}")
        size = ("-x", str(columns), "-y", str(rows))
        self.do("resize-window", "-t", SESSION, *size, reply=reply)

    def again(self, cwd: str) -> None:
        """End the programs of the pane and start its command again on a new terminal.

        It uses a new window, because tmux 3.3 crashes when a pane restarts before its output is
        forwarded.
        """
        self.do("new-window", "-t", f"{SESSION}:", "-c", cwd, self._command)
        self.do("kill-window", "-a", "-t", SESSION)
        self._keep_size()

    def _keep_size(self) -> None:
        """Prevent clients from changing the size of the window.

        It is set only for the window, because otherwise tmux 3.3 cannot create another.
        """
        self.do("set-option", "-w", "-t", SESSION, "window-size", "manual")

    def _read(self) -> None:
        try:
            data = os.read(self._reader, 1 << 18)
        except BlockingIOError:
            return
        if not data:
            self._loop.forget(self._reader)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        written: list[bytes] = []
        for line in lines:
            if line.startswith(b"%output ") and self._block is None:
                text = line.split(b" ", 2)[2]
                written.append(_OCTAL.sub(_byte, text) if b"\\" in text else text)
            else:
                self._read_line(line)
        if written:
            self._output(b"".join(written))

    def _read_line(self, line: bytes) -> None:
        if self._block is None:
            if line.startswith(b"%begin "):
                self._block = []
                self._ours = line.endswith(b" 1")
            elif not line.startswith(b"%") or line.startswith(b"%exit "):
                self._words = (self._words + line + b"\n")[-_WORDS:]
        elif line.startswith((b"%end ", b"%error ")):
            block, self._block = self._block, None
            done = line.startswith(b"%end ")
            if not done:
                self._words = (self._words + b"\n".join(block) + b"\n")[-_WORDS:]
            if self._held is not None:  # This was the reply to the command line.
                held, self._held = self._held, None
                self._input.write(b"".join(held))
            elif self._ours and self._replies:
                reply = self._replies.popleft()
                if reply is not None:
                    reply(done, b"\n".join(block))
        else:
            self._block.append(line)

    def _has_ended(self, ended: ProgramEnd) -> None:
        self._input.close()
        self._loop.forget(self._feed)
        self._read()
        self._loop.forget(self._reader)
        for fd in (self._feed, self._reader):
            close_quietly(fd)
        replies, self._replies = self._replies, deque()
        for reply in replies:
            if reply is not None:
                reply(False, b"")
        words = (self._words + self._rest).decode(errors="replace").strip()
        self._ended(ended, words)


def _byte(match: Any) -> bytes:
    return bytes([int(match[1], 8)])


def _quoted(word: str) -> str:
    if re.fullmatch(r"[\w@/.%:,+=-]+", word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def _nothing() -> None:
    """Ignore the reply."""


# Sends the screen of a terminal to viewers each time it has changed.

_PAUSE = 0.05
"""Minimum seconds between two screens."""


class Watching:
    """The viewers of one terminal.

    Args:
        loop: The loop.
        tmux: Provides the screen.
        secrets: Values to hide.
        busy: Returns whether earlier answers are still unread.
    """

    def __init__(
        self, loop: EventLoop, tmux: Tmux, secrets: Sequence[bytes], busy: Callable[[], bool]
    ) -> None:
        self._loop = loop
        self._tmux = tmux
        self._secrets = secrets
        self._busy = busy
        self._watchers: dict[int, Say] = {}
        self._shown: Optional[tuple[bytes, bytes]] = None  # noqa: UP045
        self._due = False
        self._again = False

    def add(self, request: int, say: Say) -> None:
        """Send the screen from now on until the request is cancelled."""
        self._watchers[request] = say
        self._shown = None
        self.changed()

    def forget(self, request: int) -> bool:
        """Stop sending it. Return whether it was sent."""
        say = self._watchers.pop(request, None)
        if say is not None:
            say({"done": True}, b"")
        return say is not None

    def changed(self) -> None:
        """Check the screen soon, after output."""
        if not self._watchers:
            return
        self._again = self._due
        if not self._due:
            self._due = True
            self._loop.after(_PAUSE, self._poll)

    def close(self) -> None:
        """Report the end to all viewers."""
        for request in list(self._watchers):
            self.forget(request)

    def _poll(self) -> None:
        if self._busy():
            self._loop.after(_PAUSE, self._poll)
            return
        self._again = False
        self._tmux.cursor(lambda _well, place: self._tmux.drawn(partial(self._show, place)))

    def _show(self, cursor: bytes, _well: bool, screen: bytes) -> None:
        self._due = False
        if self._again:
            self.changed()
        if (cursor, screen) == self._shown:
            return
        self._shown = (cursor, screen)
        column, _, row = cursor.decode("ascii", "replace").partition(" ")
        at = [int(each) if each.isdecimal() else 0 for each in (column, row)]
        for say in list(self._watchers.values()):
            say({"cursor": at}, masked(screen, self._secrets))

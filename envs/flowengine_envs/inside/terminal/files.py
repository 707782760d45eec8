"""The folder through which a shell and its supervisor talk: pipes, and files that tell by name.

A command is read from a pipe named by its number. How it ended is in the name of an empty file that
its last line makes; then that line waits at a gate, a pipe that nobody writes, until it is opened.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Optional

from flowengine_envs.inside.inotify import Folder
from flowengine_envs.inside.loop import Loop


class TerminalFiles:
    """Such a folder, made anew, and made again when programs have removed it.

    Args:
        loop: The loop.
        folder: Where it is.
        happened: Called with what happened to which file.
    """

    def __init__(self, loop: Loop, folder: str, happened: Callable[[int, str], None]) -> None:
        self.folder = folder
        self._draft = f"{folder}.pipe"
        """A pipe that is not there yet, where nobody looks."""
        self._loop = loop
        self._happened = happened
        self._gates: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._events: Optional[Folder] = None  # noqa: UP045
        _remove(folder)
        self.mend()

    def mend(self) -> None:
        """Make what is not there: programs may remove what is theirs to remove.

        Raises:
            OSError: It cannot be made.
        """
        with suppress(FileExistsError):
            os.makedirs(self.folder, mode=0o700)
            self._forget()
            self._events = Folder(self._loop, self.folder, self._happened)
        for name, text in self._texts.items():
            if not os.path.exists(self.path(name)):
                self.write(name, text)
        self.make_gate("exit")

    def _forget(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None
        for file in list(self._gates):
            self.close_gate(file, keep=True)

    def path(self, name: object) -> str:
        """Return where a file is."""
        return f"{self.folder}/{name}"

    def write(self, name: str, text: str) -> None:
        """Write a file that stays."""
        self._texts[name] = text
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def make_pipe(self, name: object) -> int:
        """Make a pipe and return its writing end: who opens it in the folder is the first there."""
        os.mkfifo(self._draft, 0o600)
        fd = os.open(self._draft, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        os.rename(self._draft, self.path(name))
        return fd

    def make_gate(self, name: object) -> str:
        """Make a gate, unless it is there, and return its path."""
        path = self.path(f"{name}.gate")
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return path

    def open_gate(self, name: object) -> None:
        """Let go on who waits at a gate, and who comes to it."""
        file = f"{name}.gate"
        if file not in self._gates:
            with suppress(OSError):
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self._gates[file] = os.open(self.path(file), flags)

    def is_open(self, file: str) -> bool:
        """Return whether a file is a gate that is open."""
        return file in self._gates

    def close_gate(self, file: str, *, keep: bool = False) -> None:
        """Close a gate that is open, and take it away unless it is kept for the next."""
        fd = self._gates.pop(file, None)
        if fd is not None:
            os.close(fd)
            if not keep:
                self.remove(file)

    def close(self) -> None:
        """Close what is open and take the folder away."""
        self._forget()
        _remove(self.folder)

    def remove(self, name: object) -> None:
        """Take a file away, if it is there."""
        with suppress(OSError):
            os.unlink(self.path(name))


def _remove(folder: str) -> None:
    """Remove a folder; what programs have put into it may be too deep, and then stays."""
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)

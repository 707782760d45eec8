"""The directory for communication between a shell and its supervisor: pipes and named files.

A command is read from a pipe named by its number. Its last line creates an empty file whose name
states how it ended. Then that line waits at a gate, a pipe without a writer, until the gate is
opened.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Optional

from flowengine_envs.inside.inotify import WatchedFolder
from flowengine_envs.inside.loop import EventLoop


class TerminalFiles:
    """A new directory of this kind, repaired after programs have removed parts of it.

    Args:
        loop: The loop.
        folder: Its path.
        happened: Called with an event and the name of its file.
    """

    def __init__(self, loop: EventLoop, folder: str, happened: Callable[[int, str], None]) -> None:
        self.folder = folder
        self._draft = f"{folder}.pipe"
        """A pipe under construction, outside the watched directory."""
        self._loop = loop
        self._happened = happened
        self._gates: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._events: Optional[WatchedFolder] = None  # noqa: UP045
        _remove(folder)
        self.mend()

    def mend(self) -> None:
        """Create missing parts, which programs may have removed.

        Raises:
            OSError: One cannot be created.
        """
        with suppress(FileExistsError):
            os.makedirs(self.folder, mode=0o700)
            self._forget()
            self._events = WatchedFolder(self._loop, self.folder, self._happened)
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
        """Return the path of a file."""
        return f"{self.folder}/{name}"

    def write(self, name: str, text: str) -> None:
        """Write a permanent file."""
        self._texts[name] = text
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def make_pipe(self, name: object) -> int:
        """Create a pipe and return its writing end, before any program can open it."""
        os.mkfifo(self._draft, 0o600)
        fd = os.open(self._draft, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        os.rename(self._draft, self.path(name))
        return fd

    def make_gate(self, name: object) -> str:
        """Create a gate unless it exists, and return its path."""
        path = self.path(f"{name}.gate")
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return path

    def open_gate(self, name: object) -> None:
        """Release the processes that wait at a gate, and those that arrive later."""
        file = f"{name}.gate"
        if file not in self._gates:
            with suppress(OSError):
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self._gates[file] = os.open(self.path(file), flags)

    def is_open(self, file: str) -> bool:
        """Return whether a file is an open gate."""
        return file in self._gates

    def close_gate(self, file: str, *, keep: bool = False) -> None:
        """Close an open gate, and remove it unless it is kept for the next command."""
        fd = self._gates.pop(file, None)
        if fd is not None:
            os.close(fd)
            if not keep:
                self.remove(file)

    def close(self) -> None:
        """Close open descriptors and remove the directory."""
        self._forget()
        _remove(self.folder)

    def remove(self, name: object) -> None:
        """Remove a file if it exists."""
        with suppress(OSError):
            os.unlink(self.path(name))


def _remove(folder: str) -> None:
    """Remove a directory. Contents created by programs may be nested too deep, and then stay."""
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)

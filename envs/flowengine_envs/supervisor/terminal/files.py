"""The folder through which a shell and its supervisor talk: pipes, and files that tell by name.

A command is read from a pipe named by its number. How it ended is in the name of an empty file that
its last line makes; then that line waits at a gate, a pipe that nobody writes, until it is opened.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress


class TerminalFiles:
    """Such a folder, made anew.

    Args:
        folder: Where it is.
        draft: Name of a pipe that is not there yet, where nobody looks.
    """

    def __init__(self, folder: str, draft: str) -> None:
        self.folder = folder
        self._draft = draft
        self._gates: dict[str, int] = {}
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder, mode=0o700)

    def path(self, name: object) -> str:
        """Return where a file is."""
        return f"{self.folder}/{name}"

    def write(self, name: str, text: str) -> None:
        """Write a file."""
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
        for file in list(self._gates):
            self.close_gate(file)
        shutil.rmtree(self.folder, ignore_errors=True)

    def remove(self, name: object) -> None:
        """Take a file away, if it is there."""
        with suppress(OSError):
            os.unlink(self.path(name))

"""Checks commands, keys and waits for a shell before anything is typed."""

from __future__ import annotations

import re
from typing import Any

from flowengine.sdk import ValidationError
from flowengine.sdk.texts.sizes import size_text

LARGEST_COMMAND = 4 * 1024 * 1024
LARGEST_SIZE = 10_000
CHECK = ("bash", "--noprofile", "--norc", "-O", "extglob", "-n")
"""Program that reads a command and reports whether its syntax is wrong or unfinished."""
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+( +[A-Za-z0-9_./:=,@%+-]+)*")
"""Commands that are complete unless their first word is a keyword of the language."""
_WORDS = frozenset(
    (
        *("if", "then", "elif", "else", "fi", "case", "esac", "in", "function", "time", "coproc"),
        *("for", "select", "while", "until", "do", "done"),
    )
)
_KEY = re.compile(
    r"(?:[CMS]-)*(?:[ -~]|Up|Down|Left|Right|Home|End|NPage|PPage|PageDown|PageUp|IC|DC|Tab|BTab"
    r"|Enter|Escape|Space|BSpace|F(?:[1-9]|1[0-2]))"
)


def is_plain(command: str) -> bool:
    """Return whether a command's syntax is evidently correct, without running the check."""
    return _PLAIN.fullmatch(command) is not None and not _WORDS & set(command.split())


def checked_command(name: str, command: Any) -> bytes:
    """Return a command as bytes for the shell.

    Args:
        name: Names the environment in messages.
        command: The command to check.

    Raises:
        ValidationError: It is not text, is too long, or contains a null character.
    """
    if not isinstance(command, str):
        raise ValidationError(f"{name}: a command is a text, not {type(command).__name__}")
    if "\0" in command:
        raise ValidationError(f"{name}: a command has a null character: write it to a file")
    data = command.encode()
    if len(data) > LARGEST_COMMAND:
        raise ValidationError(
            f"{name}: a command of {size_text(len(data))}: at most "
            f"{size_text(LARGEST_COMMAND)} are allowed. Put it into a file and source that"
        )
    return data


def check_key(name: str, key: str) -> None:
    """Refuse an unknown key.

    Args:
        name: Names the environment in messages.
        key: The key to check.

    Raises:
        ValidationError: The key is unknown.
    """
    if not _KEY.fullmatch(key):
        raise ValidationError(
            f"{name}: unknown key {key!r}: keys are named as 'Up', 'Enter', 'Tab', 'C-c', 'F1'"
        )


def check_size(name: str, *sizes: int) -> None:
    """Refuse an invalid terminal size.

    Args:
        name: Names the environment in messages.
        sizes: Columns and rows.

    Raises:
        ValidationError: One is not between 1 and 10,000.
    """
    for size in sizes:
        if not 1 <= size <= LARGEST_SIZE:
            raise ValidationError(f"{name}: a terminal has 1 to {LARGEST_SIZE} columns or rows")


def check_wait(name: str, wait: float | None) -> None:
    """Refuse an invalid wait.

    Args:
        name: Names the environment in messages.
        wait: Seconds to check. None: no bound.

    Raises:
        ValidationError: It is negative or infinite.
    """
    if wait is not None and not 0 <= wait < float("inf"):
        raise ValidationError(f"{name}: wait must be a number that is not negative, not {wait}")

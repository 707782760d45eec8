"""Checks of paths from a caller."""

from __future__ import annotations

import os
import stat

from flowengine.errors import NotFound, UsageError


def check_path(what: str, path: str) -> None:
    """Check that a path can be encoded as UTF-8, as the journal requires.

    Raises:
        UsageError: It cannot.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise UsageError(f"{what} '{shown}' is not valid UTF-8") from None


def check_no_pipe(path: str | os.PathLike[str]) -> None:
    """Check that a file is not a named pipe, which may never end.

    A pipe of a shell, `<(…)`, is allowed.

    Raises:
        NotFound: It is a named pipe.
        OSError: Its type cannot be determined.
    """
    is_pipe = stat.S_ISFIFO(os.stat(path).st_mode)
    if is_pipe and os.path.exists(os.path.realpath(path)):  # a shell's pipe has no name
        raise NotFound(f"cannot read {os.fspath(path)}: it is a pipe", hint="give a file")

"""Checks of paths that a caller gives."""

from __future__ import annotations

import os
import stat

from flowengine.errors import NotFound, UsageError


def check_path(what: str, path: str) -> None:
    """Check that a path can be written down: what the journal has is UTF-8.

    Raises:
        UsageError: It cannot.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise UsageError(f"{what} '{shown}' is not valid UTF-8") from None


def check_no_pipe(path: str | os.PathLike[str]) -> None:
    """Check that a file is no named pipe, which may never end. One of a shell, `<(…)`, may be read.

    Raises:
        NotFound: It is one.
        OSError: It cannot be looked at.
    """
    is_pipe = stat.S_ISFIFO(os.stat(path).st_mode)
    if is_pipe and os.path.exists(os.path.realpath(path)):  # that of a shell has no name
        raise NotFound(f"cannot read {os.fspath(path)}: it is a pipe", hint="give a file")

"""The entry point of the installed program `flowengine`."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn

from flowengine.cli.process import ProcessEnd
from flowengine.cli.program import INTERRUPTED, main
from flowengine.cli.terminal.output import err

UNEXPECTED = 70
NEW_OBJECTS = 50_000
"""Number of new containers that starts a search for cyclic garbage. A start creates half as
many, and all of them stay."""


def script() -> NoReturn:
    """Run the command line of this process, and exit without cleaning up."""
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - kept
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    ProcessEnd.ends_at_once = True
    try:
        code = main()
    except SystemExit:
        raise
    except BaseException as error:
        # A library in Rust panics if its import is interrupted, which is no `Exception`.
        code = _unexpected(error) if isinstance(error, Exception) else INTERRUPTED
    with suppress(OSError, ValueError):  # its reader may be gone
        sys.stderr.flush()
    os._exit(code)


def _unexpected(error: Exception) -> int:
    """Report an unexpected error, and return the exit code."""
    import logging
    import traceback

    described = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    err(f"error: unexpected {described}")
    if isinstance(error, MemoryError):
        err("  there is not enough memory")
    elif logging.getLogger().isEnabledFor(logging.DEBUG):
        for part in traceback.format_exception(error):
            for line in part.rstrip().split("\n"):
                err(line)
    else:
        err("  this is a bug: please report it, with the traceback that --log-level debug shows")
    return UNEXPECTED

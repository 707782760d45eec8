"""A function that crashes its process, which loads nothing but this file."""

from __future__ import annotations

import os


def crash(how: str) -> int:
    """Crash, or return a number."""
    if how == "segfault":
        import ctypes

        ctypes.string_at(0)
    if how == "exit":
        os._exit(9)
    if how == "raise":
        raise ValueError("inside")
    if how == "lambda":
        return lambda: None  # type: ignore[return-value]
    return os.getpid()

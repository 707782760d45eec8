"""Isolates a sandbox that shares the machine's network from the machine's abstract sockets.

Abstract sockets have no file, and belong to a network namespace. A server on this machine would see
the user of this process as the peer, not the user inside: for root's sandboxes, root. Landlock
blocks connections to abstract sockets whose servers run outside (Linux 6.12 or later).
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

_CREATE, _VERSION = 444, 1
"""Numbers of `landlock_create_ruleset` and its flag, the same on all architectures."""
_SCOPES = 6
"""The first version with this isolation."""

SCRIPT = """\
import ctypes, os, sys
system = ctypes.CDLL(None, use_errno=True)
rules = (ctypes.c_uint64 * 3)(0, 0, 1)  # LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
number = system.syscall(444, rules, ctypes.sizeof(rules), 0)
if number < 0 or system.syscall(446, number, 0):
    sys.exit("Landlock: " + os.strerror(ctypes.get_errno()))
os.close(number)
"""
"""Isolates itself and its child processes. It must have set `no_new_privs` before."""


@lru_cache
def keeps_sockets_apart() -> bool:
    """Return whether the kernel supports it."""
    version: int = ctypes.CDLL(None, use_errno=True).syscall(_CREATE, None, 0, _VERSION)
    return version >= _SCOPES

"""Keeping the abstract sockets of a machine from a sandbox that shares its network.

They have names of their own, in no file system: they belong to the network. Whoever serves one on
this machine would see the user of this process at the other end, though not one inside: of root's
sandboxes, root. Landlock keeps sockets apart whose servers run outside (Linux 6.12 or later).
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

_CREATE, _VERSION = 444, 1
"""Numbers of `landlock_create_ruleset` and of its flag; calls as new have one number everywhere."""
_SCOPES = 6
"""The first version that keeps them apart."""

SCRIPT = """\
import ctypes, os, sys
system = ctypes.CDLL(None, use_errno=True)
rules = (ctypes.c_uint64 * 3)(0, 0, 1)  # LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
number = system.syscall(444, rules, ctypes.sizeof(rules), 0)
if number < 0 or system.syscall(446, number, 0):
    sys.exit("Landlock: " + os.strerror(ctypes.get_errno()))
os.close(number)
"""
"""Does so for itself and what it starts; it can gain no rights by then (`no_new_privs`)."""


@lru_cache
def keeps_sockets_apart() -> bool:
    """Return whether the kernel can."""
    version: int = ctypes.CDLL(None, use_errno=True).syscall(_CREATE, None, 0, _VERSION)
    return version >= _SCOPES

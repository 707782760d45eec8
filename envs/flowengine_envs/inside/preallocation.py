"""Prevents programs from reserving disk space without writing it (`fallocate`).

Writing takes time, so the quota is enforced before usage grows far. Reserving space takes no time
and can exceed the quota many times in one moment. A program whose reservation fails writes instead,
as on file systems without `fallocate`. Freeing space is allowed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from contextlib import suppress

_FALLOCATE = {"x86_64": (0xC000003E, 285), "aarch64": (0xC00000B7, 47)}
"""Machine → the kernel's constant for it, and the number of the call."""
_GIVES_BACK = 0x02 | 0x08
"""Flags of `fallocate` that free space: make a hole, or remove a range."""
_GET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 39, 22, 2
_LOAD, _EQUAL, _HAS_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _SECOND_ARGUMENT = 0, 4, 24
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def deny() -> None:
    """Deny it to this process and its child processes, if the kernel supports that.

    The kernel requires `no_new_privs`, which is not set outside a sandbox.
    """
    machine = os.uname().machine
    if machine not in _FALLOCATE:
        return
    architecture, number = _FALLOCATE[machine]
    # Each test has the numbers of steps to skip if it is met and if it is not.
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 3, number),
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_HAS_BITS, 1, 0, _GIVES_BACK),
        (_RETURN, 0, 0, _ERROR | errno.EOPNOTSUPP),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    with suppress(AttributeError):  # a C library without prctl
        prctl = ctypes.CDLL(None).prctl
        if prctl(_GET_NO_NEW_PRIVILEGES, 0, 0, 0, 0) == 1:
            prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER), ctypes.c_char_p(program), 0, 0)

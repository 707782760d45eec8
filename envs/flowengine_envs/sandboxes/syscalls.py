"""System call filter (seccomp) for programs in a namespace.

Namespaces isolate files, processes and networks, but some interfaces bypass them. Keyrings belong
to the user in any namespace, and many kernel interfaces that ordinary programs never need have had
severe vulnerabilities. The filter therefore allows a list of the calls that ordinary programs need,
similar to that of containers, and denies everything else, including calls added by later kernels.

A denied call fails with `EPERM`. A call newer than the list, or with another calling convention (32
bits), fails with `ENOSYS`, so that programs fall back to an older one. The only socket families are
local, internet and the routing table.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_ALLOWED = Path(__file__).with_name("allowed_syscalls.toml")
_NEWEST = 469
"""The highest call number assigned when the list was made."""
_CLONE, _CLONE3, _PRLIMIT, _SOCKET, _SOCKETPAIR = (
    *((56, 220), (435, 435), (302, 261), (41, 198), (53, 199)),
)
"""Calls that are filtered by their arguments: numbers on x86_64 and on aarch64."""
_NAMESPACES = 0x7E020000
"""Flags of `clone` that create namespaces."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_ROUTE = 0
"""The netlink protocol for addresses and routes, with which programs list their own."""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine → column of the numbers, and the kernel's constant for it."""

_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 32
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NO_RIGHT = _ERROR | errno.EPERM
_NOT_THERE = _ERROR | errno.ENOSYS


def held() -> bool:
    """Return whether this machine supports the filter."""
    machine = platform.machine()
    return machine in _ARCHITECTURES and os.path.exists("/proc/sys/kernel/seccomp")


@lru_cache
def program() -> bytes:
    """Return the filter for this machine, in the kernel's format."""
    column, architecture = _ARCHITECTURES[platform.machine()]
    # Each test skips the return that follows it unless it is met.
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture, met=1),
        _step(_RETURN, _NOT_THERE),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _NEWEST + 1, unmet=1),
        _step(_RETURN, _NOT_THERE),
        # Its flags are in memory, which a filter cannot read. The C library then uses `clone`.
        *_judged(_CLONE3[column], [_step(_RETURN, _NOT_THERE)]),
        *_judged(_CLONE[column], _CLONES),
        *_judged(_PRLIMIT[column], _LIMITS),
        *_judged(_SOCKET[column], _SOCKETS),
        *_judged(_SOCKETPAIR[column], _PAIRS),
    ]
    for first, last in _ranges(column):
        steps += [
            _step(_AT_LEAST, last + 1, met=3),
            _step(_AT_LEAST, first, unmet=1),
            _step(_RETURN, _ALLOW),
            _step(_RETURN, _NO_RIGHT),
        ]
    return b"".join([*steps, _step(_RETURN, _NO_RIGHT)])


def _ranges(column: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of each range of allowed calls, in ascending order."""
    numbers = tomllib.loads(_ALLOWED.read_text(encoding="utf-8")).values()
    allowed = sorted(each[column] for each in numbers if each[column] >= 0)
    first = last = allowed[0]
    for number in allowed[1:]:
        if number > last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


def _judged(number: int, steps: list[bytes]) -> list[bytes]:
    """Return steps that apply to one call only. They end with a return."""
    return [_step(_EQUAL, number, unmet=len(steps)), *steps]


def _step(code: int, value: int, *, met: int = 0, unmet: int = 0) -> bytes:
    """Return one instruction, with the numbers of steps to skip if its test is met or not."""
    return struct.pack("=HBBI", code, met, unmet, value)


_CLONES = [
    _step(_LOAD, _FIRST_ARGUMENT),
    _step(_HAS_BITS, _NAMESPACES, unmet=1),
    _step(_RETURN, _NO_RIGHT),
    _step(_RETURN, _ALLOW),
]
_LIMITS = [
    # Sets limits of any process of the same user. The kernel kills a process that exceeds them,
    # even the first one.
    _step(_LOAD, _FIRST_ARGUMENT),
    _step(_EQUAL, 0, met=4),  # its own limits
    _step(_LOAD, _THIRD_ARGUMENT),
    _step(_EQUAL, 0, unmet=3),
    _step(_LOAD, _THIRD_ARGUMENT + 4),
    _step(_EQUAL, 0, unmet=1),  # null pointer: it only reads
    _step(_RETURN, _ALLOW),
    _step(_RETURN, _NO_RIGHT),
]
_SOCKETS = [
    _step(_LOAD, _FIRST_ARGUMENT),
    _step(_EQUAL, _UNIX, met=5),
    _step(_EQUAL, _INET, met=4),
    _step(_EQUAL, _INET6, met=3),
    _step(_EQUAL, _NETLINK, unmet=3),
    _step(_LOAD, _THIRD_ARGUMENT),
    _step(_EQUAL, _ROUTE, unmet=1),
    _step(_RETURN, _ALLOW),
    _step(_RETURN, _NO_RIGHT),
]
_PAIRS = [
    _step(_LOAD, _FIRST_ARGUMENT),
    _step(_EQUAL, _UNIX, unmet=1),
    _step(_RETURN, _ALLOW),
    _step(_RETURN, _NO_RIGHT),
]

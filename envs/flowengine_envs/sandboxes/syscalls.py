"""Which calls of the system programs in a namespace can make: a filter, as the kernel runs it.

Namespaces take files, processes and networks away, but some doors lead past them: keyrings belong
to the user whatever the namespace, and much of the kernel that ordinary programs never need has had
the gravest faults. So there is a list of what ordinary programs need, much the same as containers
are given, and the rest is denied: also what a later kernel adds. A call that is denied answers
`EPERM`; one that is newer than the list, or by another way of calling (32 bits), is not there
(`ENOSYS`), and programs use an older one. Of sockets, only the families of local programs, of the
internet and of the routing table can be had.
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
"""The last number that was given out when the list was made."""
_CLONE, _CLONE3, _PRLIMIT, _SOCKET, _SOCKETPAIR = (
    *((56, 220), (435, 435), (302, 261), (41, 198), (53, 199)),
)
"""Calls that are judged by their arguments: numbers on x86_64 and on aarch64."""
_NAMESPACES = 0x7E020000
"""Flags of `clone` that make namespaces."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_ROUTE = 0
"""The protocol of netlink for addresses and routes, by which programs list their own."""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine → column of the numbers, and what the kernel calls it."""

_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 32
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NO_RIGHT = _ERROR | errno.EPERM
_NOT_THERE = _ERROR | errno.ENOSYS


def held() -> bool:
    """Return whether this machine can run the filter."""
    machine = platform.machine()
    return machine in _ARCHITECTURES and os.path.exists("/proc/sys/kernel/seccomp")


@lru_cache
def program() -> bytes:
    """Return the filter for this machine, as the kernel reads it."""
    column, architecture = _ARCHITECTURES[platform.machine()]
    # Each test skips the answer behind it unless it is met.
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture, met=1),
        _step(_RETURN, _NOT_THERE),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _NEWEST + 1, unmet=1),
        _step(_RETURN, _NOT_THERE),
        # Its flags are in memory, where a filter cannot look: the C library then takes `clone`.
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
    """Yield the first and the last of numbers that are allowed one after the other, ascending."""
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
    """Return steps that are taken for one call only; they end with answers."""
    return [_step(_EQUAL, number, unmet=len(steps)), *steps]


def _step(code: int, value: int, *, met: int = 0, unmet: int = 0) -> bytes:
    """Return one instruction, with how many it skips if its test is met or not."""
    return struct.pack("=HBBI", code, met, unmet, value)


_CLONES = [
    _step(_LOAD, _FIRST_ARGUMENT),
    _step(_HAS_BITS, _NAMESPACES, unmet=1),
    _step(_RETURN, _NO_RIGHT),
    _step(_RETURN, _ALLOW),
]
_LIMITS = [
    # Sets limits of any process of the same user; the kernel kills for them, even the first one.
    _step(_LOAD, _FIRST_ARGUMENT),
    _step(_EQUAL, 0, met=4),  # its own limits
    _step(_LOAD, _THIRD_ARGUMENT),
    _step(_EQUAL, 0, unmet=3),
    _step(_LOAD, _THIRD_ARGUMENT + 4),
    _step(_EQUAL, 0, unmet=1),  # no address: it only asks
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

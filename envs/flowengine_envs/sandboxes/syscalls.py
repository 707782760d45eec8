"""Isolation by the kernel: system calls, abstract sockets, separate networks, shares of a user."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from flowengine.sdk.environments import Sandbox
from flowengine_envs.network.egress import Egress

# System call filter (seccomp) for programs in a namespace.
#
# Namespaces isolate files, processes and networks, but some interfaces bypass them. Keyrings
# belong to the user in any namespace, and many kernel interfaces that ordinary programs never need
# have had severe vulnerabilities. The filter therefore allows a list of the calls that ordinary
# programs need, similar to that of containers, and denies everything else, including calls added
# by later kernels.
#
# A denied call fails with `EPERM`. A call newer than the list, or with another calling convention
# (32 bits), fails with `ENOSYS`, so that programs fall back to an older one. The only socket
# families are local, internet and the routing table.

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


# Isolates a sandbox that shares the machine's network from the machine's abstract sockets.
#
# Abstract sockets have no file, and belong to a network namespace. A server on this machine would
# see the user of this process as the peer, not the user inside: for root's sandboxes, root.
# Landlock blocks connections to abstract sockets whose servers run outside (Linux 6.12 or later).

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


# Sandboxes with separate networks. Only this process forwards connections out of them.


class OwnNetwork(Sandbox):
    """A sandbox whose outgoing connections are those of `_egress`, which subclasses create."""

    _egress: Egress

    @property
    def forwards(self) -> Sequence[Mapping[str, Any]]:
        """The connections that the supervisor forwards."""
        return self._egress.forwards

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables that name the proxy, if there is one."""
        return self._egress.variables

    @property
    def proxies(self) -> Sequence[str]:
        """Addresses of its proxies inside."""
        return self._egress.proxies

    def refused_connections(self, after: int = 0, proxy: int = 0) -> Sequence[tuple[int, str]]:
        """Return the connections that a proxy refused."""
        return self._egress.refused(after, proxy)

    def judge_connections(self, judge: Callable[[str, int], str] | None, proxy: int = 0) -> None:
        """Let a proxy check each connection with a function."""
        self._egress.judge(proxy, judge)


# Kernel resources that are counted per user and therefore shared by all of a user's sandboxes.
#
# A second user namespace around the sandbox limits it to a share of the user's inotify instances
# and watches, pending signals, and bytes in message queues. Changing the settings needs a right
# that no program in the sandbox has.

_PART = 8
"""A sandbox receives one part in this many."""
_COUNTED = {
    "user/max_inotify_instances": "fs/inotify/max_user_instances",
    "user/max_inotify_watches": "fs/inotify/max_user_watches",
}
"""Setting of a user namespace → the machine-wide setting."""

SHARE = """\
import ctypes, os, resource, sys
settings, part, ready = sys.argv[1].split(), int(sys.argv[2]), int(sys.argv[3])
for name, value in (setting.split("=") for setting in settings):
    try:
        with open("/proc/sys/" + name, "w") as setting:
            setting.write(value)
    except OSError:  # in a container these files may be closed
        if not name.startswith("user/"):
            raise
for which in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE):
    soft, hard = resource.getrlimit(which)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(which, (soft // part, soft // part))
ctypes.CDLL(None).prctl(47, 4, 0, 0, 0)  # PR_CAP_AMBIENT_CLEAR_ALL: the program has no rights
if ready >= 0:
    try:
        os.write(ready, b"1")
    except BrokenPipeError:  # on a busy machine the engine may no longer wait for it
        pass
    os.close(ready)
os.execv(sys.argv[4], sys.argv[4:])
"""
"""Applies the settings of its namespaces, and then becomes the program after them.

It parses them without `json`, whose import takes half as long as Python's startup.
"""


def share_arguments(more: Mapping[str, str], ready: int = -1) -> list[str]:
    """Return the arguments of the script `SHARE`.

    Args:
        more: Further settings, below `/proc/sys`.
        ready: A descriptor to which it writes a byte when finished. -1: none.
    """
    settings = {**_shares(), **more}
    written = " ".join(f"{name}={value}" for name, value in settings.items())
    return [written, str(_PART), str(ready)]


def _shares() -> dict[str, str]:
    parts = {}
    for setting, machine in _COUNTED.items():
        try:
            there = int(Path("/proc/sys", machine).read_text())
        except (OSError, ValueError):
            continue
        parts[setting] = str(max(1, there // _PART))
    return parts

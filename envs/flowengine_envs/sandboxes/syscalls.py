"""Which calls of the system programs in a namespace cannot make: a filter, as the kernel runs it.

Namespaces take files, processes and networks away, but some doors lead past them: keyrings belong
to the user whatever the namespace, and much of the kernel that ordinary programs never need has had
the gravest faults. The list is of what containers are denied everywhere, too. A call that is denied
answers `EPERM`; one by another way of calling (32 bits) is not there (`ENOSYS`).
"""

from __future__ import annotations

import errno
import os
import platform
import struct

_DENIED: dict[str, tuple[int | None, int | None]] = {
    # Keyrings, which no namespace separates
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "request_key": (249, 218),
    # Namespaces and mounts
    "chroot": (161, 51),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "pivot_root": (155, 41),
    "setns": (308, 268),
    "umount2": (166, 39),
    "unshare": (272, 97),
    # Programs for the kernel, and other wide doors into it
    "bpf": (321, 280),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    # Other processes, and where memory is
    "get_mempolicy": (239, 236),
    "kcmp": (312, 272),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    # The machine
    "_sysctl": (156, None),
    "acct": (163, 89),
    "io_setup": (206, 0),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "get_kernel_syms": (177, None),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "sysfs": (139, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "vhangup": (153, 58),
}
"""Name → its number on x86_64 and on aarch64."""
_CLONE3 = 435
_NAMESPACES = 0x7E020000
"""Flags of `clone` that make namespaces."""
_VSOCK = 40
"""Sockets that lead out of a virtual machine: no network namespace separates them."""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine → column of the numbers, and what the kernel calls it."""
_X32 = 0x40000000
"""Bit of the numbers of another way of calling, on x86_64."""

_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 32
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NO_RIGHT = _ERROR | errno.EPERM
_NOT_THERE = _ERROR | errno.ENOSYS

_DENIED_WITH = (
    ((56, 220), _HAS_BITS, _NAMESPACES),  # clone
    ((41, 198), _EQUAL, _VSOCK),  # socket
)
"""Calls that are denied with some first arguments: numbers, how it is looked at, what for."""
_PRLIMIT = (302, 261)
"""Sets limits of any process of the same user; the kernel kills for them, even the first one."""


def held() -> bool:
    """Return whether this machine can run the filter."""
    machine = platform.machine()
    return machine in _ARCHITECTURES and os.path.exists("/proc/sys/kernel/seccomp")


def denied() -> dict[str, int]:
    """Return what is denied on this machine: name → number."""
    column, _ = _ARCHITECTURES[platform.machine()]
    return {
        name: number for name, numbers in _DENIED.items() if (number := numbers[column]) is not None
    }


def program() -> bytes:
    """Return the filter for this machine, as the kernel reads it."""
    column, architecture = _ARCHITECTURES[platform.machine()]
    # Each test skips the answer behind it unless it is met.
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture, met=1),
        _step(_RETURN, _NOT_THERE),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32, unmet=1),
        _step(_RETURN, _NOT_THERE),
        # Its flags are in memory, where a filter cannot look: the C library then takes `clone`.
        _step(_EQUAL, _CLONE3, unmet=1),
        _step(_RETURN, _NOT_THERE),
    ]
    for number in sorted(denied().values()):
        steps += [_step(_EQUAL, number, unmet=1), _step(_RETURN, _NO_RIGHT)]
    for numbers, test, value in _DENIED_WITH:
        steps += [
            _step(_EQUAL, numbers[column], unmet=4),
            _step(_LOAD, _FIRST_ARGUMENT),
            _step(test, value, unmet=1),
            _step(_RETURN, _NO_RIGHT),
            _step(_RETURN, _ALLOW),
        ]
    steps += [
        _step(_EQUAL, _PRLIMIT[column], unmet=6),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_EQUAL, 0, met=4),  # its own limits
        _step(_LOAD, _THIRD_ARGUMENT),
        _step(_EQUAL, 0, unmet=3),
        _step(_LOAD, _THIRD_ARGUMENT + 4),
        _step(_EQUAL, 0, unmet=1),  # no address: it only asks
        _step(_RETURN, _ALLOW),
        _step(_RETURN, _NO_RIGHT),
    ]
    return b"".join(steps)


def _step(code: int, value: int, *, met: int = 0, unmet: int = 0) -> bytes:
    """Return one instruction, with how many it skips if its test is met or not."""
    return struct.pack("=HBBI", code, met, unmet, value)

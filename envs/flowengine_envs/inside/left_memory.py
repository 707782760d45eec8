"""Frees shared memory and messages (System V) that no living process has a part in.

They outlast the process that made them and count towards the memory limit. If that process was
killed, no other one may know of them, and everything that starts would be killed, too.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

from flowengine_envs.inside import killing, system

_REMOVE = 0
"""IPC_RMID. The kernel removes shared memory when the last process that has it ends."""
_KINDS = {"shm": ("shmid", ("cpid", "lpid")), "msg": ("msqid", ("lspid", "lrpid"))}
"""Name → column with the id, columns with processes."""


def free() -> None:
    """Free it if all processes belong to this sandbox. Elsewhere it may be another program's."""
    if not killing.has_own_processes():
        return
    library = ctypes.CDLL(None)
    for kind, (id, processes) in _KINDS.items():
        with suppress(OSError), open(f"/proc/sysvipc/{kind}") as file:
            names = file.readline().split()
            for line in file:
                row = dict(zip(names, map(int, line.split())))  # noqa: B905 - Python 3.9
                if not any(system.process(row[name]) for name in processes):
                    getattr(library, f"{kind}ctl")(row[id], _REMOVE, None)

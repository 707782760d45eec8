"""Resources of the kernel that are counted by user, and so are shared by all of a user's sandboxes.

A sandbox gets a user namespace around its own, which holds it to a part of what the user may have:
of the instances and watches of inotify, of signals that wait, and of bytes in message queues. The
settings need a right that nothing in the sandbox has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PART = 8
"""A sandbox gets one part of so many."""
_COUNTED = {
    "user/max_inotify_instances": "fs/inotify/max_user_instances",
    "user/max_inotify_watches": "fs/inotify/max_user_watches",
}
"""Setting of a user namespace → the machine's setting of the same."""

SCRIPT = """\
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
ctypes.CDLL(None).prctl(47, 4, 0, 0, 0)  # PR_CAP_AMBIENT_CLEAR_ALL: what follows has no rights
if ready >= 0:
    try:
        os.write(ready, b"1")
    except BrokenPipeError:  # on a busy machine nobody may wait for it any more
        pass
    os.close(ready)
os.execv(sys.argv[4], sys.argv[4:])
"""
"""Makes the settings of the namespaces that it is in, and becomes the program after them. It reads
them without `json`, which takes half as long to load as Python takes to start."""


def arguments(more: Mapping[str, str], ready: int = -1) -> list[str]:
    """Return the arguments of the script.

    Args:
        more: Further settings, below `/proc/sys`.
        ready: A descriptor to which it writes a byte when it is done; -1: none.
    """
    settings = {**_parts(), **more}
    written = " ".join(f"{name}={value}" for name, value in settings.items())
    return [written, str(PART), str(ready)]


def _parts() -> dict[str, str]:
    parts = {}
    for setting, machine in _COUNTED.items():
        try:
            there = int(Path("/proc/sys", machine).read_text())
        except (OSError, ValueError):
            continue
        parts[setting] = str(max(1, there // PART))
    return parts

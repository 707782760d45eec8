"""Kernel resources that are counted per user and therefore shared by all of a user's sandboxes.

A second user namespace around the sandbox limits it to a share of the user's inotify instances and
watches, pending signals, and bytes in message queues. Changing the settings needs a right that no
program in the sandbox has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PART = 8
"""A sandbox receives one part in this many."""
_COUNTED = {
    "user/max_inotify_instances": "fs/inotify/max_user_instances",
    "user/max_inotify_watches": "fs/inotify/max_user_watches",
}
"""Setting of a user namespace → the machine-wide setting."""

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


def arguments(more: Mapping[str, str], ready: int = -1) -> list[str]:
    """Return the arguments of the script.

    Args:
        more: Further settings, below `/proc/sys`.
        ready: A descriptor to which it writes a byte when finished. -1: none.
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

"""Accounts in a container: its user's name and rights, and the owner of its files."""

from __future__ import annotations

import os
import stat
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Request, Spec
from flowengine.sdk.processes import make_scratch, remove_scratch
from flowengine_envs.link.call_limits import DISK, MEMORY, PROCESSES
from flowengine_envs.network.egress import destinations
from flowengine_envs.sandboxes.docker import library
from flowengine_envs.sandboxes.processes import cpus

# Ownership of the files of containers.
#
# Programs in a container run as the user of this process, so that the user owns their files. If
# this process is root, they run as an ordinary user instead: the engine's own directories are lent
# to that user while containers run, and taken back afterwards. Directories of users keep their
# owners.

_ORDINARY = 1000


def user() -> int:
    """Return the user id of programs in containers, which is never root's."""
    return os.getuid() or _ORDINARY


def group() -> int:
    """Return the group id of programs in containers, which is never root's."""
    return os.getgid() or _ORDINARY


def writable_inside(folder: Path) -> bool:
    """Return whether root's container programs may write a directory, by its owner and mode."""
    if os.getuid() != 0:
        return True
    status = os.stat(folder)
    if status.st_uid == user():
        return bool(status.st_mode & stat.S_IWUSR)
    bit = stat.S_IWGRP if status.st_gid == group() else stat.S_IWOTH
    return bool(status.st_mode & bit)


_lent: Counter[Path] = Counter()
_not_lent: dict[Path, set[tuple[int, int]]] = {}
"""Entries that the ordinary user owned before a directory was lent: device and inode."""
_alone = threading.Lock()
_DEEPEST = 500
"""Directories inside one another whose entries change their owner."""


def lend(folders: Iterable[Path]) -> None:
    """Allow root's containers to write root's files in directories.

    Args:
        folders: On this machine. Each may be lent several times.
    """
    if os.getuid() == 0:
        with _alone:
            for folder in folders:
                if not _lent[folder]:
                    _not_lent[folder] = {
                        (info.st_dev, info.st_ino)
                        for _, _, info in _entries(folder)
                        if (info.st_uid, info.st_gid) == (user(), group())
                    }
                _lent[folder] += 1
                _chown(folder, (0, 0), (user(), group()))


def take_back(folders: Iterable[Path], *, lent: int = 1) -> None:
    """Make root the owner of files written by root's containers, once the last one has ended.

    Files that the container user owned before keep their owner: a workspace can be a directory of
    that user.

    Args:
        folders: On this machine. Missing ones are skipped.
        lent: How often this process lent them. 0: a dead one did.
    """
    if os.getuid() == 0:
        with _alone:
            for folder in folders:
                _lent[folder] -= lent
                if _lent[folder] <= 0:
                    del _lent[folder]
                    _chown(folder, (user(), group()), (0, 0), _not_lent.pop(folder, set()))


def _chown(
    folder: Path,
    old: tuple[int, int],
    new: tuple[int, int],
    but: Iterable[tuple[int, int]] = (),
) -> None:
    """Change the owner of entries, except for given ones and new entries in their directories."""
    others = set(but)
    for name, above, info in _entries(folder):
        identity, parent = (info.st_dev, info.st_ino), os.fstat(above)
        if (info.st_uid, info.st_gid) != old or identity in others:
            continue
        if (parent.st_dev, parent.st_ino) in others:
            others.add(identity)
        else:
            with suppress(OSError):
                os.chown(name, *new, dir_fd=above, follow_symlinks=False)


def _entries(
    folder: Path | str, above: int | None = None, depth: int = _DEEPEST
) -> Iterator[tuple[str, int, os.stat_result]]:
    """Yield each entry of a directory: its name, the directory's descriptor, and its status.

    No link is followed, even if programs replace entries meanwhile. What cannot be read is skipped.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except OSError:
        return
    try:
        for name in (".", *os.listdir(fd)):
            with suppress(OSError):
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                yield name, fd, status
                if name != "." and depth and stat.S_ISDIR(status.st_mode):
                    yield from _entries(name, fd, depth - 1)
    finally:
        os.close(fd)


# Rights of a container, which are as limited as possible.

HOME = "/home/flow"
SCRATCH = 64 * 1024 * 1024
"""Bytes of `/tmp`, and of a temporary home directory, if the spec sets no `disk`."""
SHARED = 64 * 1024 * 1024
"""Bytes of `/dev/shm`."""
_PERIOD = 100_000
"""Scheduling period for CPU time, in microseconds."""


def rights(
    request: Request, mounts: Sequence[tuple[str, Path, bool]], own_processes: int
) -> dict[str, Any]:
    """Return the container settings that limit its rights.

    Args:
        request: The request to open the environment.
        mounts: The mounts: path inside, directory, and whether it is writable.
        own_processes: Processes that it needs in addition to the limit.

    Returns:
        The daemon's host configuration.
    """
    limits = request.limits
    memory = limits.memory or MEMORY
    # Files in memory must leave room: when memory is full, the kernel kills the programs.
    scratch = min(limits.disk or SCRATCH, memory // 4)
    lasting = any(inside == HOME for inside, _, _ in mounts)
    size = limits.disk or DISK
    owner = f"uid={user()},gid={group()}"
    home = {} if lasting else {HOME: f"size={scratch},mode=0700,exec,{owner}"}
    # The daemon refuses more CPUs than its machine has, which may be fewer than here.
    processors = {"cpu_period": _PERIOD, "cpu_quota": int(cpus() * _PERIOD)}
    if limits.cpus is not None:
        processors = {"nano_cpus": int(limits.cpus * 1e9)}
    devices = None
    if gpus := getattr(request.config, "gpus", None):
        which = {"count": -1} if gpus == "all" else {"device_ids": gpus.split(",")}
        devices = [library.DeviceRequest(**which, capabilities=[["gpu"]])]
    return {
        "mounts": [
            library.Mount(inside, str(path), "bind", read_only=not writable)
            for inside, path, writable in mounts
        ],
        "read_only": True,
        "tmpfs": {"/tmp": f"size={scratch},mode=1777", **home},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "ipc_mode": "private",
        "shm_size": min(SHARED, memory // 8),
        "mem_limit": memory,
        "memswap_limit": memory,
        "pids_limit": (limits.processes or PROCESSES) + own_processes,
        **processors,
        "ulimits": [
            library.Ulimit(name="core", soft=0, hard=0),
            library.Ulimit(name="fsize", soft=size, hard=size),
        ],
        "device_requests": devices,
    }


def network(spec: Spec) -> str:
    """Return Docker's name for the requested network.

    Args:
        spec: The environment's spec.

    Returns:
        `none`, `bridge` or `host`.

    Raises:
        EnvironmentUnavailable: Policy and configuration contradict each other, or an allowed place
            cannot be made reachable inside.
    """
    named = getattr(spec.config, "network", None)
    wanted = spec.policy.network
    destinations(spec)
    if named not in {None, "none"} and not (wanted is None or wanted == "any"):
        rule = "forbids the network" if wanted == "none" else "names places of the network"
        raise EnvironmentUnavailable(f"{spec}: its policy {rule}, and config.network is {named}")
    return str(named or ("bridge" if wanted == "any" else "none"))


# Adds a name for a container's user, without which `whoami`, `ssh` and other programs fail.
#
# Containers run as the user of this process (see `ownership`), which images do not list.


class Lists:
    """The lists shown to one container, in a directory that is removed with it."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def mounts(self) -> list[Any]:
        """Write lists with the user and group of containers, and return the mounts for them."""
        self._folder = make_scratch()
        self._folder.chmod(0o711)  # A daemon with user mapping accesses it as another user.
        users = (
            "root:x:0:0:root:/root:/bin/bash\n"
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            f"flow:x:{user()}:{group()}::{HOME}:/bin/sh\n"
        )
        groups = f"root:x:0:\ntty:x:5:\nstaff:x:50:\nnogroup:x:65534:\nflow:x:{group()}:\n"
        mounts = []
        for path, text in (("/etc/passwd", users), ("/etc/group", groups)):
            file = self._folder / Path(path).name
            file.write_text(text, encoding="utf-8")
            file.chmod(0o644)
            mounts.append(library.Mount(path, str(file), "bind", read_only=True))
        return mounts

    def are_unseen(self, message: str) -> bool:
        """Return whether a daemon reports them as missing: it may have its own temporary files."""
        return self._folder is not None and str(self._folder) in message

    def close(self) -> None:
        """Remove the directory."""
        if self._folder is not None:
            remove_scratch(self._folder)
            self._folder = None

"""Accounts in a container: its user's name and rights, and the owner of its files."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Request, Spec
from flowengine.sdk.processes import make_scratch, remove_scratch
from flowengine_envs.link.call_limits import DISK, MEMORY, PROCESSES
from flowengine_envs.network.egress import destinations
from flowengine_envs.sandboxes.docker import library
from flowengine_envs.sandboxes.docker.image import description
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


def lend(folders: Iterable[Path]) -> None:
    """Allow root's containers to write root's files in directories.

    Args:
        folders: On this machine. Each may be lent several times.
    """
    if os.getuid() == 0:
        with _alone:
            for folder in folders:
                if not _lent[folder]:
                    _not_lent[folder] = _owned(folder, (user(), group()))
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


def _owned(folder: Path, owner: tuple[int, int]) -> set[tuple[int, int]]:
    """Return the entries that belong to an owner."""
    ids = set()

    def note(name: str, above: int, info: os.stat_result) -> None:
        if (info.st_uid, info.st_gid) == owner:
            ids.add((info.st_dev, info.st_ino))

    _visit(folder, note)
    return ids


def _chown(
    folder: Path,
    old: tuple[int, int],
    new: tuple[int, int],
    but: Iterable[tuple[int, int]] = (),
) -> None:
    """Change the owner of entries, except for given ones and new entries in their directories."""
    others = set(but)

    def change(name: str, above: int, info: os.stat_result) -> None:
        identity, parent = (info.st_dev, info.st_ino), os.fstat(above)
        if (info.st_uid, info.st_gid) != old or identity in others:
            return
        if (parent.st_dev, parent.st_ino) in others:
            others.add(identity)
        else:
            os.chown(name, *new, dir_fd=above, follow_symlinks=False)

    _visit(folder, change)


def _visit(folder: Path, visit: Callable[[str, int, os.stat_result], None]) -> None:
    """Visit a directory and everything below it without following any link, even a new one.

    Entries that disappear or are nested too deep to be reached are skipped.
    """
    above = [_Open(str(folder), None)]
    try:
        above[0].visit(".", visit)
        while above:
            here = above[-1]
            if not here.names:
                here.close()
                above.pop()
                continue
            name = here.names.pop()
            if here.visit(name, visit):
                above.append(_Open(name, here.fd))
    finally:
        for each in above:
            each.close()


class _Open:
    """An open directory, and the names in it that remain to be visited."""

    def __init__(self, name: str, above: int | None) -> None:
        self.fd: int | None = None
        self.names: list[str] = []
        with suppress(OSError):
            self.fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            self.names = os.listdir(self.fd)

    def visit(self, name: str, visit: Callable[[str, int, os.stat_result], None]) -> bool:
        """Visit an entry with its name, directory and status. Return whether it is a directory."""
        with suppress(OSError):
            if self.fd is not None:
                status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
                visit(name, self.fd, status)
                return stat.S_ISDIR(status.st_mode)
        return False

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)


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
    gpus = getattr(request.config, "gpus", None)
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
        **_processors(limits.cpus),
        "ulimits": [
            library.Ulimit(name="core", soft=0, hard=0),
            library.Ulimit(name="fsize", soft=size, hard=size),
        ],
        "device_requests": _gpus(gpus) if gpus else None,
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


def _processors(wanted: float | None) -> dict[str, int]:
    """Return the settings for CPU time."""
    if wanted is not None:
        return {"nano_cpus": int(wanted * 1e9)}
    # The daemon refuses more CPUs than its machine has, which may be fewer than here.
    return {"cpu_period": _PERIOD, "cpu_quota": int(cpus() * _PERIOD)}


def _gpus(wanted: str) -> list[Any]:
    if wanted == "all":
        return [library.DeviceRequest(count=-1, capabilities=[["gpu"]])]
    return [library.DeviceRequest(device_ids=wanted.split(","), capabilities=[["gpu"]])]


# Adds a name for a container's user, without which `whoami`, `ssh` and other programs fail.
#
# Containers run as the user of this process (see `ownership`), which images do not list. An
# image's user and group lists are read once per process and shown to containers with one line
# added. The default image contains only Debian's users, so its lists are not read.

PASSWD, GROUP = "/etc/passwd", "/etc/group"
_NAME = "flow"
_LARGEST = 1 << 20
"""Maximum size of a list in bytes. A larger list is not changed."""

_DEFAULT = {
    PASSWD: "root:x:0:0:root:/root:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    GROUP: "root:x:0:\ntty:x:5:\nshadow:x:42:\nutmp:x:43:\nstaff:x:50:\nnogroup:x:65534:\n",
}

_known: dict[str, dict[str, str]] = {}
"""Image digest → the lists that need an added line: path inside → text."""


class Lists:
    """The lists shown to one container, in a directory that is removed with it."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def mounts(
        self, client: library.DockerClient, reference: str, image: str, labels: Mapping[str, str]
    ) -> list[Any]:
        """Write the lists that do not contain the user and group of containers.

        Args:
            client: The daemon.
            reference: Reference of the image.
            image: Digest of the image, which is present.
            labels: Labels of the container that is created to read them and never started.

        Returns:
            The mounts that show them.
        """
        if reference == description().tag:
            lists = {path: _DEFAULT[path] + line for path, line in _lines().items()}
        else:
            lists = _lacking(client, image, labels)
        if not lists:
            return []
        self._folder = make_scratch()
        self._folder.chmod(0o711)  # A daemon with user mapping accesses it as another user.
        files = _write(self._folder, lists)
        return [
            library.Mount(inside, str(file), "bind", read_only=True)
            for inside, file in files.items()
        ]

    def are_unseen(self, message: str) -> bool:
        """Return whether a daemon reports them as missing: it may have its own temporary files."""
        return self._folder is not None and str(self._folder) in message

    def close(self) -> None:
        """Remove the directory."""
        if self._folder is not None:
            remove_scratch(self._folder)
            self._folder = None


def _lacking(client: library.DockerClient, image: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the lists to add to an image: path inside → text. API errors are ignored."""
    if image not in _known:
        try:
            made = client.api.create_container(image, ["none"], entrypoint=[], labels=dict(labels))
            try:
                lists = {path: _read(client, str(made["Id"]), path) for path in (PASSWD, GROUP)}
            finally:
                client.api.remove_container(made["Id"], force=True)
        except library.APIError:
            return {}
        _known[image] = {
            path: text + line
            for path, line in _lines().items()
            if (text := lists[path]) is not None and not _names(text, line)
        }
    return _known[image]


def _write(folder: Path, lists: Mapping[str, str]) -> dict[str, Path]:
    files = {path: folder / Path(path).name for path in lists}
    for path, file in files.items():
        file.write_text(lists[path], encoding="utf-8", errors="surrogateescape")
        file.chmod(0o644)
    return files


def _lines() -> dict[str, str]:
    return {
        PASSWD: f"{_NAME}:x:{user()}:{group()}::{HOME}:/bin/sh\n",
        GROUP: f"{_NAME}:x:{group()}:\n",
    }


def _names(text: str, line: str) -> bool:
    """Return whether a list contains the id that is third in a line."""
    number = line.split(":")[2]
    return any(each.split(":")[2:3] == [number] for each in text.splitlines())


def _read(client: library.DockerClient, container: str, path: str) -> str | None:
    """Return a list of an image, ending with a line feed. None: it cannot be extended."""
    try:
        pieces, _told = client.api.get_archive(container, path)
    except library.NotFound:
        return ""
    except library.APIError:
        return None
    data = b""
    for piece in pieces:
        data += piece
        if len(data) > _LARGEST:  # too large, possibly a directory
            pieces.close()
            return None
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        entry = tar.next()
        file = tar.extractfile(entry) if entry is not None and entry.isreg() else None
        if file is None:
            return None
        text = file.read().decode(errors="surrogateescape")
    return text if not text or text.endswith("\n") else text + "\n"

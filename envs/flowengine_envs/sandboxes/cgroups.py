"""Control groups: limits for all processes of a sandbox together, if this process may create them.

Both versions are supported: version 1 has one tree per controller, version 2 a single tree. In
version 1, a group is created below the group of this process. In version 2, it is created in the
nearest writable ancestor that delegates controllers, because a group with processes cannot
delegate. If both are impossible, as for an ordinary user on most version 1 machines, there is no
group, and limits must be enforced by other means or refused.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

CONTROLLERS = ("memory", "pids", "cpu")
_PERIOD = 100_000
"""Scheduling period for CPU time, in microseconds."""
_ROUNDS = 200


class CgroupTree(NamedTuple):
    """The directories in which groups can be created."""

    version: int
    folders: Mapping[str, Path]
    """Controller → directory in which its groups are created."""


class Group:
    """The control group of one sandbox.

    Args:
        tree: Where it is created.
    """

    def __init__(self, tree: CgroupTree, name: str) -> None:
        self._tree = tree
        self.folders = sorted({str(folder / name) for folder in tree.folders.values()})
        """Directories to remove at the end."""
        self.by_controller = {
            controller: folder / name for controller, folder in tree.folders.items()
        }

    @property
    def entrances(self) -> list[str]:
        """Files into which a process writes its id to join."""
        return [f"{folder}/cgroup.procs" for folder in self.folders]

    @contextmanager
    def opened(self) -> Iterator[list[int]]:
        """Open the entrances: a process joins by writing "0" to each of these descriptors."""
        with ExitStack() as stack:
            files = [stack.enter_context(open(path, "wb", 0)) for path in self.entrances]
            yield [file.fileno() for file in files]

    def make(
        self, memory: int | None, processes: int | None = None, cpus: float | None = None
    ) -> None:
        """Create it and set its limits.

        Args:
            memory: Bytes. None: unlimited. Limits of missing controllers are ignored.
            processes: Number of processes.
            cpus: Number of CPUs.

        Raises:
            OSError: It cannot be created.
        """
        for folder in self.folders:
            Path(folder).mkdir(exist_ok=True)
        for controller, name, value in _settings(self._tree.version, memory, processes, cpus):
            if controller in self.by_controller:
                file = self.by_controller[controller] / name
                if file.exists():
                    file.write_text(value)


async def remove(folders: list[str]) -> None:
    """Remove groups, waiting for the kernel to clean up killed processes.

    Args:
        folders: Their directories. Missing ones are skipped.
    """
    for folder in folders:
        for _ in range(_ROUNDS):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                break
            except OSError:
                await asyncio.sleep(0.02)
            else:
                break


def memory_kills(groups: Mapping[str, Path]) -> int:
    """Return how many processes of a group were killed because memory was at its limit.

    Args:
        groups: Controller → the group in its tree, as far as there is one.
    """
    if (folder := groups.get("memory")) is not None:
        for name in ("memory.events", "memory.oom_control"):  # version 2, version 1
            if (count := _counted(folder / name, "oom_kill")) is not None:
                return count
    return 0


def refused_processes(groups: Mapping[str, Path]) -> int:
    """Return how many process starts failed in a group because its limit was reached.

    Args:
        groups: As for `memory_kills`.
    """
    folder = groups.get("pids")
    return 0 if folder is None else _counted(folder / "pids.events", "max") or 0


def _counted(path: Path, name: str) -> int | None:
    """Return a number from a file of names and numbers."""
    with suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return None


def group_of(pid: int, controller: str) -> Path | None:
    """Return a process's group for a controller, or None if it is not visible."""
    with suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text()
        return find_group(mounts, Path(f"/proc/{pid}/cgroup").read_text(), controller)
    return None


def find_group(mounts: str, groups: str, controller: str) -> Path | None:
    """Return a process's group for a controller, or None if it is not visible.

    Args:
        mounts: `/proc/self/mountinfo`.
        groups: `/proc/PID/cgroup`.
        controller: Its name.
    """
    own = _own_groups(groups)
    mounted, unified = _mounted(mounts)
    if controller in own and controller in mounted:
        return _place(*mounted[controller], own[controller])
    if unified is not None and "" in own:
        return _place(*unified, own[""])
    return None


def tree() -> CgroupTree | None:
    """Return where this process can create groups, or None."""
    return _tree(os.geteuid())


@lru_cache
def _tree(_user: int) -> CgroupTree | None:
    with suppress(OSError):
        return find(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    return None


def find(mounts: str, groups: str) -> CgroupTree | None:
    """Return where a process can create groups, or None.

    Args:
        mounts: `/proc/self/mountinfo`.
        groups: `/proc/self/cgroup`.

    Returns:
        The existing writable directories, of the version that has the memory controller.
    """
    own = _own_groups(groups)
    mounted, unified = _mounted(mounts)
    folders = {
        controller: _place(*mounted[controller], own[controller])
        for controller in CONTROLLERS
        if controller in mounted and controller in own
    }
    folders = {controller: place for controller, place in folders.items() if _writable(place)}
    if folders:
        return CgroupTree(1, folders)
    if unified is None or "" not in own:
        return None
    group = _place(*unified, own[""])
    for folder in (group, *group.parents):
        if not folder.is_relative_to(unified[1]):
            return None
        with suppress(OSError):
            handed_on = (folder / "cgroup.subtree_control").read_text().split()
            if "memory" in handed_on and _writable(folder) and _writable(folder / "cgroup.procs"):
                return CgroupTree(2, {each: folder for each in CONTROLLERS if each in handed_on})
    return None


def _mounted(mounts: str) -> tuple[dict[str, tuple[str, Path]], tuple[str, Path] | None]:
    """Return root and mount point of each controller's tree (version 1) and of the single tree."""
    mounted: dict[str, tuple[str, Path]] = {}
    unified: tuple[str, Path] | None = None
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _source, options = (*rest.split(" ", 2), "", "")[:3]
        root, place = fields.split(" ")[3:5]
        if kind == "cgroup2":
            unified = (root, Path(place))
        elif kind == "cgroup":
            for controller in options.split(","):
                mounted[controller] = (root, Path(place))
    return mounted, unified


def _own_groups(text: str) -> dict[str, str]:
    """Return controller → group of a process. Version 2 has the name ''."""
    own = {}
    for line in text.splitlines():
        _number, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = group
    return own


def _place(root: str, mount: Path, group: str) -> Path:
    """Return the directory of a group. A container may see only the lower part of its path."""
    below = group
    if root != "/" and (group == root or group.startswith(root + "/")):
        below = group[len(root) :]
    return mount / below.lstrip("/")


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


def _settings(
    version: int, memory: int | None, processes: int | None, cpus: float | None
) -> list[tuple[str, str, str]]:
    """Return controller, file and text for each limit."""
    settings = []
    if memory is not None and version == 1:
        settings += [("memory", "memory.limit_in_bytes", str(memory))]
        settings += [("memory", "memory.memsw.limit_in_bytes", str(memory))]
    elif memory is not None:
        settings += [("memory", "memory.max", str(memory)), ("memory", "memory.swap.max", "0")]
    if processes is not None:
        settings += [("pids", "pids.max", str(processes))]
    if cpus is not None:
        quota = max(1000, int(cpus * _PERIOD))
        if version == 1:
            settings += [("cpu", "cpu.cfs_period_us", str(_PERIOD))]
            settings += [("cpu", "cpu.cfs_quota_us", str(quota))]
        else:
            settings += [("cpu", "cpu.max", f"{quota} {_PERIOD}")]
    return settings

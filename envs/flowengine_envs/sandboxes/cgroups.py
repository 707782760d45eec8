"""Control groups: limits for all processes of a sandbox together, where this process may make them.

Both versions: 1 has a tree for each controller, 2 has one for all. A group is made below the one
this process is in (version 1), or in the nearest group above it that hands on the controllers and
may be written (version 2, where a group with processes hands on nothing). Where neither can be
done, as for an ordinary user on most version 1 machines, there is none, and limits have to be held
otherwise or refused.
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
"""Microseconds over which processor time is shared out."""
_ROUNDS = 200


class GroupLimits(NamedTuple):
    """What a group holds; None: no limit."""

    memory: int | None
    processes: int | None
    cpus: float | None


class Tree(NamedTuple):
    """Where groups can be made."""

    version: int
    folders: Mapping[str, Path]
    """Controller → folder in which a group for it is made."""


class Group:
    """The control group of one sandbox.

    Args:
        tree: Where it is made.
    """

    def __init__(self, tree: Tree, name: str) -> None:
        self._tree = tree
        self.folders = sorted({str(folder / name) for folder in tree.folders.values()})
        """What has to be removed at the end."""
        self._by_controller = {
            controller: folder / name for controller, folder in tree.folders.items()
        }

    @property
    def entrances(self) -> list[str]:
        """Files into which a process writes its id to enter."""
        return [f"{folder}/cgroup.procs" for folder in self.folders]

    @contextmanager
    def opened(self) -> Iterator[list[int]]:
        """Open the entrances: who writes "0" into each of these descriptors enters."""
        with ExitStack() as stack:
            files = [stack.enter_context(open(path, "wb", 0)) for path in self.entrances]
            yield [file.fileno() for file in files]

    def make(self, limits: GroupLimits) -> None:
        """Make it and set its limits.

        Args:
            limits: What it is to hold; controllers that are not there hold nothing.

        Raises:
            OSError: It cannot be made.
        """
        for folder in self.folders:
            Path(folder).mkdir(exist_ok=True)
        for controller, name, value in _settings(self._tree.version, limits):
            if controller in self._by_controller:
                file = self._by_controller[controller] / name
                if file.exists():
                    file.write_text(value)

    def memory_kills(self) -> int:
        """Return how many of its processes were killed because memory was at its limit."""
        folder = self._by_controller.get("memory")
        return 0 if folder is None else memory_kills(folder)

    def refused_processes(self) -> int:
        """Return how often a process could not be started because it holds no more."""
        folder = self._by_controller.get("pids")
        return 0 if folder is None else refused_processes(folder)

    async def remove(self) -> None:
        """Take it away; what is left in it must have been killed."""
        await remove(self.folders)


async def remove(folders: list[str]) -> None:
    """Take groups away, waiting for the kernel to be done with processes that were killed.

    Args:
        folders: Their folders; those that are gone are passed over.
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


def memory_kills(folder: Path) -> int:
    """Return how many processes of a group were killed because memory was at its limit.

    Args:
        folder: The group, of the tree that has the memory controller.
    """
    for name in ("memory.events", "memory.oom_control"):  # version 2, version 1
        found = _counted(folder / name, "oom_kill")
        if found is not None:
            return found
    return 0


def refused_processes(folder: Path) -> int:
    """Return how often a process could not be started in a group because it holds no more.

    Args:
        folder: The group, of the tree that has the pids controller.
    """
    return _counted(folder / "pids.events", "max") or 0


def _counted(path: Path, name: str) -> int | None:
    """Return a number from a file of names and numbers."""
    with suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return None


def group_of(pid: int, controller: str) -> Path | None:
    """Return the group of a controller that holds a process, or None where it cannot be seen."""
    with suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text()
        return find_group(mounts, Path(f"/proc/{pid}/cgroup").read_text(), controller)
    return None


def find_group(mounts: str, groups: str, controller: str) -> Path | None:
    """Return the group of a controller that holds a process, or None where it cannot be seen.

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


def tree() -> Tree | None:
    """Return where this process can make groups, or None."""
    return _tree(os.geteuid())


@lru_cache
def _tree(_user: int) -> Tree | None:
    with suppress(OSError):
        return find(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    return None


def find(mounts: str, groups: str) -> Tree | None:
    """Return where a process can make groups, or None.

    Args:
        mounts: `/proc/self/mountinfo`.
        groups: `/proc/self/cgroup`.

    Returns:
        What is there and may be written, of the version that has the memory controller.
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
        return Tree(1, folders)
    if unified is not None and "" in own:
        return _find_unified(unified[1], _place(*unified, own[""]))
    return None


def _mounted(mounts: str) -> tuple[dict[str, tuple[str, Path]], tuple[str, Path] | None]:
    """Return root and place of each controller's tree (version 1), and of the one for all."""
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


def _find_unified(top: Path, own: Path) -> Tree | None:
    for folder in (own, *own.parents):
        if not folder.is_relative_to(top):
            return None
        with suppress(OSError):
            handed_on = (folder / "cgroup.subtree_control").read_text().split()
            if "memory" in handed_on and _writable(folder) and _writable(folder / "cgroup.procs"):
                return Tree(2, {each: folder for each in CONTROLLERS if each in handed_on})
    return None


def _own_groups(text: str) -> dict[str, str]:
    """Return controller → group of a process; version 2 has the name ''."""
    own = {}
    for line in text.splitlines():
        _number, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = group
    return own


def _place(root: str, mount: Path, group: str) -> Path:
    """Return the folder of a group, of which a container may see only the lower part."""
    below = group
    if root != "/" and (group == root or group.startswith(root + "/")):
        below = group[len(root) :]
    return mount / below.lstrip("/")


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


def _settings(version: int, limits: GroupLimits) -> list[tuple[str, str, str]]:
    """Return controller, file and text for each limit."""
    settings = []
    memory, processes, cpus = limits
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

"""Closing of a resource, and cleanup after a failed closing or opening."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flowengine.execution_environment.bookkeeping.instances import Instance, Provision
from flowengine.execution_environment.clock import within
from flowengine.execution_environment.resources.opening import ManagerServices
from flowengine.sdk import processes
from flowengine.sdk.environments import VARIABLE, Resource
from flowengine.sdk.processes import boot
from flowengine.sdk.python.user_code import on_thread
from flowengine.util.files import remove_tree


async def close_resource(
    opened: Provision, around: ManagerServices, *, suspend: bool, lost: bool
) -> str | None:
    """Close a resource, after its running calls have ended or were interrupted.

    Args:
        opened: The resource.
        around: Clock and time limits.
        suspend: Whether it is only released for a wait.
        lost: Whether it still has a holder.

    Returns:
        None, or the name of the provider's error.
    """
    resource, provider = opened.resource, opened.provider
    bounds = around.bounds
    try:
        if isinstance(resource, Resource):
            await resource.finish(bounds.use, lost=lost)
        verb = provider.suspend if suspend else provider.release
        await within(around.clock, bounds.release, called(verb, resource))
    except Exception as error:
        return type(error).__name__
    return None


async def called(verb: Callable[[Any], Any], given: Any) -> None:
    """Call a function of a plug-in, which may be a coroutine function."""
    result = verb(given)
    if inspect.isawaitable(result):
        await result


async def end_strays(instance: Instance) -> None:
    """Clean up after an opening without a result.

    Args:
        instance: The opening, whose entry contains the traces.
    """
    entry = instance.entry
    if entry is None or not (entry.recorded or entry.data["facts"]):
        return
    leftover = entry.leftover
    await on_thread(lambda: end_traced(leftover.mark, leftover.facts, leftover.owner.boot))


def end_traced(mark: str, facts: Mapping[str, Any], since: str) -> None:
    """Kill the processes of an environment, and remove the directories that it recorded.

    Args:
        mark: Mark of its processes.
        facts: The facts passed to `trace`.
        since: Boot id of the machine when its processes were started. After a reboot, their pids
            may belong to other processes.
    """
    for pid, began in _pairs(facts.get("pids")) if since == boot() else []:
        processes.end_session(pid, began)
    processes.Family(mark, variable=VARIABLE).kill()
    for folder in facts.get("folders") or ():
        if isinstance(folder, str) and _may_go(Path(folder)):
            remove_tree(folder)


def _pairs(given: Any) -> list[tuple[int, int]]:
    if not isinstance(given, list):
        return []
    return [
        (each[0], each[1])
        for each in given
        if isinstance(each, list) and len(each) == 2 and all(type(part) is int for part in each)
        if each[0] > 1 and each[1] > 0
    ]


def _may_go(folder: Path) -> bool:
    """Return whether a recorded directory can belong to an environment at all."""
    if not folder.is_absolute() or folder.is_symlink() or len(folder.parts) < 3:
        return False
    home = Path.home()
    return folder != home and folder not in home.parents and folder not in Path.cwd().parents

"""Cleanup of leftovers of dead processes, and diagnosis of this machine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from flowengine.errors import FlowEngineError
from flowengine.execution_environment.bookkeeping.books import Books
from flowengine.execution_environment.clock import within
from flowengine.execution_environment.observation import PREFIX, Event
from flowengine.execution_environment.registry.entries import RegistryEntry, remove_drafts
from flowengine.execution_environment.registry.workspaces import Wanted
from flowengine.execution_environment.resources.closing import called, end_traced
from flowengine.execution_environment.resources.opening import ManagerServices, choose, owner_of
from flowengine.execution_environment.specs import providers
from flowengine.execution_environment.specs.spec import check_spec
from flowengine.sdk import processes as process_tree
from flowengine.sdk.environments import VARIABLE, Leftover
from flowengine.sdk.errors import StepError
from flowengine.sdk.processes import is_dead, sweep_scratch
from flowengine.sdk.python.user_code import on_thread

# Cleanup of leftovers of dead processes.
#
# Leftovers are found in four ways. The registry entry records the started environments. The mark in
# the environment variables of processes names their owner, even without the entry. Providers and
# sandboxes have labels. Temporary directories are no longer locked. Only leftovers that certainly
# belong to a dead process are touched: its pid is free or belongs to a process that started at
# another time, or the machine has been restarted.

Reaped = dict[str, Any]


async def reap(
    around: ManagerServices, books: Books, wanted: Wanted, *, wait: bool
) -> list[Reaped]:
    """Clean up leftovers of dead processes. Only one process at a time does this.

    Args:
        around: Provides the registry.
        books: Report the cleanup.
        wanted: Returns whether workspaces are still needed.
        wait: Whether to wait for another process that is cleaning up.

    Returns:
        The leftovers, each with `error` if it could not be cleaned up.
    """
    lock = around.registry.reaping(wait=wait)
    if not await on_thread(lock.__enter__):
        return await _reap_marked(around)
    try:
        entries, damaged = await on_thread(around.registry.read)
        reaped: list[Reaped] = [{"what": "damaged entry", "path": str(path)} for path in damaged]
        dead = [entry for entry in entries if is_dead(entry.leftover.owner)]
        reaped += [await _reap_entry(entry, around, books) for entry in dead]
        reaped += await _reap_marked(around)
        for each in providers.sweepers():  # they search for labels of dead owners
            with suppress(Exception):  # for example, without a daemon, and thus without labels
                await within(around.clock, around.bounds.release, called(each, is_dead))
        await on_thread(lambda: remove_drafts(around.registry.entries))
        removed = await on_thread(lambda: around.workspaces.sweep(wanted))
        reaped += [{"what": "workspace", "path": str(path)} for path in removed]
    finally:
        lock.__exit__(None, None, None)
    return reaped


async def end_entry(entry: RegistryEntry, around: ManagerServices, books: Books) -> Reaped:
    """Clean up the environment of an entry, regardless of its owner.

    Args:
        entry: Entry of the registry.
        around: Provides the registry.
        books: Report the cleanup.

    Returns:
        A description of the environment, with `error` if it could not be ended.
    """
    lock = around.registry.reaping(wait=True)
    await on_thread(lock.__enter__)
    try:
        return await _reap_entry(entry, around, books)
    finally:
        lock.__exit__(None, None, None)


async def _reap_entry(entry: RegistryEntry, around: ManagerServices, books: Books) -> Reaped:
    leftover = entry.leftover
    reaped: Reaped = {"what": "environment", **entry.named, "state": entry.data["state"]}
    await on_thread(lambda: end_traced(leftover.mark, leftover.facts, leftover.owner.boot))
    error = await _reap_by_provider(leftover, around)
    if error is None:
        entry.remove()
        books.events.publish(_event(entry, around.clock.now()))
    else:
        reaped["error"] = error
    return reaped


async def _reap_by_provider(leftover: Leftover, around: ManagerServices) -> str | None:
    """Let the provider and the sandbox clean up, and return the name of an error, if any."""
    try:
        provider = providers.find_provider(leftover.kind)
        reapers: list[Callable[[Leftover], Any]] = [provider.reap]
        sandbox = providers.sandbox_of(provider, leftover.provider)
        if sandbox is not None:
            reapers.append(sandbox.reap)
    except FlowEngineError:
        # The kind is unknown here. Processes and directories have been removed already.
        known = leftover.facts.keys() <= {"pids", "folders"}
        return None if known else "UnknownKind"
    for each in reapers:
        try:
            await within(around.clock, around.bounds.release, called(each, leftover))
        except Exception as error:
            return type(error).__name__
    return None


async def _reap_marked(around: ManagerServices) -> list[Reaped]:
    """Kill processes with the mark of a dead owner, and remove its temporary directories."""

    def kill() -> list[Reaped]:
        reaped: list[Reaped] = []
        for mark in sorted(set(process_tree.marked(VARIABLE).values())):
            owner = owner_of(mark, around)
            if owner is not None and is_dead(owner):
                process_tree.Family(mark, variable=VARIABLE).kill()
                reaped.append({"what": "processes", "id": mark.partition("@")[0]})
        reaped += [{"what": "processes", "id": name} for name in process_tree.end_orphans()]
        reaped += [{"what": "folder", "path": str(path)} for path in sweep_scratch()]
        return reaped

    return await on_thread(kill)


def _event(entry: RegistryEntry, now: float) -> Event:
    data = entry.data
    return Event(
        event=f"{PREFIX}reaped",
        **entry.named,
        spec_id=data["spec_id"],
        state="released",
        generation=data["generation"],
        number=1,
        at=now,
    )


# Diagnosis of this machine, which probes each kind in each sandbox without opening it.

_WHICH = re.compile(r"^(?:environment '[^']*' \([^)]*\)(?::| cannot be provided by '[^']*':) )+")


async def examine(around: ManagerServices) -> list[dict[str, Any]]:
    """Probe every kind in every sandbox, concurrently.

    Args:
        around: Clock and time limits.

    Returns:
        For each kind and sandbox, `{kind, provider, available, isolation, held, missing}`: how each
        axis is enforced, or the missing part and how to fix it.
    """
    pairs: list[tuple[str, str]] = []
    for kind in providers.kinds():
        try:
            names = providers.sandboxes_of(providers.find_provider(kind))
        except FlowEngineError:
            names = [kind]  # the probe reports the error
        pairs += [(kind, name) for name in names]
    return list(await asyncio.gather(*(_probed(*pair, around) for pair in pairs)))


async def _probed(kind: str, name: str, around: ManagerServices) -> dict[str, Any]:
    result: dict[str, Any] = {"kind": kind, "provider": name, "available": False}
    try:
        provider = providers.find_provider(kind)
        given: dict[str, Any] = {"kind": kind, "scope": "global", "config": dict(provider.sample)}
        if provider.sandbox is not None:
            given["provider"] = name
        choice = await choose(check_spec(given), around)
    except (FlowEngineError, StepError) as error:
        missing = _WHICH.sub("", error.message)
        hint = getattr(error, "hint", None)
        message = f"{missing}; {hint}" if hint else missing
        return {**result, "isolation": None, "held": {}, "missing": message}
    held = choice.capabilities
    result["available"] = True
    return {**result, "isolation": held.isolation, "held": dict(held.holds), "missing": None}

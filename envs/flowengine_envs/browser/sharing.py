"""Decides which environments share a Chromium process.

Chromium's own sandbox is disabled (decision 15), so a page that compromises its process can access
all profiles of that process. Environments share a process only if they have the same owner, unless
a spec allows more. They must also have the same network policy, limits, login and program.
"""

from __future__ import annotations

import asyncio
from typing import Any

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Request
from flowengine_envs.browser import library
from flowengine_envs.browser.approvals import NEW_HOST, ApprovalGuard
from flowengine_envs.browser.chromium import Chromium, Profile, not_started
from flowengine_envs.browser.requests import Downloads, WorkspaceFiles
from flowengine_envs.browser.session import BrowserSession


class _Group:
    """The processes for one key."""

    def __init__(self) -> None:
        self.opening = asyncio.Lock()
        self.waiting = 0
        self.processes: list[Chromium] = []


_groups: dict[tuple[object, ...], _Group] = {}


async def open_session(
    request: Request, state: dict[str, Any] | None, guard: ApprovalGuard
) -> BrowserSession:
    """Open a profile with a blank tab, in a running process or a new one.

    Args:
        request: The request to open the environment.
        state: Its initial cookies and storage.
        guard: The required approvals.

    Returns:
        The profile. Closing it ends the process, unless another environment uses it.

    Raises:
        EnvironmentStartFailed: It did not start. The message contains the reason.
    """
    config = request.config
    place, context = await _join(request), None
    try:
        place.judge(guard.judge if NEW_HOST in guard.asks else None)
        context = await place.open(state)
        await guard.watch(context)
        await context.grant_permissions([*config.permissions])  # All others are denied.
        downloads = Downloads(request.workspace, place.arriving, config.downloads)
        files = WorkspaceFiles(request.workspace)
        session = BrowserSession(place, context, downloads, config.tabs, guard, files)
        session.add(await context.new_page())
        return session
    except library.Error as error:
        await asyncio.shield(place.leave(context))
        raise not_started(request, error) from None
    except BaseException:
        await asyncio.shield(place.leave(context))
        raise


async def _join(request: Request) -> Profile:
    """Find or start a process for an environment, and reserve a place in it."""
    if request.sandbox is None:
        raise EnvironmentUnavailable(f"{request.spec}: no sandbox was chosen for it")
    key = _key(request)
    group = _groups.setdefault(key, _Group())
    group.waiting += 1
    try:
        async with group.opening:  # Concurrent callers join the process being started.
            for each in group.processes:
                if each.has_place:
                    return each.join(request)
            started = Chromium(request)

            def closed() -> None:
                group.processes.remove(started)
                _forget(key, group)

            await started.start(request, closed)
            group.processes.append(started)
            return started.join(request)
    finally:
        group.waiting -= 1
        _forget(key, group)


def _forget(key: tuple[object, ...], group: _Group) -> None:
    if not group.processes and not group.waiting and _groups.get(key) is group:
        del _groups[key]


def _key(request: Request) -> tuple[object, ...]:
    """Return the values that must be equal for sharing, among them what pages may do."""
    config = request.config
    assert request.sandbox is not None
    return (
        request.manager,
        _trusted(request),
        request.sandbox,
        request.policy.model_dump_json(),
        request.limits.model_dump_json(),
        config.program,
        config.storage_state,
        *sorted(config.permissions),
    )


def _trusted(request: Request) -> str:
    """Return a value that is equal for environments that may share a process."""
    scope, owner = request.spec.scope, request.spec.owner_id
    if request.config.isolate == "context":
        return ""
    if request.config.isolate == "execution" and owner:
        if scope in ("action_call", "region", "execution"):
            return f"execution {owner.partition('/')[0]}"
        if scope == "session":
            return f"session {owner}"
    return request.id

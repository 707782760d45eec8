"""Opens resources of a provider in a sandbox, like the manager, but without its bookkeeping."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk.environments import (
    VARIABLE,
    ProcessIdentity,
    Provider,
    Request,
    Sandbox,
    Spec,
    background,
)
from flowengine.sdk.environments.models import ResourceLimits
from flowengine.sdk.environments.sandboxes import with_sandboxes
from flowengine.sdk.processes import marked
from flowengine_envs.kinds.workspace import InWorkspace
from flowengine_envs.sandboxes.docker.daemon import connect

LOG = logging.LoggerAdapter(logging.getLogger("flowengine.environments"), {})


class Trace:
    """Records the data that would be written to the registry on disk."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def __call__(self, **facts: Any) -> None:
        self.facts.update(facts)


def request_for(
    provider: Provider[Any],
    sandbox: type[Sandbox] | None,
    workspace: Path,
    *,
    config: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    mounts: Mapping[str, Path] | None = None,
    seconds: float = 60,
    scope: Any = "execution",
    owner_id: str = "e1",
    **more: Any,
) -> Request:
    places = [sandbox] if sandbox else []
    made = with_sandboxes(provider.config_model(), places)(**(config or {}))
    rules = provider.policy_model()(**(policy or {}))
    bounds = ResourceLimits(**(limits or {}))
    spec = Spec(
        id="spec",
        kind=provider.kind,
        scope=scope,
        owner_id=owner_id,
        resource_key="box",
        provider=provider.kind if sandbox is None else sandbox.name,
        config=made,
        policy=rules,
        limits=bounds,
        needs={},
    )
    id = uuid.uuid4().hex
    home = workspace.parent / f"{workspace.name}.home"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Request(
        spec=spec,
        id=id,
        generation=1,
        config=made,
        policy=rules,
        limits=bounds,
        workspace=workspace,
        home=home,
        sandbox=sandbox,
        mounts=mounts or {},
        owner=ProcessIdentity(os.getpid(), 0, "boot", "host"),
        manager="manager",
        trace=Trace(),
        log=LOG,
        **{"mark": f"mark:{id}", "deadline": background().loop.time() + seconds, **more},
    )


def open_resource(
    provider: Provider[Any], sandbox: type[Sandbox], workspace: Path, **asked: Any
) -> Any:
    """Probe and open a resource. The caller releases it."""
    request = request_for(provider, sandbox, workspace, **asked)

    async def opened() -> Any:
        await sandbox.probe(request.spec)
        await provider.probe(request.spec)
        return await provider.ensure(request)

    return background().run(opened())


@contextmanager
def opened(
    provider: Provider[Any], sandbox: type[Sandbox], workspace: Path, **asked: Any
) -> Iterator[Any]:
    resource = open_resource(provider, sandbox, workspace, **asked)
    try:
        yield resource
    finally:
        release(provider, resource)


def processes_of(resource: Any) -> list[int]:
    """Return the host process IDs of the first processes in an open sandbox."""
    facts = resource.sandbox.request.trace.facts
    if "container" not in facts:
        return list(facts["pids"])
    return [connect().api.inspect_container(facts["container"])["State"]["Pid"]]


def channel_of(resource: Any) -> Any:
    """Return the connection to a supervisor, whose bytes and key no resource gives out."""
    return resource._channel


def managed_processes(manager: EnvironmentManager) -> list[int]:
    """Return the processes that run for a manager's environments."""
    name = manager._around.registry.name  # marks name the registry, and tests run beside others
    return [pid for pid, mark in marked(VARIABLE).items() if f".{name}." in mark]


def release(provider: Provider[Any], resource: Any) -> None:
    background().run(provider.release(resource))


def on_host(resource: InWorkspace, path: str) -> Path:
    """Return the host path of a file in the home folder."""
    return resource.request.home / Path(path).relative_to(resource.home)

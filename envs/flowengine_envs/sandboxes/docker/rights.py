"""Rights of a container, which are as limited as possible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Request, Spec
from flowengine_envs.link.call_limits import MEMORY, PROCESSES
from flowengine_envs.network.egress import destinations
from flowengine_envs.sandboxes.docker.ownership import group, user
from flowengine_envs.sandboxes.processes import cpus

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
    from docker.types import DeviceRequest, Mount, Ulimit

    limits = request.limits
    memory = limits.memory or MEMORY
    # Files in memory must leave room: when memory is full, the kernel kills the programs.
    scratch = min(limits.disk or SCRATCH, memory // 4)
    lasting = any(inside == HOME for inside, _, _ in mounts)
    owner = f"uid={user()},gid={group()}"
    home = {} if lasting else {HOME: f"size={scratch},mode=0700,exec,{owner}"}
    gpus = getattr(request.config, "gpus", None)
    return {
        "mounts": [
            Mount(inside, str(path), "bind", read_only=not writable)
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
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "device_requests": _gpus(DeviceRequest, gpus) if gpus else None,
    }


def workdir(request: Request) -> str:
    """Return the path of the workspace in the container."""
    return str(getattr(request.config, "workdir", None) or "/workspace")


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


def _gpus(request: Any, wanted: str) -> list[Any]:
    if wanted == "all":
        return [request(count=-1, capabilities=[["gpu"]])]
    return [request(device_ids=wanted.split(","), capabilities=[["gpu"]])]

"""Removes containers, including those that a dead process left, which are found by label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from flowengine.sdk import EnvironmentLost
from flowengine.sdk.environments import Leftover, ProcessIdentity
from flowengine_envs.sandboxes.docker import library
from flowengine_envs.sandboxes.docker.accounts import take_back
from flowengine_envs.sandboxes.docker.daemon import connect


def sweep(is_dead: Callable[[ProcessIdentity], bool]) -> None:
    """Remove containers whose labels name a dead owner on this machine."""
    client = connect()
    for container in client.api.containers(all=True, filters={"label": ["flowengine=1"]}):
        owner = _owner(container["Labels"])
        if owner is not None and is_dead(owner):
            remove(client, container["Id"])


def _owner(labels: Mapping[str, str]) -> ProcessIdentity | None:
    """Return the owner of a container, or None if its labels do not name one."""
    try:
        return ProcessIdentity(
            int(labels["flowengine.pid"]),
            int(labels["flowengine.started"]),
            labels["flowengine.boot"],
            labels["flowengine.host"],
        )
    except (KeyError, ValueError):
        return None


def remove(client: library.DockerClient, container: str) -> None:
    """Remove a container and wait until it has disappeared. A missing container is ignored.

    Args:
        client: A client of the daemon.
        container: Its id.

    Raises:
        EnvironmentLost: The daemon is not reachable.
        APIError: The daemon cannot remove it.
    """
    try:
        client.api.remove_container(container, force=True, v=True)
    except library.NotFound:
        return
    except library.APIError as error:
        if error.status_code != 409:  # It is already being removed.
            raise
    except OSError as error:
        raise EnvironmentLost(
            f"the Docker daemon is gone, and the container {container[:12]} could not be removed. "
            "The next engine that starts with a running daemon removes it"
        ) from error
    try:
        client.api.wait(container, condition="removed", timeout=30)
    except (library.NotFound, OSError):
        return


def reap(leftover: Leftover) -> None:
    """Remove the containers of a dead owner, and return ownership of its directories."""
    client = connect()
    label = f"flowengine.environment={leftover.id}"
    for container in client.api.containers(all=True, quiet=True, filters={"label": [label]}):
        remove(client, container["Id"])
    take_back([Path(str(folder)) for folder in leftover.facts.get("lent") or []], lent=0)

"""The environments that a host is given, made on first use, since most hosts have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from flowengine.engines.host import Host
from flowengine.engines.results import Update
from flowengine.errors import NotFound, StoreError
from flowengine.journal.records import ENDED
from flowengine.sdk.errors import StepError
from flowengine.store_folder import environments_of as folder_of_environments

if TYPE_CHECKING:
    from flowengine.engines.environments.environments import EngineEnvironments


def environments_of(host: Host) -> EngineEnvironments:
    """Return the environments that `make_environments` has made for a host."""
    return cast("EngineEnvironments", host.environments)


def make_environments(
    host: Host, given: str | None = None, guarded: Sequence[str] = ()
) -> EngineEnvironments:
    """Make the environments of a host.

    Args:
        host: The host.
        given: Directory in which open environments are recorded. Default: the one that belongs to
            the store.
        guarded: Directories that no sandbox may access, in addition to that of the store.
    """
    from flowengine.engines.environments.environments import EngineEnvironments

    own = host.store.folder
    folder: Callable[[], str] | None = None
    if given is not None:
        folder = partial(str, given)
    elif own is not None:
        folder = partial(folder_of_environments, own)
    return EngineEnvironments(
        folder,
        partial(_may_go_on, host),
        lambda *failed: host.on_not_released(*failed),  # noqa: PLW0108 - a driver may set it later
        partial(_report_opened_ahead, host),
        [*guarded, *([] if own is None else [own])],
    )


def _may_go_on(host: Host, execution: str) -> bool:
    """Return whether an execution exists and is open. Its workspaces are then kept.

    They are also kept if the store is locked or closed and therefore cannot be queried. (A separate
    thread removes workspaces.)
    """
    if host.is_closed:
        return True
    try:
        return host.store.execution(execution).status not in ENDED
    except NotFound:
        return False
    except StoreError:
        return True


def _report_opened_ahead(host: Host, execution: str, name: str, error: StepError | None) -> None:
    """Report that an environment was opened in the background, or could not be."""
    data: dict[str, Any] = {"name": name, "state": "ready" if error is None else "failed"}
    if error is not None:
        data["error"] = {"type": error.name or type(error).__name__, "message": error.message}
    host.notify(Update(execution, "environment", data))

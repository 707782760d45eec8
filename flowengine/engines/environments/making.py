"""The environments that a host is given, made on first use, since most hosts have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from flowengine.engines.host import Host
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
        host.may_go_on,
        host.report_not_released,
        host.report_opened_ahead,
        [*guarded, *([] if own is None else [own])],
    )

"""Opening of the window through which other processes look into an environment."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flowengine.execution_environment.registry.entries import NoEntry, make_own
from flowengine.sdk.environments import Provider

if TYPE_CHECKING:
    from flowengine.execution_environment.bookkeeping.instances import Instance
    from flowengine.execution_environment.registry.screens import Window
    from flowengine.execution_environment.resources.opening import ManagerServices

_log = logging.getLogger("flowengine.environments")


def window_of(instance: Instance, around: ManagerServices) -> Window | None:
    """Return a window for an environment that has just been opened. Call it on its loop.

    Args:
        instance: The opening, with its resource and its entry.
        around: Provides the registry.

    Returns:
        None if its kind has no screen, if it is not recorded, or if there can be no socket. The
        environment works without it.
    """
    opened, entry = instance.opened, instance.entry
    assert opened is not None
    assert entry is not None
    provider, resource = opened.provider, opened.resource
    if isinstance(entry, NoEntry) or type(provider).screen is Provider.screen:
        return None
    from flowengine.execution_environment.registry.screens import Window
    from flowengine.secrets import mask_known

    try:
        make_own(around.registry.folder, "screens")
        return Window(
            entry.screen,
            lambda: provider.screen(resource),
            # Steps may have brought in secrets that its configuration does not name.
            lambda value: mask_known(instance.mask(value)),
        )
    except OSError as error:
        _log.warning("%s cannot be looked into: %s", instance.record.declared, error)
        return None

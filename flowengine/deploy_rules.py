"""The flows that administrators of a server may deploy through it.

    deploys: {modules: ["reports.*"], host: false}

It is in the user's `settings.yaml`. `folders: [/srv/reports]` lists directories of the host.
Without `deploys`, a server takes no flows: a flow decides what the workers of the store do, with
the secrets and environments of their machine.
"""

from __future__ import annotations

import os
from typing import Any

from flowengine.errors import UsageError
from flowengine.named_tuples import NamedTuple

_EXAMPLE = 'deploys: {modules: ["reports.*"], host: false}'


class DeployRules(NamedTuple):
    """What a deployed flow may name."""

    modules: tuple[str, ...] = ()
    """Patterns of the names of Python modules."""
    host: bool = False
    """Whether it may run programs and use files on the host, outside of sandboxes."""
    folders: tuple[str, ...] = ()
    """Absolute paths of directories of the host that its environments may name anyway."""

    def allows(self, path: str | None) -> bool:
        """Return whether a flow may name a path of the host. None: it is not known yet."""
        if self.host:
            return True
        if path is None or not os.path.isabs(path):
            return False
        real = os.path.realpath(path)
        return any(
            real == folder or real.startswith(os.path.join(folder, ""))
            for folder in map(os.path.realpath, self.folders)
        )


def read_deploys(path: str, value: Any) -> DeployRules:
    """Read the setting `deploys`.

    Args:
        path: The settings file, for messages.
        value: The value in it.

    Raises:
        UsageError: It is not valid.
    """
    if not isinstance(value, dict) or not value.keys() <= {*DeployRules._fields}:
        keys = ", ".join(DeployRules._fields)
        raise UsageError(f"{path}: deploys must be a map of {keys}", hint=_EXAMPLE)
    modules, host = value.get("modules", []), value.get("host", False)
    folders = value.get("folders", [])
    if not isinstance(modules, list) or not all(
        isinstance(module, str) and module for module in modules
    ):
        raise UsageError(f"{path}: deploys.modules must be a list of names", hint=_EXAMPLE)
    if not isinstance(host, bool):
        raise UsageError(f"{path}: deploys.host is {host!r}", hint="write true or false")
    if not isinstance(folders, list) or not all(
        isinstance(folder, str) and os.path.isabs(folder) for folder in folders
    ):
        raise UsageError(f"{path}: deploys.folders must be a list of absolute paths", hint=_EXAMPLE)
    return DeployRules(tuple(modules), host, tuple(folders))

"""The flows that administrators of a server may deploy through it.

    deploys: {modules: ["reports.*"], host: false}

It is in the user's `settings.yaml`. Without it, a server takes no flows: a flow decides what the
workers of the store do, with the secrets and environments of their machine.
"""

from __future__ import annotations

from typing import Any

from flowengine.errors import UsageError
from flowengine.named_tuples import NamedTuple

_EXAMPLE = 'deploys: {modules: ["reports.*"], host: false}'


class DeployRules(NamedTuple):
    """What a deployed flow may name."""

    modules: tuple[str, ...] = ()
    """Patterns of the names of Python modules."""
    host: bool = False
    """Whether it may run programs on the host, outside of sandboxes."""


def read_deploys(path: str, value: Any) -> DeployRules:
    """Read the setting `deploys`.

    Args:
        path: The settings file, for messages.
        value: The value in it.

    Raises:
        UsageError: It is not valid.
    """
    if not isinstance(value, dict) or not value.keys() <= {"modules", "host"}:
        raise UsageError(f"{path}: deploys must be a map of modules, host", hint=_EXAMPLE)
    modules, host = value.get("modules", []), value.get("host", False)
    if not isinstance(modules, list) or not all(
        isinstance(module, str) and module for module in modules
    ):
        raise UsageError(f"{path}: deploys.modules must be a list of names", hint=_EXAMPLE)
    if not isinstance(host, bool):
        raise UsageError(f"{path}: deploys.host is {host!r}", hint="write true or false")
    return DeployRules(tuple(modules), host)

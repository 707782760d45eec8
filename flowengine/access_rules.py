"""Roles of the users of a server, by flow, as the host's settings declare them.

    access:
      - {who: [ana, "group:finance"], role: approver, flows: ["expense*"], content: true}

The user who runs the server has all rights. Any other user has only those that an entry gives.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flowengine.argument_checks import known_words
from flowengine.errors import UsageError

ROLES = ("viewer", "starter", "approver", "operator", "admin")
_KEYS = ("who", "role", "flows", "content")
_EXAMPLE = 'access: [{who: [ana, "group:finance"], role: approver, flows: ["expense*"]}]'


class AccessEntry(NamedTuple):
    """One entry of `access`."""

    who: list[str]
    """`user:NAME` and `group:NAME`."""
    role: str
    """One of `ROLES`."""
    flows: list[str]
    """Patterns of flow ids: `*` matches anything, `?` one character."""
    content: bool
    """Whether inputs, outputs, events and files are shown. An `admin` sees them always."""


def read_access(path: str, value: Any) -> tuple[AccessEntry, ...]:
    """Read the setting `access`.

    Args:
        path: The settings file, for messages.
        value: The value in it.

    Returns:
        Its entries.

    Raises:
        UsageError: It is not valid.
    """
    entries = [] if value is None else value
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{path}: access must be a list of maps", hint=_EXAMPLE)
    return tuple(_entry(f"{path}: access[{n}]", entry) for n, entry in enumerate(entries))


def _entry(place: str, entry: dict[Any, Any]) -> AccessEntry:
    unknown = [key for key in entry if key not in _KEYS]
    if unknown:
        raise UsageError(
            f"{place}: unknown key '{unknown[0]}'", hint=known_words(str(unknown[0]), _KEYS)
        )
    role, content = entry.get("role"), entry.get("content", False)
    if role not in ROLES:
        raise UsageError(f"{place}: role is {role!r}", hint=known_words(str(role), ROLES))
    if not isinstance(content, bool):
        raise UsageError(f"{place}: content is {content!r}", hint="write true or false")
    who = _names(place, "who", entry.get("who"))
    flows = _names(place, "flows", entry.get("flows", ["*"]))
    return AccessEntry([_user(name) for name in who], role, flows, content)


def _names(place: str, key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise UsageError(f"{place}: {key} must be a list of names", hint=_EXAMPLE)
    return value


def _user(name: str) -> str:
    return name if name.startswith(("user:", "group:")) else f"user:{name}"

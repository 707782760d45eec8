"""Hooks of a server: what other services send, and the signal that it becomes.

    hooks:
      - {name: orders, scheme: github, secret: {env: ORDERS_SECRET}, signal: placed, key: order.id}
      - {name: erp, scheme: hmac, header: X-Signature, secret: {file: /etc/erp.key}, signal: booked,
         key: number}

They are in the user's `settings.yaml`. Each has its own secret, which the sender knows, too.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from flowengine.argument_checks import known_words
from flowengine.errors import UsageError

SCHEMES = ("standard", "github", "stripe", "slack", "hmac")
_KEYS = ("name", "scheme", "secret", "signal", "key", "header")
_NEEDED = ("name", "scheme", "secret", "signal", "key")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_EXAMPLE = (
    "hooks: [{name: orders, scheme: github, secret: {env: ORDERS_SECRET}, signal: placed, "
    "key: order.id}]"
)


class HookEntry(NamedTuple):
    """One entry of `hooks`."""

    name: str
    """The last part of its path."""
    scheme: str
    """How a delivery is signed: one of `SCHEMES`."""
    secret: dict[str, str]
    """`{"env": VARIABLE}` or `{"file": PATH}`."""
    signal: str
    """The signal that a delivery becomes."""
    key: str
    """Dotted path of the signal's key in the body: `order.id`."""
    header: str
    """With `hmac`: the header that has the signature, in hex."""


def read_hooks(path: str, value: Any) -> tuple[HookEntry, ...]:
    """Read the setting `hooks`.

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
        raise UsageError(f"{path}: hooks must be a list of maps", hint=_EXAMPLE)
    found = [_entry(f"{path}: hooks[{n}]", entry) for n, entry in enumerate(entries)]
    names = [entry.name for entry in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{path}: two hooks have the name '{name}'")
    return tuple(found)


def _entry(place: str, entry: dict[Any, Any]) -> HookEntry:
    unknown = [key for key in entry if key not in _KEYS]
    if unknown:
        raise UsageError(
            f"{place}: unknown key '{unknown[0]}'", hint=known_words(str(unknown[0]), _KEYS)
        )
    missing = [key for key in _NEEDED if not entry.get(key)]
    if missing:
        raise UsageError(f"{place}: '{missing[0]}' is missing", hint=_EXAMPLE)
    scheme, secret, header = entry["scheme"], entry["secret"], entry.get("header", "")
    if scheme not in SCHEMES:
        raise UsageError(f"{place}: scheme is {scheme!r}", hint=f"one of: {', '.join(SCHEMES)}")
    if (scheme == "hmac") != bool(header):
        raise UsageError(f"{place}: 'header' is for the scheme hmac, which needs it")
    texts = (entry["name"], entry["signal"], entry["key"], header)
    if not all(isinstance(text, str) for text in texts) or not _NAME.fullmatch(entry["name"]):
        raise UsageError(f"{place}: name, signal, key and header are texts", hint=_EXAMPLE)
    is_reference = isinstance(secret, dict) and len(secret) == 1 and not secret.keys() - _SOURCES
    if not is_reference or not all(isinstance(value, str) for value in secret.values()):
        raise UsageError(f"{place}: secret names where it is", hint="secret: {env: VARIABLE}")
    return HookEntry(entry["name"], scheme, secret, entry["signal"], entry["key"], header.lower())


_SOURCES = {"env", "file"}

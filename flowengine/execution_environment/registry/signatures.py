"""Signatures for records that are written now and trusted later.

An entry of the registry says what may be killed and deleted, a claim to whom a folder belongs.
Files in a folder may have come from anywhere, so both are signed with the user's own key, which is
in the user's state folder. If no key can be kept, nothing that another process has written is
trusted.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flowengine.store_folder import make_private, state_folder

_FIELD = "proof"
_SIZE = 32
_keys: dict[str, bytes] = {}


def signed(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with a signature.

    Args:
        name: Name of the record: the signature is valid only for it.
        data: Plain data.
    """
    return {**data, _FIELD: _signature(name, data)}


def is_signed(name: str, data: Mapping[str, Any]) -> bool:
    """Return whether data was written by this user, under this name."""
    given = data.get(_FIELD)
    rest = {key: value for key, value in data.items() if key != _FIELD}
    return isinstance(given, str) and hmac.compare_digest(
        given.encode(), _signature(name, rest).encode()
    )


def _signature(name: str, data: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in data.items() if key != _FIELD}
    text = json.dumps([name, plain], sort_keys=True, separators=(",", ":"))
    return hmac.digest(_key(), text.encode(), "sha256").hex()


def _key() -> bytes:
    folder = state_folder()
    key = _keys.get(folder)
    if key is None:
        key = _keys[folder] = _kept_key(folder) or os.urandom(_SIZE)
    return key


def _kept_key(folder: str) -> bytes | None:
    """Return the user's key; it is created if missing."""
    path = os.path.join(folder, "key")
    draft = f"{path}.{os.urandom(6).hex()}"
    try:
        make_private(folder)
        if not os.path.lexists(path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(draft, flags, 0o600), "wb") as file:
                file.write(os.urandom(_SIZE))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process was faster
                os.link(draft, path)
            os.unlink(draft)
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            key = file.read(_SIZE)
    except OSError:
        return None
    return key if len(key) == _SIZE else None

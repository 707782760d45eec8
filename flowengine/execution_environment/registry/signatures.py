"""Signatures for records that are written now and trusted later.

A registry entry determines what can be killed and deleted, and a claim determines the owner of a
directory. Files in a directory may have come from anywhere. Both records are therefore signed with
the user's own key, which is in the user's state directory. If no key can be stored, records of
other processes are not trusted.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Mapping
from typing import Any

from flowengine.durable_files import write_whole
from flowengine.sdk.path_walk import open_file
from flowengine.store_folder import make_private, state_folder

_FIELD = "proof"
_SIZE = 32
_keys: dict[str, bytes] = {}


def signed(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with a signature.

    Args:
        name: Name of the record. The signature is valid only for it.
        data: Plain data.
    """
    return {**data, _FIELD: _signature(name, data)}


def is_signed(name: str, data: Mapping[str, Any]) -> bool:
    """Return whether this user has written the data under this name."""
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
    """Return the user's key. It is created if missing, and replaced if truncated."""
    path = os.path.join(folder, "key")
    try:
        make_private(folder)
        if not os.path.lexists(path):
            write_whole(path, os.urandom(_SIZE), replace=False)
        key = _read_key(path)
        if len(key) != _SIZE:  # earlier signatures can no longer be verified
            write_whole(path, os.urandom(_SIZE))
            key = _read_key(path)
    except OSError:
        return None
    return key


def _read_key(path: str) -> bytes:
    with open(open_file(path), "rb") as file:
        return file.read(_SIZE)

"""Encryption of payloads with keys that Temporal does not have.

AES-SIV gives the same ciphertext for the same value and key, so equal values are kept once in the
object store. Only the equality of two values is visible.
"""

from __future__ import annotations

import os
from base64 import b64decode

from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from flowengine.errors import StoreError, UsageError

VARIABLE = "FLOWENGINE_PAYLOAD_KEYS"
"""The environment variable with the keys: `NAME:BASE64`, separated by commas. The first encrypts,
all decrypt."""
_LENGTHS = (32, 48, 64)
_HINT = "make one: python -c 'import base64, os; print(base64.b64encode(os.urandom(64)).decode())'"
_DOMAIN = [b"flowengine payload"]


class Keys:
    """The keys of a process, in order.

    Args:
        text: See `VARIABLE`.

    Raises:
        UsageError: It is not valid.
    """

    def __init__(self, text: str) -> None:
        self._keys: dict[str, AESSIV] = {}
        for part in text.split(","):
            name, _, encoded = part.strip().partition(":")
            try:
                key = b64decode(encoded, validate=True)
            except ValueError:
                key = b""
            if not name or len(key) not in _LENGTHS:
                raise UsageError(
                    f"{VARIABLE}: each key is NAME:BASE64, of 32, 48 or 64 bytes", hint=_HINT
                )
            self._keys[name] = AESSIV(key)
        self.name = next(iter(self._keys))
        """Name of the key that encrypts."""

    def encrypted(self, value: bytes) -> bytes:
        """Return a value, encrypted with the first key."""
        return self._keys[self.name].encrypt(value, _DOMAIN)

    def decrypted(self, value: bytes, name: str) -> bytes:
        """Return a value that was encrypted with a key.

        Raises:
            StoreError: This process does not have the key, or the value was changed.
        """
        from cryptography.exceptions import InvalidTag

        if name not in self._keys:
            raise no_key(name)
        try:
            return self._keys[name].decrypt(value, _DOMAIN)
        except InvalidTag as error:
            raise StoreError(f"a value was not encrypted with the key {name!r}") from error


def keys() -> Keys | None:
    """Return the keys of this process. None: payloads are not encrypted.

    Raises:
        UsageError: They are not valid, or the package cryptography is missing.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        return Keys(text)
    except ModuleNotFoundError:
        raise UsageError(
            f"{VARIABLE} needs the package cryptography", hint="pip install cryptography"
        ) from None


def no_key(name: str) -> StoreError:
    """Return the error that a key is missing."""
    return StoreError(
        f"a value is encrypted with the key {name!r}, which this process does not have",
        hint=f"add it to {VARIABLE}",
    )

"""Masks secrets in what programs print."""

from __future__ import annotations

from collections.abc import Sequence

MASK = "***"


def masked(data: bytes, secrets: Sequence[bytes]) -> bytes:
    """Return bytes with secrets masked, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        if secret:
            data = data.replace(secret, MASK.encode())
            data = data.replace(secret.replace(b"\n", b"\r\n"), MASK.encode())
    return data

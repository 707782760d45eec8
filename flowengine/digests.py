"""Digests of files and of bytes, for caches and names."""

from __future__ import annotations

import os


def source_digest(path: str) -> str | None:
    """Return the SHA-256 of a file, or of the names in a directory. None: it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except IsADirectoryError:
        try:
            data = "\0".join(sorted(os.listdir(path))).encode("utf-8", "surrogateescape")
        except OSError:
            return None
    except OSError:
        return None
    return digest_of(data)


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal digits."""
    try:  # `hashlib` loads OpenSSL, which takes longer than reading all files of a flow
        from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from hashlib import sha256
    digest: str = sha256(data).hexdigest()
    return digest

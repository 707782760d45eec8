"""Texts of approved tools without an object store: small ones are part of the history."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = 64_000
"""Maximum bytes of a text to keep. Of longer ones, only the digest is known."""
MOST = 256_000
"""Maximum bytes of all texts of an execution."""


class NewTexts:
    """Takes the place of an execution's files while a call is described."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        """Digest → text."""

    def put(self, source: bytes, name: str) -> dict[str, Any]:
        """Keep a text, if it is not too long, and return its digest as a file would."""
        digest = sha256(source).hexdigest()
        if len(source) <= LONGEST:
            self.kept[digest] = source
        return {"name": name, "size": len(source), "sha256": digest}


def add(texts: dict[str, bytes], more: Mapping[str, bytes]) -> None:
    """Add texts to those of an execution, as long as there is room."""
    room = MOST - sum(map(len, texts.values()))
    for digest, text in more.items():
        if digest not in texts and len(text) <= room:
            texts[digest] = text
            room -= len(text)

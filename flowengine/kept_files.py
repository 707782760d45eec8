"""Names of kept files, and how long a file is kept that nothing uses yet."""

from __future__ import annotations

import unicodedata

HELD_SECONDS = 7 * 24 * 3600
"""How long a file is kept to which no execution refers yet."""
_LONGEST_NAME = 255
"""Maximum bytes of a file name in common file systems."""


def clean_name(name: str) -> str:
    """Return a name that is safe as a file name in any directory.

    Args:
        name: An untrusted name.

    Returns:
        The part after the last slash or backslash, without control characters, without spaces or
        dots at its ends, and at most 255 bytes long with its suffix kept. `file` if nothing is
        left.
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    printable = "".join(
        character
        for character in unicodedata.normalize("NFC", last)
        if unicodedata.category(character)[0] != "C"
    ).strip(" .")
    stem, dot, suffix = printable.rpartition(".")
    tail = (dot + suffix).encode() if stem and len(suffix) < 20 else b""
    head = (stem if tail else printable).encode()[: _LONGEST_NAME - len(tail)]
    return head.decode(errors="ignore") + tail.decode() or "file"

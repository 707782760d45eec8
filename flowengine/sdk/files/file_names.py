"""Names for files that third parties have named, and the kept files that values name."""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath
from typing import Any

LONGEST = 255
"""Maximum bytes of a file name in common file systems."""
_SUFFIX_BYTES = 20
SHA256 = re.compile("[0-9a-f]{64}")
_KEPT = {"name", "size", "sha256"}
SIGNATURES = {
    ".png": (b"\x89PNG\r\n\x1a\n",),
    ".jpg": (b"\xff\xd8\xff",),
    ".jpeg": (b"\xff\xd8\xff",),
    ".gif": (b"GIF87a", b"GIF89a"),
    ".webp": (b"RIFF",),
    ".pdf": (b"%PDF-",),
}
"""Ending of a name → the first bytes of such files. Files with other content are refused."""


def clean_name(name: str, longest: int = LONGEST, *, otherwise: str = "file") -> str:
    """Return a name that is safe as a file name in any directory.

    Args:
        name: An untrusted name. A clean one is returned unchanged.
        longest: Maximum bytes. A suffix of at most 20 bytes is kept.
        otherwise: The name if nothing is left.

    Returns:
        The part after the last slash or backslash, without control characters, and without spaces
        or dots at its ends.
    """
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    text = unicodedata.normalize("NFC", "".join(map(_shown, last))).strip(" .")
    suffix = PurePosixPath(text).suffix
    if len(suffix.encode()) > _SUFFIX_BYTES:
        suffix = ""
    stem = text.removesuffix(suffix).encode()[: longest - len(suffix.encode())]
    return f"{stem.decode(errors='ignore').rstrip(' .')}{suffix}" or otherwise


def _shown(character: str) -> str:
    """Return a character, a space for another kind of space, or nothing for a control character."""
    category = unicodedata.category(character)
    if category == "Zs":
        return " "
    return "" if category[0] in {"C", "Z"} else character


def files_in(value: Any) -> list[dict[str, Any]]:
    """Return the kept files that a value names, each once. Their names are untrusted."""
    files: dict[str, dict[str, Any]] = {}
    parts = [value]
    for part in parts:
        if isinstance(part, dict):
            if part.keys() >= _KEPT and SHA256.fullmatch(str(part["sha256"])):
                files.setdefault(part["sha256"], part)
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return list(files.values())

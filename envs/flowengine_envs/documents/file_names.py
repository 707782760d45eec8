"""Names for files that come from elsewhere."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container
from email.message import Message
from mimetypes import guess_extension
from pathlib import PurePosixPath
from urllib.parse import unquote

_BYTES = 150
_SUFFIX_BYTES = 20
_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.I)
_UNSAFE = re.compile(r'[<>:"|?*]')


def offered(disposition: str, path: str, media_type: str) -> str:
    """Return the name that a server gives a file, made safe.

    Args:
        disposition: The header `Content-Disposition`.
        path: The path of its address.
        media_type: Its declared type, for a suffix where the name has none.
    """
    message = Message()
    message["Content-Disposition"] = disposition.replace("\r", "").replace("\n", "")
    name = safe(message.get_filename("") or unquote(path).rpartition("/")[2])
    if "." not in name:
        name += guess_extension(media_type.partition(";")[0].strip()) or ""
    return name


def safe(name: str) -> str:
    """Return the last part of a name without what a file system or a reader could trip over."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    text = "".join(
        sign
        for sign in unicodedata.normalize("NFC", last)
        if unicodedata.category(sign)[0] not in {"C", "Z"} or sign == " "
    )
    text = _UNSAFE.sub("_", text).strip(" .") or "download"
    if _RESERVED.fullmatch(text):
        text = f"_{text}"
    path = PurePosixPath(text)
    suffix = path.suffix if len(path.suffix.encode()) <= _SUFFIX_BYTES else ""
    stem = text.removesuffix(suffix).encode()[: _BYTES - len(suffix.encode())]
    return f"{stem.decode(errors='ignore')}{suffix}"


def unused(name: str, used: Container[str]) -> str:
    """Return a name, with a number where it is in use."""
    path = PurePosixPath(name)
    found, number = name, 2
    while found in used:
        found, number = f"{path.stem}-{number}{path.suffix}", number + 1
    return found

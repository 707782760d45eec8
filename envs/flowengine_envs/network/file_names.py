"""Safe names for files from untrusted sources."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from email.message import Message
from mimetypes import guess_extension
from pathlib import PurePosixPath
from urllib.parse import unquote

from flowengine.sdk.files.file_names import clean_name

_BYTES = 150
_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³]) *(\..*)?", re.I)
"""Names of devices on Windows, with any suffix."""
_UNSAFE = re.compile(r'[<>:"|?*]')


def offered(disposition: str, path: str, media_type: str) -> str:
    """Return a safe form of the name that a server gives a file.

    Args:
        disposition: The header `Content-Disposition`.
        path: The path of its address.
        media_type: Its declared type, for a suffix if the name has none.
    """
    message = Message()
    message["Content-Disposition"] = disposition.replace("\r", "").replace("\n", "")
    name = safe(message.get_filename("") or unquote(path).rpartition("/")[2])
    if "." not in name:
        name += guess_extension(media_type.partition(";")[0].strip()) or ""
    return name


def safe(name: str) -> str:
    """Return the last part of a name, safe for systems, shells and readers.

    The result is not a hidden file, a command option or a device, and looks like its actual type.
    """
    text = _UNSAFE.sub("_", clean_name(name, otherwise="download"))
    if text.startswith(("-", "~")) or _RESERVED.fullmatch(text):
        text = f"_{text}"
    return clean_name(text, _BYTES)


def unused(name: str, used: Iterable[str]) -> str:
    """Return an unused name, with a number if necessary.

    Names that differ only in case or Unicode composition are equal on some file systems.
    """
    taken = {*map(_folded, used)}
    path = PurePosixPath(name)
    unique, number = name, 2
    while _folded(unique) in taken:
        unique, number = f"{path.stem}-{number}{path.suffix}", number + 1
    return unique


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())

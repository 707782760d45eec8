"""The target of an address: a web page, a file of the workspace, or a directory."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from flowengine.sdk.visible_text import one_line
from flowengine.sdk.web.urls import Url, read_url, scheme_of
from flowengine_envs.documents.document import Document
from flowengine_envs.documents.formats import SUFFIXES
from flowengine_envs.documents.markdown import TextSpan, inline, target

_HOST = re.compile(r"(?:localhost|[^\s/:@]+\.[^\W\d_][^\W_-]+)(?::\d{1,5})?", re.IGNORECASE)
_MOST_ENTRIES = 1_000


class Visit(NamedTuple):
    """The page, file or directory at an address."""

    document: Document
    address: str
    """The final address without credentials, or the path of the file."""
    status: str = ""
    """`200 OK`, for web pages."""
    file: str = ""
    """The path below the workspace of a kept download. Pages are not kept."""

    @property
    def succeeded(self) -> bool:
        """Whether it is the requested page, not an error page."""
        return not self.status or self.status < "4"


def destination(address: str, folders: Sequence[str]) -> Url | str:
    """Return the target of an address: a web page, or a path.

    Args:
        address: The address as written by the user.
        folders: Paths of the workspace on the host. Paths below them become relative.

    Raises:
        UrlRefused: It is not a valid address or path.
    """
    scheme = scheme_of(address.strip())
    if scheme and scheme != "file":
        return read_url(address)
    if scheme == "file":
        parts = urlsplit(address.strip())
        if parts.netloc not in {"", "localhost"}:
            return read_url(address)  # it refuses the address
        address = unquote(parts.path)
    for folder in folders:
        if address == folder or address.startswith(f"{folder}/"):
            return address[len(folder) + 1 :] or "."
    return address


def looks_like_host(address: str) -> bool:
    """Return whether an address without a scheme begins with the name of a host."""
    host, slash, _ = address.strip().partition("/")
    named = _HOST.fullmatch(host) is not None
    return named and (bool(slash) or f".{host.rpartition('.')[2].lower()}" not in SUFFIXES)


def listing(path: str, entries: Sequence[Mapping[str, Any]]) -> Document:
    """Return a directory as a document whose links can be visited."""
    normal = posixpath.normpath(path or ".")
    folder = "" if normal == "." else f"{normal}/"
    shown = sorted(entries, key=lambda each: (each["kind"] != "folder", each["path"]))
    lines = []
    for each in shown[:_MOST_ENTRIES]:
        name = str(each["path"]).rpartition("/")[2]
        mark, size = ("/", "") if each["kind"] == "folder" else ("", f" ({each['size']:,} bytes)")
        where = target(f"./{folder}{name}{mark}")
        lines.append(f"- {inline([TextSpan(f'{one_line(name)}{mark}', link=where)])}{size}")
    document = Document("folder", "\n".join(lines), title=folder or "./")
    if len(shown) > _MOST_ENTRIES:
        document.truncated = True
        document.notes.append(f"only {_MOST_ENTRIES:,} of {len(shown):,} entries are shown")
    return document

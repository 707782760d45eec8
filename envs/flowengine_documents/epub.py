"""E-books in EPUB, chapter by chapter."""

from __future__ import annotations

import posixpath
from typing import Any
from urllib.parse import unquote, urlsplit

from flowengine_documents import html
from flowengine_documents.archives import open_archive, parse_xml, read_entry
from flowengine_documents.document import Damaged
from flowengine_documents.encodings import declared_in
from flowengine_documents.markdown import Writer, target
from flowengine_documents.text import noted

_CONTAINER = "META-INF/container.xml"
_PAGES = {"application/xhtml+xml", "text/html", "text/x-oeb1-document", "image/svg+xml"}
_SUFFIXES = (".xhtml", ".html", ".htm")
_ABOUT = {"creator": "Author", "publisher": "Publisher", "date": "Date", "description": "About"}
"""Metadata of a book → its label."""


def convert(data: bytes, out: Writer) -> None:
    """Convert a book.

    Args:
        data: Its bytes.
        out: Receives the text.

    Raises:
        Damaged: Its table of contents or a chapter is missing.
    """
    with open_archive(data, out.limits) as archive:
        roots = parse_xml(read_entry(archive, _CONTAINER)).iterfind(".//{*}rootfile")
        package = next((root.get("full-path", "") for root in roots), "")
        book = parse_xml(read_entry(archive, package))
        out.document.title = (book.findtext("{*}metadata/{*}title") or "").strip()
        for name, label in _ABOUT.items():
            texts = (
                "".join(item.itertext()) for item in book.iterfind(f"{{*}}metadata/{{*}}{name}")
            )
            if text := ", ".join(filter(None, (" ".join(each.split()) for each in texts))):
                out.paragraph(f"{label}: {text}")
        for number, path in enumerate(_chapters(book, posixpath.dirname(package)), 1):
            out.part("chapter", number)
            try:
                page = read_entry(archive, path)
            except Damaged as error:
                out.note(f"chapter {number} cannot be read: {error}")
                continue
            html.convert_text(noted(page, out, declared_in(page)), out, address=_outward)


def _chapters(book: Any, folder: str) -> list[str]:
    """Return the paths of the chapters, in reading order."""
    files = {
        item.get("id"): posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
        for item in book.iterfind("{*}manifest/{*}item")
        if item.get("media-type") in _PAGES or item.get("href", "").lower().endswith(_SUFFIXES)
    }
    spine = (item.get("idref") for item in book.iterfind("{*}spine/{*}itemref"))
    return [files[id] for id in spine if id in files]


def _outward(url: str) -> str:
    """Return the target of a link. Links within the book have no target outside of it."""
    try:
        return target(url) if urlsplit(url).scheme else ""
    except ValueError:
        return ""

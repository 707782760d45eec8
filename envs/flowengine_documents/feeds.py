"""News feeds in RSS and Atom, item by item.

Sources: RSS 0.9x, 1.0 and 2.0, and RFC 4287 (Atom).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

from lxml import etree

from flowengine_documents import html
from flowengine_documents.archives import XML_OPTIONS
from flowengine_documents.document import Damaged
from flowengine_documents.html_parts import paragraphs
from flowengine_documents.markdown import TextSpan, Writer, inline, plain, target
from flowengine_documents.text import noted

_CONTENT = "{http://purl.org/rss/1.0/modules/content/}encoded"
_ATOM = "{http://www.w3.org/2005/Atom}"
_BASE = "{http://www.w3.org/XML/1998/namespace}base"
_ITEMS = frozenset(("item", "entry"))
_DATES = ("pubDate", "published", "date", "updated", "lastBuildDate")
_AUTHORS = ("creator", "author")
_MARKUP = re.compile(r"<[a-zA-Z!/]|&[a-zA-Z#]\w*;")
_MOST_LINKS = 20


def convert(data: bytes, out: Writer, declared: str = "", base: str = "") -> None:
    """Convert a feed.

    Args:
        data: Its bytes.
        out: Receives the text.
        declared: The encoding that a server or message declares.
        base: Its address, against which links are resolved.

    Raises:
        Damaged: It is not XML.
    """
    # Many feeds are not well-formed.
    parser = etree.XMLParser(encoding="utf-8", recover=True, **XML_OPTIONS)
    root = etree.fromstring(noted(data, out, declared).encode("utf-8", "replace"), parser)
    if root is None:
        raise Damaged("the feed is not XML")
    channel = next(root.iterchildren("{*}channel"), root)
    out.document.title = _text(_child(channel, "title"))
    out.heading(1, out.document.title)
    base = _resolved(base, channel.get(_BASE, ""))
    base = _resolved(base, _address(channel, base))
    _write(channel, out, base, ("description", "subtitle", "tagline"))
    items = (each for each in root.iter("{*}*") if etree.QName(each).localname in _ITEMS)
    for number, item in enumerate(items, 1):
        title = _text(_child(item, "title"))
        out.part("item", number, title)
        out.heading(2, title)
        _write(item, out, base, ("content", "description", "summary"))


def _write(element: Any, out: Writer, base: str, bodies: tuple[str, ...]) -> None:
    """Write where a feed or an item is from, and its text."""
    base = _resolved(base, element.get(_BASE, ""))
    address = _address(element, base)
    about = [
        inline([TextSpan(address, link=target(address))]) if target(address) else "",
        next((date for name in _DATES if (date := _text(_child(element, name)))), ""),
        next((author for name in _AUTHORS if (author := _text(_child(element, name)))), ""),
    ]
    if any(about):
        out.paragraph("  \n".join(filter(None, about)))
    body = element.find(_CONTENT)
    if body is None:
        body = next(
            (found for name in bodies if (found := _child(element, name)) is not None), None
        )
    if body is not None:
        _write_body(body, out, address or base)
    for link in _enclosures(element, base):
        out.item(0, link)


def _write_body(body: Any, out: Writer, base: str) -> None:
    kind, before = body.get("type", "html"), out.document.title
    base = _resolved(base, body.get(_BASE, ""))
    if kind == "xhtml":
        html.convert_text(etree.tostring(body, encoding="unicode"), out, base)
    elif kind in {"html", "text/html"} and _MARKUP.search("".join(body.itertext())):
        html.convert_text("".join(body.itertext()), out, base)
    elif kind in {"html", "text", "text/html", "text/plain"}:
        for line in "".join(body.itertext()).strip().splitlines():
            out.paragraph(plain(line.strip()))
    out.document.title = before


def _enclosures(element: Any, base: str) -> Iterator[str]:
    """Yield the files that belong to an item, such as recordings."""
    links = [each for each in element if isinstance(each.tag, str)]
    for each in links[:_MOST_LINKS]:
        name = each.tag.rpartition("}")[2]
        if name == "enclosure" or (name == "link" and each.get("rel") == "enclosure"):
            address = target(_resolved(base, each.get("url") or each.get("href") or ""))
            about = ", ".join(filter(None, (each.get("type", ""), each.get("length", ""))))
            if address:
                yield f"Enclosure: [{address}]({address})" + (f" ({about} bytes)" if about else "")


def _address(element: Any, base: str) -> str:
    """Return the address of the page of a feed or an item."""
    for link in element.iterchildren("{*}link"):
        written = (link.text or "").strip() or link.get("href", "").strip()
        if written and link.get("rel", "alternate") == "alternate":
            return _resolved(_resolved(base, link.get(_BASE, "")), written)
    guid = _child(element, "guid")
    if guid is not None and guid.get("isPermaLink", "true") == "true":
        written = (guid.text or "").strip()
        return written if written.startswith("http") else ""
    return ""


def _resolved(base: str, url: str) -> str:
    try:
        return urljoin(base, url)
    except ValueError:
        return ""


def _child(element: Any, name: str) -> Any:
    """Return the first child of a name in the namespace of feeds, or else in another one."""
    found = [*element.iterchildren(f"{{*}}{name}")]
    own = [each for each in found if each.tag in {name, f"{_ATOM}{name}"}]
    return next(iter([*own, *found]), None)


def _text(element: Any) -> str:
    """Return the text of a title, a name or a date, without markup."""
    if element is None:
        return ""
    name = _child(element, "name")
    text = "".join((element if name is None else name).itertext())
    if element.get("type", "html") != "text" and _MARKUP.search(text):
        text = " ".join(paragraphs(text))
    return " ".join(text.split())

"""OpenDocument texts: their elements become those of a page, which is then read like HTML.

Source: Open Document Format 1.3, part 3, 5 (paragraphs and lists), 9 (tables) and 16 (styles).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from flowengine_documents.archives import parse_xml, read_entry
from flowengine_documents.comments import Remarks
from flowengine_documents.html import HtmlPage
from flowengine_documents.markdown import Writer, target
from flowengine_documents.ods import DRAW, LINK, OFFICE, STYLE, TABLE, TEXT, opened

_TAGS = {
    **{f"{TEXT}{name}": "div" for name in ("section", "index-body", "index-title", "note-body")},
    **{f"{TEXT}p": "p", f"{TEXT}list": "ul", f"{TEXT}list-item": "li", f"{TEXT}list-header": "li"},
    **{f"{TEXT}a": "a", f"{TEXT}span": "span", f"{TEXT}line-break": "br"},
    **{f"{TABLE}table": "table", f"{TABLE}table-row": "tr", f"{TABLE}table-cell": "td"},
    **{f"{DRAW}text-box": "div", f"{DRAW}image": "img", f"{TEXT}s": "span", f"{TEXT}tab": "span"},
}
_DROPPED = {
    *(f"{TEXT}{name}" for name in ("tracked-changes", "sequence-decls", "note-citation", "script")),
    *(f"{OFFICE}{name}" for name in ("annotation", "forms")),
    *(f"{TABLE}covered-table-cell", f"{TEXT}table-of-content-source"),
}
_FO = "{urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0}"
_LOOKS = {
    (f"{_FO}font-weight", "bold"): "b",
    (f"{_FO}font-style", "italic"): "i",
    (f"{STYLE}text-line-through-style", "solid"): "del",
    (f"{STYLE}text-position", "super"): "sup",
    (f"{STYLE}text-position", "sub"): "sub",
    (f"{TEXT}display", "none"): "hidden",
}
_LEVELS = frozenset("123456")
_DEEPEST = 10
"""Maximum depth of styles that are based on others."""


def convert(data: bytes, out: Writer, comments: bool = False) -> None:
    """Convert a text.

    Args:
        data: Its bytes.
        out: Receives the text.
        comments: Whether its comments are included.

    Raises:
        Damaged: It cannot be read.
        PasswordRequired: It is encrypted.
    """
    archive = opened(data, out)
    parts = [parse_xml(read_entry(archive, "content.xml"))]
    if "styles.xml" in archive.NameToInfo:
        parts.append(parse_xml(read_entry(archive, "styles.xml")))
    styles = {
        each.get(f"{STYLE}name"): each
        for part in reversed(parts)
        for each in part.iter(f"{STYLE}style")
    }
    numbered = {
        (each.get(f"{STYLE}name"), level.get(f"{TEXT}level"))
        for part in parts
        for each in part.iter(f"{TEXT}list-style")
        for level in each.iter(f"{TEXT}list-level-style-number")
    }
    remarks = Remarks(out, comments)
    notes: list[Any] = []
    written: list[tuple[str, str]] = []
    for body in parts[0].iter(f"{OFFICE}text"):
        for element in [*body.iter("*")]:
            if element.tag == f"{OFFICE}annotation":
                words = " ".join("".join(line.itertext()) for line in element.iter(f"{TEXT}p"))
                written.append((element.findtext("{*}creator") or "", words))
            elif element.tag == f"{DRAW}object":
                _insert(element, archive, out)
            elif element.tag == f"{TEXT}note":
                notes.append(element)
            _rename(element, styles, numbered)
        for number, note in enumerate(notes, 1):
            content = [*note.iter("div")]
            note.text, note[:] = f"[^{number}]", []
            for first in islice((each for text in content for each in text.iter("p")), 1):
                first.text = f"[^{number}]: {first.text or ''}"
            body.extend(content)
        HtmlPage(out, target).walk(body)
    for author, words in written:
        remarks.write(author, words)
    remarks.finish()


def _rename(element: Any, styles: dict[str, Any], numbered: set[tuple[str, str]]) -> None:
    """Give an element the name and the attributes of HTML."""
    name = element.tag
    element.tag = "template" if name in _DROPPED else _TAGS.get(name, name)
    if name == f"{TEXT}h":
        level = element.get(f"{TEXT}outline-level", "")
        element.tag = f"h{level}" if level in _LEVELS else "h6"
    elif name in {f"{TEXT}s", f"{TEXT}tab"}:
        element.text = " "
    elif element.get(f"{TEXT}display") == "none":
        element.set("hidden", "")
    elif name == f"{TEXT}list":
        _join(element)
        around = [element, *element.iterancestors("ul", "ol")]
        given = next(filter(None, (each.get(f"{TEXT}style-name") for each in around)), "")
        element.tag = "ol" if (given, str(len(around))) in numbered else "ul"
    elif name in {f"{DRAW}frame", f"{DRAW}custom-shape"}:
        for about in (*element.iterchildren("{*}title"), *element.iterchildren("{*}desc")):
            about.tag = "template"
    else:
        for attribute, value in _attributes(element, name):
            element.set(attribute, value)
    if name in {f"{TEXT}span", f"{TEXT}p", f"{TEXT}h"}:
        _show(element, _looks(element.get(f"{TEXT}style-name", ""), styles))


def _join(items: Any) -> None:
    """Join a list that begins with an inner one, as programs write it, to the list before."""
    before, style = items.getprevious(), f"{TEXT}style-name"
    first = [*items[0]] if len(items) else []
    if before is None or before.tag not in {"ul", "ol"} or not len(before):
        return
    if {each.tag for each in first} == {f"{TEXT}list"}:
        for inner in first:
            inner.set(style, inner.get(style) or items.get(style, ""))
        before[-1].extend(first)
        before.extend(items[1:])
        items.getparent().remove(items)


def _attributes(element: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the attributes of an element in HTML."""
    if name == f"{TEXT}a":
        yield "href", element.get(LINK, "")
    elif name == f"{DRAW}image":
        yield "alt", element.getparent().findtext("template") or ""
    elif name == f"{TABLE}table-cell":
        yield "colspan", element.get(f"{TABLE}number-columns-spanned", "1")
        yield "rowspan", element.get(f"{TABLE}number-rows-spanned", "1")


def _show(element: Any, looks: list[str]) -> None:
    """Put the content of a text into elements for its looks. A paragraph can only be hidden."""
    if "hidden" in looks:
        element.set("hidden", "")
    for look in looks if element.tag == "span" else ():
        inner = element.makeelement(look)
        inner.text, inner[:], element.text = element.text, element[:], None
        element.append(inner)


def _looks(name: str, styles: dict[str, Any]) -> list[str]:
    given: dict[str, str] = {}
    for _ in range(_DEEPEST):
        style = styles.get(name)
        if style is None:
            break
        properties = style.find(f"{STYLE}text-properties")
        given = {**(properties.attrib if properties is not None else {}), **given}
        name = style.get(f"{STYLE}parent-style-name", "")
    return [
        look for (key, value), look in _LOOKS.items() if given.get(key, "").split()[:1] == [value]
    ]


def _insert(element: Any, archive: Any, out: Writer) -> None:
    """Put a formula in the place of the object that contains it."""
    path = f"{element.get(LINK, '').strip('./')}/content.xml"
    root = parse_xml(read_entry(archive, path)) if path in archive.NameToInfo else None
    if root is None or not root.tag.endswith("}math"):
        out.note("charts and other objects left out")
        return
    for each in root.iter("{*}*"):
        each.tag = each.tag.rpartition("}")[2]
    element.getparent()[:] = [root]

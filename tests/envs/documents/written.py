"""Files of documents, built from their compact descriptions in `cases/`."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.envs.documents.written_pdf import made_pdf, pdf

FILES = Path(__file__).with_name("files")
OFFICE = "http://schemas.openxmlformats.org"
SPACES = {
    "w": f"{OFFICE}/wordprocessingml/2006/main",
    "r": f"{OFFICE}/officeDocument/2006/relationships",
    "m": f"{OFFICE}/officeDocument/2006/math",
    "a": f"{OFFICE}/drawingml/2006/main",
    "pic": f"{OFFICE}/drawingml/2006/picture",
    "wp": f"{OFFICE}/drawingml/2006/wordprocessingDrawing",
    "dgm": f"{OFFICE}/drawingml/2006/diagram",
    "c": f"{OFFICE}/drawingml/2006/chart",
    "p": f"{OFFICE}/presentationml/2006/main",
    "mc": f"{OFFICE}/markup-compatibility/2006",
    "v": "urn:schemas-microsoft-com:vml",
    "o": "urn:schemas-microsoft-com:office:office",
    "a14": "http://schemas.microsoft.com/office/drawing/2010/main",
    "xlink": "http://www.w3.org/1999/xlink",
    "dc": "http://purl.org/dc/elements/1.1/",
    **{
        name: f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"
        for name in ("office", "table", "text", "style")
    },
    "draw": "urn:oasis:names:tc:opendocument:xmlns:drawing:1.0",
    "fo": "urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0",
    "svg": "urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0",
}
"""Prefixes that need no declaration in cases."""
SHOWN = re.compile(r"^(F\d) (\S+)( together| cells)?: ((?:.*\|\n)*.*)$", re.MULTILINE)
"""Texts of a PDF at their places: `F1 12: 72 700 one | 72 680 two`, `together` in one text object,
or as `cells`, each of which has coordinates of its own. After `|` at its end, a line goes on.
"""
RULED = re.compile(r"^(grid|across|down) (.*) / (.*)$", re.MULTILINE)
"""Lines of a PDF: at these x and these y, as a grid, or those across or down only."""
RTF = (
    r"{\rtf1\ansi\ansicpg1252\deff0"
    r"{\fonttbl{\f0 Arial;}{\f1\fcharset204 Times;}{\f2\fcharset128 Mincho;}}"
)


def built(case: Mapping[str, Any]) -> bytes:
    """Return the file of a case."""
    [kind] = [name for name in KINDS if name in case]
    return KINDS[kind](case[kind])


def _file(name: str) -> bytes:
    return (FILES / name).read_bytes()


def _page(text: str) -> bytes:
    return f"<!doctype html>{text}".encode()


def _rss(items: str) -> bytes:
    return (
        f"<?xml version='1.0'?><!DOCTYPE rss [<!ENTITY y SYSTEM 'file:///etc/passwd'>]><rss>"
        f"<channel><title>News</title>{items}</channel></rss>"
    ).encode()


def _pdf(described: Mapping[int, str] | list[str]) -> bytes:
    """Return a PDF of pages in Helvetica, or of objects, which follow a plain page."""
    if isinstance(described, list):
        return made_pdf(_drawn(page).encode() for page in described)
    objects = {
        1: "<</Type/Catalog/Pages 2 0 R>>",
        2: "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        3: "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<<"
        "/F1 5 0 R>>>>>>",
        4: "",
        5: "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        **described,
    }
    content = _drawn(objects[4])
    objects[4] = f"<</Length {len(content.encode())}>>\nstream\n{content}\nendstream"
    return pdf(*(objects[number].encode() for number in sorted(objects)))


def _drawn(page: str) -> str:
    return RULED.sub(_ruled, SHOWN.sub(_shown, page))


def _shown(texts: re.Match[str]) -> str:
    font, size, how, items = texts.groups()
    places = [item.split(" ", 2) for item in re.split(r" \|(?: |\n *)", items)]
    if how is None:
        return "\n".join(f"BT /{font} {size} Tf {x} {y} Td ({it}) Tj ET" for x, y, it in places)
    if how == " together":
        shown = "\n".join(f"1 0 0 1 {x} {y} Tm ({it}) Tj" for x, y, it in places)
        return f"BT /{font} {size} Tf\n{shown}\nET"
    begin = f"BT 1 0 0 1 0 2 Tm 13 TL /{font} {size} Tf"
    return "\n".join(f"q 1 0 0 1 {x} {y} cm {begin} ({it}) Tj T* ET Q" for x, y, it in places)


def _ruled(lines: re.Match[str]) -> str:
    kind, xs, ys = lines[1], lines[2].split(), lines[3].split()
    across = [f"{xs[0]} {y} m {xs[-1]} {y} l S" for y in ys if kind != "down"]
    return "\n".join(across + [f"{x} {ys[0]} m {x} {ys[-1]} l S" for x in xs if kind != "across"])


@cache
def _template(kind: str) -> Mapping[str, bytes]:
    """Return the parts of an empty document."""
    buffer = io.BytesIO()
    if kind == "docx":
        import docx

        docx.Document().save(buffer)
    elif kind == "pptx":
        import pptx

        pptx.Presentation().save(buffer)
    else:
        import openpyxl

        openpyxl.Workbook().save(buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _office(kind: str, parts: Mapping[str, str]) -> bytes:
    """Return an empty document with parts that are new, or have further elements."""
    made = dict(_template(kind))
    for name, xml in parts.items():
        made[name] = _with(made[name], xml) if name in made else _declared(xml)
    return packed(made)


def _with(part: bytes, xml: str) -> bytes:
    """Add elements to a part. One that can exist once takes the place of the present one."""
    from lxml import etree

    root = etree.fromstring(part)
    place = next((each for each in root if each.tag.endswith("}body")), root)
    default = root.nsmap.get(None, "")
    added = etree.fromstring(_declared(f'<added xmlns="{default}">{xml}</added>'))
    last = next((each for each in place if each.tag.endswith("}sectPr")), None)
    for element in added:
        present = [each for each in place if each.tag == element.tag]
        if len(present) == 1 and element.tag != f"{{{SPACES['w']}}}p":
            place.replace(present[0], element)
        elif last is not None:
            last.addprevious(element)
        else:
            place.append(element)
    written: bytes = etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True)
    return written


def _declared(xml: str) -> bytes:
    """Return XML whose first element declares the prefixes that are used."""
    used = {name for name in re.findall(r"[<\s/](\w+):\w", xml) if name in SPACES}
    needed = "".join(
        f' xmlns:{name}="{SPACES[name]}"' for name in sorted(used) if f"xmlns:{name}=" not in xml
    )
    return re.sub(r"<([\w:-]+)", rf"<\1{needed}", xml, count=1).encode()


def packed(parts: Mapping[str, str | bytes]) -> bytes:
    """Return a ZIP archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _open_document(kind: str, parts: Mapping[str, str]) -> bytes:
    media_type = f"application/vnd.oasis.opendocument.{kind}"
    return packed({"mimetype": media_type, **{name: _declared(xml) for name, xml in parts.items()}})


KINDS: dict[str, Callable[[Any], bytes]] = {
    "file": _file,
    "text": str.encode,
    "latin-1": lambda text: text.encode("latin-1"),
    "page": _page,
    "rss": _rss,
    "rtf": lambda body: f"{RTF}{body}}}".encode("latin-1"),
    "pdf": _pdf,
    "docx": lambda body: _office("docx", {"word/document.xml": body}),
    "office": lambda parts: _office(parts["of"], {k: v for k, v in parts.items() if k != "of"}),
    "odt": lambda parts: _open_document("text", parts),
    "ods": lambda parts: _open_document("spreadsheet", parts),
    "zip": packed,
}

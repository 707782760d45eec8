"""OpenDocument spreadsheets."""

from __future__ import annotations

import io
import zipfile

import pytest

from flowengine_documents.document import (
    ConversionLimits,
    Damaged,
    LimitReached,
    PasswordRequired,
)
from flowengine_envs.documents.converting import convert

NAMES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for name in ("office", "table", "text", "style")
)
OTHERS = 'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:dc="http://purl.org/dc/elements/1.1/"'


def ods(tables: str, styles: str = "", **more: str) -> bytes:
    content = (
        f"<office:document-content {NAMES} {OTHERS}><office:automatic-styles>{styles}"
        f"</office:automatic-styles><office:body><office:spreadsheet>{tables}"
        "</office:spreadsheet></office:body></office:document-content>"
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("content.xml", content)
        for name, text in more.items():
            archive.writestr(name.replace("__", "/") + ".xml", text)
    return buffer.getvalue()


def cell(text: str = "", **attributes: str) -> str:
    named = "".join(
        f' {name.replace("_", ":", 1).replace("_", "-")}="{value}"'
        for name, value in attributes.items()
    )
    shown = "".join(f"<text:p>{line}</text:p>" for line in text.split("\n")) if text else ""
    return f"<table:table-cell{named}>{shown}</table:table-cell>"


def row(*cells: str, more: str = "") -> str:
    return f"<table:table-row{more}>{''.join(cells)}</table:table-row>"


def test_title_encryption_and_damage() -> None:
    meta = (
        f"<office:document-meta {NAMES} {OTHERS}><dc:title>Rents</dc:title></office:document-meta>"
    )
    assert convert(ods("", meta=meta)).title == "Rents"
    manifest = "<m><file-entry><encryption-data/></file-entry></m>"
    with pytest.raises(PasswordRequired):
        convert(ods("", **{"META-INF__manifest": manifest}))
    with pytest.raises(Damaged, match="not well-formed"):
        convert(ods("<table:table>"))
    with pytest.raises(LimitReached, match="unpacked"):
        convert(ods(" " * 20_000), limits=ConversionLimits(unpacked=10_000))

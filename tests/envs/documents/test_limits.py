# Shows W77
"""Malicious files, and files that are too large."""

from __future__ import annotations

import io
import time
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from flowengine_documents.document import (
    ConversionLimits,
    Damaged,
    Document,
    LimitReached,
    Unreadable,
)
from flowengine_envs.documents.converting import convert
from tests.envs.documents.written_pdf import made_pdf, pdf
from tests.rows import each_row

FILES = Path(__file__).with_name("files")
SMALL = ConversionLimits(bytes=2_000_000, unpacked=1_000_000, cells=100, characters=1_000, pages=3)


def packed(**entries: bytes) -> bytes:
    """Return an Office file with the given entries replaced or added."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("[Content_Types].xml", "<Types/>")
        for name, data in entries.items():
            file.writestr(name.replace("__", "/"), data)
    return buffer.getvalue()


def page_with(content: bytes, resources: bytes = b"") -> bytes:
    stream = b"<</Filter/FlateDecode/Length %d>>stream\n%b\nendstream" % (len(content), content)
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]%b/Contents 4 0 R>>" % resources
    pages = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"
    return pdf(b"<</Type/Catalog/Pages 2 0 R>>", pages, page, stream)


def test_a_large_file_is_refused() -> None:
    with pytest.raises(LimitReached, match=r"3,000,000 bytes, but the limit 'bytes' is 2,000,000"):
        convert(b"a" * 3_000_000, "a.txt", limits=SMALL)


@pytest.mark.endurance
@pytest.mark.parametrize("folder", ["word", "ppt", "xl"])
def test_a_zip_bomb_is_refused_before_it_is_unpacked(folder: str) -> None:
    bomb = packed(**{f"{folder}__document.xml": bytes(50_000_000)})

    with pytest.raises(LimitReached, match="the limit 'unpacked' is 1,000,000") as caught:
        convert(bomb, limits=SMALL)
    assert caught.value.limit == "unpacked"


def test_an_archive_of_too_many_entries_is_refused() -> None:
    data = packed(**{f"word__{number}": b"" for number in range(1_001)})

    with pytest.raises(LimitReached, match="the limit 'entries' is 1,000"):
        convert(data, limits=replace(SMALL, entries=1_000))


def repeated(data: bytes, times: int) -> bytes:
    """Return a stream that unpacks to `times` copies, by repeating a compressed block."""
    packer = zlib.compressobj()
    first, again = (packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + again * (times - 1) + packer.flush()  # each block is independent of the others


# Shows W72
def test_a_stream_of_a_pdf_that_unpacks_to_too_much_is_an_error_not_an_empty_page() -> None:
    content = repeated(b"BT (x) Tj ET ".ljust(130_000), 9)

    for resources in (b"", b"/Resources<</Font<<>>>>"):
        data = page_with(content, resources)
        with pytest.raises(LimitReached, match="the limit 'unpacked' is 1,000,000"):
            convert(data, limits=SMALL)
    assert convert(data, limits=replace(SMALL, unpacked=1_500_000)).format == "pdf"


@pytest.mark.parametrize(
    "data",
    [
        pdf(b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R]/Count 1>>"),
        pdf(b"<</Type/Catalog/Pages 1 0 R>>"),
        pdf(b"[" * 10_000 + b"]" * 10_000),
        b"%PDF-1.4\nstartxref\n9\n%%EOF",
        b"%PDF-1.4\n1 0 obj\n<</Prev 9>>",
        (FILES / "groff.pdf").read_bytes()[:1_000],
    ],
    ids=["page tree loop", "pages are the catalogue", "nested", "xref loop", "no end", "cut"],
)
# Shows W72
def test_broken_pdfs_end(data: bytes) -> None:
    try:
        document = convert(data)
    except Unreadable:
        return
    assert document.notes or document.parts == []


def test_an_archive_whose_first_entry_is_broken_is_damaged() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("mimetype", "application/epub+zip" * 20)
    data = bytearray(buffer.getvalue())
    start = data.index(b"mimetype") + len("mimetype")
    data[start : start + 8] = b"\xff" * 8

    with pytest.raises(Damaged, match="cannot be opened"):
        convert(bytes(data))


CHANGED = [
    *("pandoc.docx", "pandoc.pptx", "gnumeric.xlsx", "pandoc.epub", "weasyprint.pdf"),
    "chromium.pdf",
    *("locked.pdf", "pandoc.html", "pandoc.ipynb", "crane.png"),
    *("libreoffice.xls", "libreoffice.ods", "libreoffice.rtf", "rtl_chromium.pdf"),
]


@each_row("name", CHANGED)
# Shows W82
def test_whatever_is_changed_in_a_file_it_is_read_or_unreadable(name: str) -> None:
    read_changed(name, range(1))


@pytest.mark.endurance
@pytest.mark.parametrize("name", CHANGED)
def test_many_more_changes_in_a_file(name: str) -> None:
    read_changed(name, range(1, 50))


def read_changed(name: str, seeds: range) -> None:
    """Read files with some bytes changed or removed. Any error other than `Unreadable` is a bug."""
    original = (FILES / name).read_bytes()
    for seed in seeds:
        chance = Random(seed)
        data = bytearray(original)
        for _ in range(min(chance.choice((1, 3, 20)), len(data) // 60)):
            at = chance.randrange(len(data))
            if chance.random() < 0.6:
                data[at] = chance.randrange(256)
            else:
                del data[at : at + chance.randrange(1, 50)]
        with suppress(Unreadable):
            convert(bytes(data), name)


def test_entities_are_not_expanded_and_nothing_is_loaded(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    body = f"""<!DOCTYPE w [<!ENTITY x SYSTEM "file://{secret}"><!ENTITY a "aaaaaaaaaa">
        <!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><w>&x;&b;</w>"""
    with zipfile.ZipFile(FILES / "pandoc.epub") as book:
        entries = {name.replace("/", "__"): book.read(name) for name in book.namelist()}
    chapter = next(name for name in entries if name.endswith("ch001.xhtml"))
    entries[chapter] = body.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in entries.items():
            file.writestr(name.replace("__", "/"), data)

    assert "hunter2" not in convert(buffer.getvalue()).markdown


def test_tables_are_cut_at_the_limit_of_cells() -> None:
    rows = "".join(f"{number},x\n" for number in range(1_000)).encode()
    document = convert(rows, "a.csv", limits=SMALL)

    assert len(document.tables[0]) == 50
    assert document.truncated
    assert document.notes == ["tables cut after 100 cells (limit 'cells')"]


def test_text_is_cut_at_the_limit_of_characters() -> None:
    document = convert(b"word " * 1_000, "a.txt", limits=SMALL)

    assert len(document.markdown) == 1_000
    assert document.truncated
    assert document.notes == ["cut after 1,000 characters (limit 'characters')"]


def test_a_notebook_nested_too_deeply_is_damaged() -> None:
    data = b'{"nbformat": 4, "cells": ' + b"[" * 100_000

    with pytest.raises(Damaged):
        convert(data, "a.ipynb")


@each_row(
    "data",
    [
        b"{\\rtf1 text",
        b"{\\rtf1 text}}}}}",
        b"{\\rtf1 {\\footnote {\\header text",
        b"{\\rtf1\\ansicpg99999 {\\fonttbl{\\f0\\fcharset7;}} text \\u99999999999? \\uc-5 \\'",
        b"{\\rtf1 {\\stylesheet{\\s1 x",
        b"{\\rtf1\\trowd" + b"\\cellx9" * 2_000 + b"\\intbl" + b"\\cell" * 2_000 + b"\\row text}",
        b"{\\rtf1\\bin99999999999 text",
        b"{\\rtf1 \\ilvl99999 \\ls1 text}",
    ],
)
def test_broken_files_are_read_as_far_as_possible(data: bytes) -> None:
    assert convert(data).format == "rtf"


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(Damaged, match="nested too deeply"):
        convert(b"{\\rtf1" + b"{" * 5_000 + b"text" + b"}" * 5_000)


BASE = "https://www.example.org/guide/page.html"


def read(page: str, base: str = BASE) -> Document:
    return convert(f"<!doctype html>{page}".encode(), "page.html", base=base)


def test_deep_nesting_keeps_the_text() -> None:
    document = read("<div>" * 10_000 + "<p>deep</p><p>text</p>" + "</div>" * 10_000)

    assert document.markdown == "deep\n\ntext"
    assert "nested too deeply" in document.notes[0]


@pytest.mark.endurance
@pytest.mark.parametrize(
    "tag",
    ["ul><li", "blockquote", "table><tr><td", "table><tr><th", "b", "a href=x", "math><msqrt"],
)
def test_any_deep_nesting_is_survived(tag: str) -> None:
    assert "deep" in read(f"<{tag}>" * 600 + "deep").markdown
    assert "deep" in read(f"<{tag}>" * 20_000 + "deep").markdown


def test_a_page_of_very_many_links_is_cut_in_time() -> None:
    """Of what is beyond the limit only the parsing costs CPU time."""

    def cut(links: int) -> float:
        page = "".join(f'<p><a href="/page/{n}">link {n}</a></p>' for n in range(links))
        limits = ConversionLimits(characters=20_000)
        began = time.process_time()
        document = convert(f"<body>{page}</body>".encode(), "a.html", limits=limits)
        took = time.process_time() - began
        assert (len(document.markdown), document.truncated) == (20_000, True)
        assert document.markdown.startswith("[link 0](/page/0)\n\n[link 1](/page/1)")
        return took

    cut(1_000)  # loads what parses
    assert cut(8_000) < 4 * cut(1_000)


Shown = tuple[float, float, str]


def page(*shown: Shown, bold: Sequence[Shown] = ()) -> bytes:
    """Return a page with texts of 10 points at their places."""
    return b"\n".join(
        b"BT /%s 10 Tf %f %f Td (%s) Tj ET" % (font, x, y, text.encode())
        for font, texts in ((b"F1", shown), (b"F2", bold))
        for x, y, text in texts
    )


def test_a_page_of_very_many_aligned_lines_ends() -> None:
    shown = [(60.0 + 40 * (at % 5), 790 - at // 5 * 0.9, f"{at}") for at in range(4_000)]
    began = time.process_time()
    convert(made_pdf([page(*shown)]))

    assert time.process_time() - began < 30

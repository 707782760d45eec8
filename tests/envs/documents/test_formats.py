"""Detection of a file's format and of its text encoding."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from flowengine_documents.document import Damaged, PasswordRequired, UnsupportedFormat
from flowengine_documents.formats import detect
from flowengine_envs.documents.converting import convert
from tests.envs.documents.written_compound import compound
from tests.rows import each_row

FILES = Path(__file__).with_name("files")
MAIL = b"From: a@example.org\nTo: b@example.org\nSubject: s\n\ntext\n"


@each_row(
    ("file", "format"),
    [("pandoc.docx", "docx"), ("pandoc.pptx", "pptx"), ("gnumeric.xlsx", "xlsx"),
     ("pandoc.epub", "epub"), ("groff.pdf", "pdf"), ("crane.png", "image"),
     ("pandoc.html", "html"), ("pandoc.ipynb", "ipynb")],
)  # fmt: skip
@each_row("name", ["", "x.txt", "noise"])
# Shows W54
def test_content_decides(file: str, format: str, name: str) -> None:
    found = detect((FILES / file).read_bytes(), name, "application/octet-stream")

    assert found.format == format
    assert found.note == (f"its name suggests text, but it is {format}" if name == "x.txt" else "")


@each_row(
    ("data", "name", "type", "format"),
    [
        (b"a,b\n1,2\n", "x.csv", "", "csv"),
        (b"a,b\n1,2\n", "", "text/csv; charset=utf-8", "csv"),
        (b"a,b\n1,2\n", "x.txt", "", "text"),
        (b"plain", "x.pdf", "", "text"),
        (b"<p>part</p>", "x.htm", "", "html"),
        (b"<p>part</p>", "", "text/html", "html"),
        (b"<HTML><p>x", "x.csv", "application/pdf", "html"),
        (MAIL, "", "", "eml"),
        (MAIL.replace(b"\n", b"\r\n"), "x.txt", "", "eml"),
        (b"Content-Type: text/html\n\n<p>saved", "x.mhtml", "", "eml"),
        (b"Content-Type: text/html\n\n<p>saved", "", "multipart/related; type=x", "eml"),
        (b"Note: this\nis not a mail", "", "", "text"),
        ("größe".encode("utf-16"), "", "", "text"),
    ],
)
# Shows W54
def test_text_is_told_by_its_form_then_its_type_then_its_name(
    data: bytes, name: str, type: str, format: str
) -> None:
    assert detect(data, name, type).format == format


def archive(**entries: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, text in entries.items():
            file.writestr(name, text)
    return buffer.getvalue()


@each_row(
    ("data", "name", "told"),
    [
        (
            compound({"WordDocument": b"x", "ObjectPool/Workbook": b"x"}),
            "a.doc",
            "Word before 2007",
        ),
        (compound({"PowerPoint Document": b"x"}), "a.ppt", "PowerPoint before 2007"),
        (compound({"Contents": b"x"}), "a.pub", "a compound file of an unknown format"),
        (archive(**{"[Content_Types].xml": "x", "visio/a": ""}), "a.vsdx", "an Office file of"),
        (archive(mimetype="application/vnd.oasis.opendocument.graphics"), "a.odg", "opendocument"),
        (b"MZ" + bytes(200), "a.exe", "a Windows program"),
        (b"ID3\x04" + bytes(200), "a.mp3", "audio"),
        (b"%!PS-Adobe-3.0\n", "a.ps", "PostScript"),
        (bytes(range(256)) * 8, "a.bin", "binary data"),
    ],
)
# Shows W55
def test_other_formats_are_refused_by_name(data: bytes, name: str, told: str) -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        detect(data, name)

    assert told in str(caught.value)
    assert (
        "Supported are pdf, docx, pptx, xlsx, xls, xlsb, odt, ods, rtf, epub, zip, html, feed, "
        in str(caught.value)
    )


def test_encrypted_office_files_say_so() -> None:
    with pytest.raises(PasswordRequired):
        detect(compound({"EncryptionInfo": b"x", "EncryptedPackage": b"x"}), "a.docx")


@each_row(
    "data", [b"", b"PK\x03\x04" + bytes(20), b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)]
)
def test_what_is_broken_is_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        convert(data, "a.docx")


def test_bytes_that_are_no_image_say_so_without_naming_an_object() -> None:
    with pytest.raises(Damaged) as caught:
        convert(b"\x89PNG\r\n\x1a\n and no more", "a.png")

    assert str(caught.value) == "the image cannot be read: it is not a PNG, JPEG, GIF or WebP file"


@each_row("cut", [1, 2, 3])
@each_row("file", ["pandoc.docx", "pandoc.pptx", "gnumeric.xlsx", "pandoc.epub"])
# Shows W77
def test_a_cut_file_is_damaged(file: str, cut: int) -> None:
    data = (FILES / file).read_bytes()

    with pytest.raises(Damaged):
        convert(data[: len(data) * cut // 4], file)

"""Detection of a file's format and of its text encoding."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from flowengine_envs.documents.converters import convert
from flowengine_envs.documents.document import Damaged, PasswordRequired, UnsupportedFormat
from flowengine_envs.documents.formats import detect
from tests.envs.documents.written_compound import compound

FILES = Path(__file__).with_name("files")
MAIL = b"From: a@example.org\nTo: b@example.org\nSubject: s\n\ntext\n"


@pytest.mark.parametrize(
    ("file", "format"),
    [("pandoc.docx", "docx"), ("pandoc.pptx", "pptx"), ("gnumeric.xlsx", "xlsx"),
     ("pandoc.epub", "epub"), ("groff.pdf", "pdf"), ("crane.png", "image"),
     ("pandoc.html", "html"), ("pandoc.ipynb", "ipynb")],
)  # fmt: skip
@pytest.mark.parametrize("name", ["", "x.txt", "noise"])
def test_content_decides(file: str, format: str, name: str) -> None:
    found = detect((FILES / file).read_bytes(), name, "application/octet-stream")

    assert found.format == format
    assert found.note == (f"its name suggests text, but it is {format}" if name == "x.txt" else "")


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
        (archive(mimetype="application/vnd.oasis.opendocument.text"), "a.odt", "opendocument"),
        (b"MZ" + bytes(200), "a.exe", "a Windows program"),
        (b"ID3\x04" + bytes(200), "a.mp3", "audio"),
        (b"%!PS-Adobe-3.0\n", "a.ps", "PostScript"),
        (bytes(range(256)) * 8, "a.bin", "binary data"),
    ],
)
def test_other_formats_are_refused_by_name(data: bytes, name: str, told: str) -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        detect(data, name)

    assert told in str(caught.value)
    assert (
        "Supported are pdf, docx, pptx, xlsx, xls, xlsb, ods, rtf, epub, zip, html, feed, "
        in str(caught.value)
    )


def test_encrypted_office_files_say_so() -> None:
    with pytest.raises(PasswordRequired):
        detect(compound({"EncryptionInfo": b"x", "EncryptedPackage": b"x"}), "a.docx")


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04" + bytes(20), b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)]
)
def test_what_is_broken_is_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        convert(data, "a.docx")


def test_bytes_that_are_no_image_say_so_without_naming_an_object() -> None:
    with pytest.raises(Damaged) as caught:
        convert(b"\x89PNG\r\n\x1a\n and no more", "a.png")

    assert str(caught.value) == "the image cannot be read: it is no PNG, JPEG, GIF or WebP file"


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("file", ["pandoc.docx", "pandoc.pptx", "gnumeric.xlsx", "pandoc.epub"])
def test_a_cut_file_is_damaged(file: str, cut: int) -> None:
    data = (FILES / file).read_bytes()

    with pytest.raises(Damaged):
        convert(data[: len(data) * cut // 4], file)


@pytest.mark.parametrize(
    ("data", "type", "text", "note"),
    [
        ("größe".encode(), "", "größe", ""),
        ("größe".encode("utf-8-sig"), "text/plain; charset=latin-1", "größe", ""),
        ("größe\n".encode("utf-16"), "", "größe", ""),
        ("groesse, a text".encode("utf-16-le"), "", "groesse, a text", ""),
        ("größe".encode("latin-1"), "text/plain; charset=latin-1", "größe", ""),
        ("größe".encode("latin-1"), "", "größe", ""),
        ("港口".encode("gbk"), "text/plain; charset=gbk", "港口", ""),
        ("größe".encode(), "text/plain; charset=gbk", "größe", ""),
        ("größe".encode("latin-1"), "text/plain; charset=ascii", "größe",
         "it is not ascii, as declared. Read as cp1252"),
        ("船は港に入りました。".encode("cp932"), "", "船は港に入りました。",
         "its encoding is not declared. cp932 is a guess"),
        ("Корабль прибыл в порт.".encode("cp1251"), "", "Корабль прибыл в порт.",
         "its encoding is not declared. cp1251 is a guess"),
        (b"a\x81b", "", "a\ufffdb", "1 characters could not be decoded as utf-8"),
        (b"one\r\ntwo\rthree", "", "one\ntwo\nthree", ""),
        (b"a text" * 20 + b"\0 with damage", "", "a text" * 20 + " with damage",
         "1 zero bytes left out"),
    ],
)  # fmt: skip
def test_encodings(data: bytes, type: str, text: str, note: str) -> None:
    document = convert(data, "a.txt", type)

    assert document.markdown == text
    assert document.notes == ([note] if note else [])


def test_a_mail_has_headers_text_and_attachments() -> None:
    mail = (
        b"From: Ana <a@example.org>\r\nTo: b@example.org\r\n"
        b"Subject: =?utf-8?q?Gr=C3=B6=C3=9Fe?=\r\n"
        b"Date: Mon, 2 Nov 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\n"
        b"Content-Type: multipart/mixed; boundary=X\r\n\r\n--X\r\nContent-Type: text/html\r\n\r\n"
        b"<h2>Hi</h2><p>see <a href='https://example.org'>this</a></p>\r\n--X\r\n"
        b"Content-Type: application/pdf\r\nContent-Disposition: attachment; filename=a.pdf\r\n"
        b"Content-Transfer-Encoding: base64\r\n\r\nAAAA\r\n--X--\r\n"
    )
    document = convert(mail)

    assert document.title == "Größe"
    assert document.markdown == (
        "# Größe\n\nFrom: Ana <a@example.org>  \nTo: b@example.org  \n"
        "Date: Mon, 02 Nov 2026 10:00:00 +0000\n\n## Hi\n\nsee [this](https://example.org)\n\n"
        "- Attachment: a.pdf (application/pdf, 3 bytes)"
    )


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_tables_as_text_may_have_any_separator(separator: str) -> None:
    rows = ["name", "price, net"], ["a|b", '"quoted; cell"'], ["c", "1"]
    text = "\n".join(separator.join(f'"{c.strip(chr(34))}"' for c in row) for row in rows)
    document = convert(text.encode(), "a.csv")

    assert document.tables == [[["name", "price, net"], ["a|b", "quoted; cell"], ["c", "1"]]]
    assert "| a\\|b | quoted; cell |" in document.markdown

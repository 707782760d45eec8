"""ZIP archives and their files."""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import replace

import openpyxl
import pytest

from flowengine_documents.document import (
    ConversionLimits,
    Damaged,
    LimitReached,
    PasswordRequired,
    WrongPassword,
)
from flowengine_envs.documents.converting import convert
from tests.envs.documents.test_workbooks import saved
from tests.rows import each_row


def packed(*files: tuple[str, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return buffer.getvalue()


def workbook() -> bytes:
    book = openpyxl.Workbook()
    book.worksheets[0].append(["ship", "tons"])
    return saved(book)


def test_files_follow_each_other_with_their_names() -> None:
    found = convert(
        packed(
            ("notes/read me.md", "# Hello\n\n- a"),
            ("notes/", b""),
            ("sheet.xlsx", workbook()),
            ("page.htm", "<h1>Title</h1>"),
            ("inner.zip", packed(("deep.csv", "a,b\n1,2\n"))),
            ("empty.txt", b""),
            ("program", b"\x7fELF" + bytes(range(256))),
            ("__MACOSX/._page.htm", b"\0\5"),
            ("notes/.DS_Store", b"\0\0\0\1"),
        ),
        "all.zip",
    )

    assert found.markdown == (
        "<!-- file 1 -->\n\n## notes/read me.md\n\n# Hello\n\n- a\n\n"
        "<!-- file 2 -->\n\n## sheet.xlsx\n\n<!-- sheet 1 -->\n\n## Sheet\n\n"
        "| ship | tons |\n| --- | --- |\n\n"
        "<!-- file 3 -->\n\n## page.htm\n\n# Title\n\n"
        "<!-- file 4 -->\n\n## inner.zip\n\n<!-- file 1 -->\n\n## deep.csv\n\n"
        "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n"
        "<!-- file 5 -->\n\n## empty.txt\n\n"
        "<!-- file 6 -->\n\n## program\n\nNot read: it is a program, which cannot be read"
    )
    assert [(part.kind, part.number, part.name) for part in found.parts][:2] == [
        ("file", 1, "notes/read me.md"),
        ("file", 2, "sheet.xlsx"),
    ]
    assert found.markdown[found.parts[2].start :].startswith("<!-- file 3 -->\n\n## page.htm")
    assert found.tables == [[["ship", "tons"]], [["a", "b"], ["1", "2"]]]
    assert (found.format, found.title) == ("zip", "")
    assert found.notes == ["some files of the archive were not read"]


SMALL = ConversionLimits(unpacked=100_000, entries=20)
ZEROS = bytes(60_000)


@each_row(
    ("data", "reason"),
    [
        (packed(("a", bytes(100_001))), "unpacks to 100,001 bytes, but the limit 'unpacked'"),
        (packed(*((f"{n}", b"x") for n in range(21))), "21 entries, but the limit 'entries'"),
    ],
)
def test_a_bomb_is_refused_before_it_is_unpacked(data: bytes, reason: str) -> None:
    with pytest.raises(LimitReached, match=reason):
        convert(data, limits=SMALL)


def test_archives_in_archives_share_the_limits() -> None:
    inner = packed(("a.txt", ZEROS))
    found = convert(packed(("1.zip", inner), ("2.zip", inner), ("b.txt", "seen")), limits=SMALL)

    assert found.markdown.count("Not read: the archive unpacks to 60,000 bytes, but the limit") == 1
    assert found.markdown.endswith("## b.txt\n\nseen")


def test_a_file_of_an_archive_counts_what_its_own_files_unpack_to() -> None:
    inner = packed(("1.zip", packed(("a.txt", ZEROS))))
    found = convert(packed(("1.zip", inner), ("2.zip", inner)), limits=SMALL)

    assert found.markdown.count("Not read: the archive unpacks to 60,000 bytes") == 1


def test_archives_are_read_only_so_deep() -> None:
    data = packed(("a.txt", "deepest"))
    for _ in range(4):
        data = packed(("a.zip", data))

    found = convert(data)
    assert "deepest" not in found.markdown
    assert "Not read: archives in archives are read 3 deep at most" in found.markdown


@each_row(
    ("limits", "note"),
    [
        (replace(SMALL, characters=60), "cut after 60 characters"),
        (replace(SMALL, cells=3), "b.csv: tables cut after 1 cells"),
        (replace(SMALL, pages=1), "cut after 1 files"),
    ],
)
def test_files_share_the_other_limits(limits: ConversionLimits, note: str) -> None:
    table = "a,b\n"
    found = convert(packed(("a.csv", table), ("b.csv", table * 9)), limits=limits)

    assert found.truncated
    assert any(each.startswith(note) for each in found.notes), found.notes


def locked(name: str, content: bytes, password: bytes) -> bytes:
    """Return an archive with a file that is encrypted in the traditional way of PKWARE."""
    keys = [0x12345678, 0x23456789, 0x34567890]

    def update(byte: int) -> None:
        keys[0] = zlib.crc32(bytes([byte]), keys[0] ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
        keys[1] = (keys[1] + (keys[0] & 0xFF)) * 134775813 + 1 & 0xFFFFFFFF
        keys[2] = zlib.crc32(bytes([keys[1] >> 24]), keys[2] ^ 0xFFFFFFFF) ^ 0xFFFFFFFF

    for byte in password:
        update(byte)
    hidden = bytearray()
    for byte in bytes(11) + bytes([zlib.crc32(content) >> 24]) + content:
        word = keys[2] | 2
        hidden.append(byte ^ (word * (word ^ 1) >> 8 & 0xFF))
        update(byte)
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w") as archive:
        archive.writestr(name, bytes(hidden))
    made = bytearray(stored.getvalue())
    for signature, flags, checksum in ((b"PK\3\4", 6, 14), (b"PK\1\2", 8, 16)):
        at = made.index(signature)
        made[at + flags] |= 1
        made[at + checksum : at + checksum + 4] = zlib.crc32(content).to_bytes(4, "little")
        made[at + checksum + 8 : at + checksum + 12] = len(content).to_bytes(4, "little")
    return bytes(made)


def test_encrypted_files_need_their_password() -> None:
    data = locked("secret.txt", b"the anchor is at the pier", b"harbour")

    assert "the anchor is" in convert(data, password="harbour").markdown
    with pytest.raises(PasswordRequired, match="Pass their password"):
        convert(data)
    with pytest.raises(WrongPassword) as caught:
        convert(data, password="hunter2")
    assert "hunter2" not in str(caught.value)
    found = convert(packed(("open.txt", "seen"), ("locked.zip", data)))
    assert found.markdown.endswith(
        "## locked.zip\n\nNot read: its files are encrypted. Pass their password"
    )


def test_damaged_files_do_not_affect_the_others() -> None:
    data = packed(("a.txt", "first" * 99), ("b.txt", "second"))
    at = data.index(b"a.txt") + 8
    found = convert(data[:at] + b"\xff\xff" + data[at + 2 :])

    assert "Not read: 'a.txt' cannot be unpacked" in found.markdown
    assert found.markdown.endswith("## b.txt\n\nsecond")
    with pytest.raises(Damaged):
        convert(data[:-30])


def test_converters_apply_to_files_of_archives() -> None:
    data = packed(("a.ini", "[ships]"))

    def ini(data: bytes, name: str) -> str | None:
        return data.decode() if name.endswith(".ini") else None

    assert "## a.ini\n\n[ships]" in convert(data, added={"ini": ini}).markdown

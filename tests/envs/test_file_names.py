# Shows W62
"""Names for files that are suggested by others, such as servers and pages."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from flowengine_envs.network.file_names import offered, safe, unused
from tests.rows import each_row

NAMES = [
    ("attachment; filename=../../x", "x"),
    ("attachment; filename=/etc/passwd", "passwd"),
    ("attachment; filename=C:\\temp\\x.pdf", "x.pdf"),
    ("attachment; filename=a\0b.pdf", "ab.pdf"),
    ("attachment; filename=CON", "_CON"),
    ("attachment; filename=nul.txt", "_nul.txt"),
    ("attachment; filename=..", "download"),
    ("attachment; filename=.bashrc", "bashrc"),
    ("attachment; filename=" + "x" * 300 + ".pdf", "x" * 146 + ".pdf"),
    ("attachment; filename=report\u202efdp.exe", "reportfdp.exe"),
    ("attachment; filename*=UTF-8''%e2%82%ac.pdf", "€.pdf"),
    ("attachment; filename*=UTF-8''..%2f..%2fx", "x"),
    ('attachment; filename="a;b.pdf"', "a;b.pdf"),
    ("attachment", "page.pdf"),
    ("", "page.pdf"),
]


@each_row(("disposition", "name"), NAMES)
def test_names_of_downloads_are_safe(disposition: str, name: str) -> None:
    assert offered(disposition, "/some/page.pdf", "").partition(".")[0] == name.partition(".")[0]
    assert offered(disposition, "/some/page.pdf", "") == name


def test_names_have_a_suffix_and_are_unused() -> None:
    assert offered("", "/", "application/pdf") == "download.pdf"
    assert offered("", "/report", "image/png; x=y") == "report.png"


@each_row(
    ("suggested", "name"),
    [
        ("", "download"),
        ("...", "download"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("folder/", "folder"),
        ("Screenshot 9.41\u202fAM.png", "Screenshot 9.41 AM.png"),
        ("schöne Grüße.txt", "schöne Grüße.txt"),
        ("-rf", "_-rf"),
        ("~root", "_~root"),
        ("CON .txt", "_CON.txt"),
        ("com¹.tar.gz", "_com¹.tar.gz"),
        ("lpt10", "lpt10"),
        ("n\u202e\u0301.txt", "ń.txt"),
        ("é" * 100 + ".pdf", "é" * 73 + ".pdf"),
        ("x" * 145 + " .pdf", "x" * 145 + ".pdf"),
        ("x" * 10 + "." + "y" * 30, "x" * 10 + "." + "y" * 30),
    ],
)
def test_names_are_safe(suggested: str, name: str) -> None:
    assert safe(suggested) == name


@given(st.text())
@example("COM1.tar.gz")
@example("\ud800.pdf")
@example("..\\..")
@example("a" * 149 + " .b")
def test_any_name_is_made_safe(text: str) -> None:
    name = safe(text)
    assert 0 < len(name.encode()) <= 150
    assert not set(name) & set('/\\\0\n<>:"|?*')
    assert not name.startswith((".", "-", "~", " "))
    assert not name.endswith((".", " "))
    assert safe(name) == name
    assert json.dumps(name)


def test_a_name_that_is_in_use_gets_a_number() -> None:
    assert unused("a.pdf", {"a.pdf", "a-2.pdf"}) == "a-3.pdf"
    assert unused("Report.PDF", ["report.pdf"]) == "Report-2.PDF"
    assert unused("é", [unicodedata.normalize("NFD", "É")]) == "é-2"
    assert unused("b", ["a"]) == "b"

# Shows W62
"""Names for files that are suggested by others, such as servers and pages."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from flowengine_envs.network.file_names import safe
from tests.rows import each_row


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

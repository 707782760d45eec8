# Shows P19, V57
"""The pictures in the documentation can be made again, and the documentation shows each of them."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from scripts.page_pictures import HEIGHT, PHONE, PICTURES, WIDTH, make

DOCS = PICTURES.parent
SIZES = {
    **dict.fromkeys(
        ["inbox", "approval", "execution", "conversation", "executions"], (WIDTH, HEIGHT)
    ),
    "phone": PHONE,
}
LARGEST = 100_000
LARGEST_RECORDING = 400_000  # bytes: a busy machine catches more of what moves


def size_of(picture: Path) -> tuple[int, int]:
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", head[16:])
    return width, height


@pytest.mark.endurance
def test_pictures_are_made_from_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    made = make(tmp_path, tmp_path / "made", ["inbox", "conversation", "phone", "history"])
    assert {one.stem for one in made} == {"inbox", "conversation", "phone", "history"}
    check_recording(made.pop())
    for picture in made:
        assert size_of(picture) == SIZES[picture.stem]
        assert picture.stat().st_size < LARGEST


def check_recording(file: Path) -> None:
    content = file.read_bytes()
    assert content[:4] + content[8:12] == b"RIFFWEBP"
    assert content.count(b"ANMF") > 10
    assert len(content) < LARGEST_RECORDING


def test_each_picture_is_shown_with_a_description() -> None:
    readme, server = (DOCS.parent / "README.md").read_text(), (DOCS / "server.md").read_text()
    shown = dict(re.findall(r"!\[([^\]]{10,})\]\((?:docs/)?pictures/([\w.]+)\)", readme + server))
    names = {"history.webp", *(f"{name}.png" for name in SIZES)}
    assert {*shown.values()} == names == {one.name for one in PICTURES.iterdir()}
    assert "pictures/history.webp" in readme
    check_recording(PICTURES / "history.webp")
    for name, size in SIZES.items():
        picture = PICTURES / f"{name}.png"
        assert size_of(picture) == size
        assert picture.stat().st_size < LARGEST

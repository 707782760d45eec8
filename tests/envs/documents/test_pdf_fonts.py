"""PDF fonts whose characters are defined by tables outside the file."""

from __future__ import annotations

import pytest

from flowengine_envs.documents.converters import convert
from flowengine_envs.documents.document import Document
from tests.envs.documents.written_pdf import pdf


def read(encoding: str, ordering: str, shown: str) -> Document:
    drawn = f"BT /F1 20 Tf 72 700 Td <{shown}> Tj ET"
    font = (
        f"<</Type/Font/Subtype/Type0/BaseFont/Harbour/Encoding/{encoding}/DescendantFonts[<</Type"
        "/Font/Subtype/CIDFontType0/BaseFont/Harbour/CIDSystemInfo<</Registry(Adobe)"
        f"/Ordering({ordering})/Supplement 2>>/FontDescriptor 6 0 R>>]>>"
    )
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R"
        "/Resources<</Font<</F1 5 0 R>>>>>>",
        f"<</Length {len(drawn)}>>\nstream\n{drawn}\nendstream",
        font,
        "<</Type/FontDescriptor/FontName/Harbour/Flags 4/FontBBox[0 0 1000 1000]/ItalicAngle 0"
        "/Ascent 800/Descent -200/CapHeight 700/StemV 80>>",
    ]
    return convert(pdf(*(each.encode() for each in objects)))


@pytest.mark.parametrize(
    ("encoding", "ordering", "coded"),
    [("90ms-RKSJ-H", "Japan1", "shift_jis"), ("EUC-H", "Japan1", "euc_jp"),
     ("ETenms-B5-H", "CNS1", "big5"), ("KSCms-UHC-H", "Korea1", "cp949")],
)  # fmt: skip
def test_characters_of_well_known_tables_are_read(encoding: str, ordering: str, coded: str) -> None:
    document = read(encoding, ordering, "日本海".encode(coded).hex())

    assert document.markdown.endswith("日本海")
    assert document.notes == []


def test_characters_that_one_library_loses_are_read_by_the_other() -> None:
    document = read("GBK-EUC-H", "GB1", "b9d8")

    assert document.markdown.endswith("\u5173")
    assert document.notes == []


def test_what_cannot_be_decoded_is_noted() -> None:
    document = read("Harbour-H", "Nobody", "00010002")

    assert "page 1: only a part of its text can be decoded" in document.notes

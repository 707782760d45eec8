"""PDFs with right-to-left text: order of words and numbers, presentation forms of letters."""

from __future__ import annotations

from flowengine_envs.documents.converting import convert
from tests.envs.documents.written_pdf import pdf

Shown = list[tuple[int, str]]
"""Places from the left, and texts in the order of their letters on the page."""


def page(lines: list[Shown]) -> bytes:
    """Return a PDF of lines in a font that names its characters."""
    drawn = [
        f"BT /F1 10 Tf {x} {700 - 20 * at} Td <{text.encode('utf-16-be').hex()}> Tj ET"
        for at, line in enumerate(lines)
        for x, text in line
    ]
    content = "\n".join(drawn).encode()
    names = (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n1 begincodespacerange\n"
        b"<0000> <ffff>\nendcodespacerange\n1 beginbfrange\n<0000> <ffff> <0000>\nendbfrange\n"
        b"endcmap end end"
    )
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>\nstream\n%b\nendstream" % (len(content), content),
        b"<</Type/Font/Subtype/Type0/BaseFont/X/Encoding/Identity-H/ToUnicode 7 0 R"
        b"/DescendantFonts[<</Type/Font/Subtype/CIDFontType2/BaseFont/X/DW 500"
        b"/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>"
        b"/FontDescriptor 6 0 R>>]>>",
        b"<</Type/FontDescriptor/FontName/X/Flags 4/FontBBox[0 0 1000 1000]/ItalicAngle 0"
        b"/Ascent 800/Descent -200/CapHeight 700/StemV 80>>",
        b"<</Length %d>>\nstream\n%b\nendstream" % (len(names), names),
    )


SHOWN: list[tuple[Shown, str]] = [
    # right-to-left lines with numbers and words of the other direction
    ([(50, "םולש 12 ירפ")], "פרי 12 שלום"),
    ([(50, "12 ירפ")], "פרי 12"),
    ([(50, "ירפ 12")], "12 פרי"),
    ([(50, "ירפ 3 - 1")], "1 - 3 פרי"),
    ([(50, "30/12/2024 דע 12:30-מ")], "מ-12:30 עד 30/12/2024"),
    ([(50, "$5.00 ריחמ")], "מחיר $5.00"),
    ([(50, "!ב John (Smith) א")], "א John (Smith) ב!"),
    ([(50, "(ב) א")], "א (ב)"),
    ([(50, ")ב( א")], "א (ב)"),
    ([(50, "ב .1")], "1. ב"),
    ([(50, "«ב» א")], "א «ב»"),
    # Arabic: signs and percent between European numbers do not join them
    ([(50, "ماع 2024-1 يف")], "في 1-2024 عام"),
    ([(50, "%15 مصخ")], "خصم 15%"),
    ([(50, "\u0663\u066b\u0665 مقر")], "رقم \u0663\u066b\u0665"),
    # presentation forms, with those of several letters
    ([(50, "\ufe8e\ufe92\ufea3\ufeae\ufee3")], "مرحبا"),
    ([(50, "\ufefb")], "لا"),
    ([(50, "\ufb2a\ufb4f")], "אל\u05e9\u05c1"),
    # lines of the other direction with words from right to left
    ([(50, "Peace is םולש, thanks הבר הדות here and again")],
     "Peace is שלום, thanks תודה רבה here and again"),
    # stretches that were drawn in reading order, from the right
    ([(130, " ריחמ"), (100, "1,234"), (50, "ףסכ ")], "מחיר 1,234 כסף"),
    ([(200, "ריחמ"), (50, "ףסכ")], "מחיר כסף"),
    ([(60, "\u05b8"), (60, "ב"), (50, "א")], "ב\u05b8א"),
]  # fmt: skip


def test_lines_are_read_from_their_side() -> None:
    text = convert(page([shown for shown, _ in SHOWN])).markdown.partition("-->\n\n")[2]

    assert text.split("\n") == [read for _, read in SHOWN]


def test_a_page_in_one_direction_quotes_a_line_in_the_other() -> None:
    latin: list[Shown] = [[(50, "A page about cranes and berths of the harbour")]] * 3
    hebrew: list[Shown] = [[(50, "תירבעב אוה הזה ףדה לכש אלמ רופיס")]] * 3

    text = convert(page([*latin, [(50, "12 םולש")]])).markdown
    assert text.endswith("\nשל\u05d5ם 12")
    text = convert(page([*hebrew, [(50, "Windows Server 2019 תכרעמ")]])).markdown
    assert text.endswith("\nמערכת Windows Server 2019")
    text = convert(page([*hebrew, [(50, "See the page called תיב of this book")]])).markdown
    assert text.endswith("\nSee the page called בית of this book")

"""Links that Word documents write as fields, and the codes of other fields."""

from __future__ import annotations

import docx

from tests.envs.documents.test_office_files import add, read
from tests.envs.documents.test_shown_text import run, word
from tests.rows import each_row

BEGIN, SEPARATE, END = (
    f"<w:r><w:fldChar w:fldCharType='{kind}'/></w:r>" for kind in ("begin", "separate", "end")
)


def code(*texts: str) -> str:
    runs = (f"<w:r><w:instrText xml:space='preserve'>{text}</w:instrText></w:r>" for text in texts)
    return "".join(runs)


def field(instruction: str, result: str) -> str:
    return f"{BEGIN}{code(instruction)}{SEPARATE}{result}{END}"


PORT = 'HYPERLINK "https://port.example/a b?x=1&amp;y=2"'
SHOWN = "https://port.example/a%20b?x=1&y=2"
DELETED = f"<w:del>{BEGIN}</w:del>"


@each_row(
    ("inner", "shown"),
    [
        (run("see ") + field(f" {PORT} ", run("the port")) + run("."), f"see [the port]({SHOWN})."),
        (f"<w:fldSimple w:instr='{PORT}'>{run('port')}</w:fldSimple>", f"[port]({SHOWN})"),
        (
            f"{BEGIN}{code('HYPER', 'LINK &quot;https://po', 'rt.example/&quot;')}{SEPARATE}"
            f"{run('the')}{run(' port')}{END}",
            "[the port](https://port.example/)",
        ),
        (field('HYPERLINK \\l "Top"', run("up")), "[up](#Top)"),
        (
            field('HYPERLINK \\o "a tip" "https://a.example/" \\* MERGEFORMAT', run("tip")),
            "[tip](https://a.example/)",
        ),
        (field('HYPERLINK "docs\\\\terms.docx"', run("terms")), "[terms](docs%5Cterms.docx)"),
        (field("HYPERLINK \u201chttps://a.example/\u201d", run("a")), "[a](https://a.example/)"),
        (field('HYPERLINK "javascript:alert(1)"', run("click")), "click"),
        (field("HYPERLINK " + '"' * 9, run("odd")), "odd"),
        (field('REF HYPERLINK "x"', run("Figure 1")), "Figure 1"),
        # A code may contain a field, whose result belongs to the code and is not shown.
        (
            f"{BEGIN}{code('HYPERLINK &quot;')}{field('MERGEFIELD to', run('https://a.example/'))}"
            f"{code('&quot;')}{SEPARATE}{run('merged')}{END}",
            "[merged](https://a.example/)",
        ),
        (
            field('HYPERLINK "https://a.example/"', run("page ") + field("PAGEREF x", run("3"))),
            "[page 3](https://a.example/)",
        ),
        (f"{BEGIN}{code('XE &quot;cranes&quot;')}{END}{run('text')}", "text"),
        # Marks without their counterparts neither hide nor link the text after them.
        (f"{BEGIN}{code(PORT)}{run('text')}", "text"),
        (f"{SEPARATE}{END}{run('text')}{END}", "text"),
        (f"{DELETED}{code(PORT)}{run('text')}{END}", "text"),
        (
            f"<w:del>{field(PORT, '')}</w:del>{field('HYPERLINK https://a.example', run('x'))}",
            "[x](https://a.example)",
        ),
        (
            "<w:r><w:rPr><w:vanish/></w:rPr><w:fldChar w:fldCharType='begin'/>"
            "<w:instrText>TC \"x\"</w:instrText><w:fldChar w:fldCharType='end'/></w:r>"
            + run("text"),
            "text",
        ),
    ],
)  # fmt: skip
def test_fields_in_a_paragraph(inner: str, shown: str) -> None:
    assert word(inner) == shown


def test_a_link_may_extend_over_paragraphs_and_ends_where_it_ends() -> None:
    document = docx.Document()
    address = 'HYPERLINK "https://a.example/"'
    add(document, f"<w:p W>{run('from ')}{BEGIN}{code(address)}{SEPARATE}{run('here')}</w:p>")
    add(document, f"<w:p W>{run('to here')}{END}{run(' not')}</w:p>")

    assert read(document).markdown == (
        "from [here](https://a.example/)\n\n[to here](https://a.example/) not"
    )


def test_fields_nested_without_end_take_no_time() -> None:
    inner = f"{BEGIN}{SEPARATE}" * 5_000 + run("text") + END * 5_000

    assert word(inner) == "text"

"""Rich Text Format."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine_envs.documents.converters import convert
from flowengine_envs.documents.document import Damaged, Document

LIBREOFFICE = Path(__file__).with_name("files") / "libreoffice.rtf"


def test_a_file_of_libreoffice() -> None:
    found = convert(LIBREOFFICE.read_bytes(), "a.rtf")

    assert found.markdown == (
        "# Report Größe 漢字 \U0001f600\n\n"
        "The harbour had **a good year**. See the [statistics *office*]"
        "(https://stats.example.org/x) for *details*.\n\n"
        "- one\n    - deep\n- two\n1. first\n2. second\n\n"
        "| **Month** | **Ships** |\n| --- | --- |\n| January | 120 |\n| Feb | 98 |\n\n"
        "H_2O 10^6 ~~old~~"
    )
    assert (found.format, found.notes) == ("rtf", [])


def read(body: str, comments: bool = False) -> Document:
    fonts = r"{\fonttbl{\f0 Arial;}{\f1\fcharset204 Times;}{\f2\fcharset128 Mincho;}}"
    data = (r"{\rtf1\ansi\ansicpg1252\deff0" + fonts + body + "}").encode("latin-1")
    return convert(data, comments=comments)


ROW = r"\trowd\cellx1000\cellx2000 "


@pytest.mark.parametrize(
    ("body", "markdown"),
    [
        (r"one\par two\line three", "one\n\ntwo  \nthree"),
        (r"{\b bold} \i it{\b both}\i0\plain  x", "**bold** *it****both*** x"),
        (r"a\'e9b \'80", "aéb €"),
        ("a\xe9b", "aéb"),
        (r"{\f1 \'cf\'f0\'e8} \'e9", "При é"),
        (r"{\f2 \'93\'fa\'96\'7b}", "日本"),
        (r"\u233?t\u233\'3f \u-10179?\u-8704? {\uc0\u233 t}", "été \U0001f600 ét"),
        (r"\u8364\par x", "€\n\nx"),
        (r"\{a\}\\ b\~c\-d\_e \emdash  \ldblquote q\rdblquote", "{a}\\ b cd\u2011e — “q”"),
        ("a\r\nb\\\nc", "ab\n\nc"),
        (r"# no\par - no\par {\strike gone}", "\\# no\n\n\\- no\n\n~~gone~~"),
        (r"10{\super 6} H{\sub 2}O x{\up6 2}{\dn6 1}", "10^6 H_2O x^2_1"),
        # what is not the text
        (r"{\*\unknown no}{\pict\wmetafile8 0102}{\info{\author no}}{\xe no}yes", "yes"),
        (r"{\object{\*\objdata 01}{\result shown}}", "shown"),
        (r"seen{\v hidden}{\deleted gone}", "seen"),
        (r"{\pict\bin5 }}}}}x}yes", "yes"),
        (r"{\shp{\*\shpinst{\sp{\sn n}{\sv 1}}{\shptxt box\par}}}", "box"),
        # links
        (r'{\field{\*\fldinst HYPERLINK "https://a.example/"}{\fldrslt{\ul port}}} x',
         "[port](https://a.example/) x"),
        (r'{\field{\*\fldinst{ HYPER}{LINK \\l "top"}}{\fldrslt up}}', "[up](#top)"),
        (r'{\field{\*\fldinst HYPERLINK "javascript:x()"}{\fldrslt a}}b', "ab"),
        (r"{\field{\*\fldinst PAGE}{\fldrslt 3}}", "3"),
        # headings
        (r"{\stylesheet{\s1\b heading 1;}{\s2\outlinelevel1 Own;}}\pard\s1\b One\par"
         r"\pard\plain\s2 Two\par\pard\plain\outlinelevel2 Three\par\pard text",
         "# One\n\n## Two\n\n### Three\n\ntext"),
        # lists
        (r"{\listtext\tab \'b7\tab}\pard\ls1 a\par{\listtext 1)\tab}\pard\ls2\ilvl1 b\par"
         r"{\listtext (iv)\tab}\pard\ls2\ilvl1 c", "- a\n    1. b\n    - (iv) c"),
        (r"{\pntext 1.\tab}a\par{\pntext 2.\tab}b", "1. a\n2. b"),
        (r"\pard\ls1 a\par\pard b", "- a\n\nb"),
        (r"\li0 \bullet\tab a\par\li360 \endash\tab b\par\li0 7.\tab c", "- a\n    - b\n7. c"),
        # tables
        (rf"{ROW}\pard\intbl a\cell b\cell\row {ROW}c\par d\cell e\cell\row\pard x",
         "| a | b |\n| --- | --- |\n| c<br>d | e |\n\nx"),
        (rf"{ROW}\intbl a\cell b\cell\row\trowd\cellx2010 both\cell\row{ROW}c\cell d\cell\row",
         "| a | b |\n| --- | --- |\n| both |  |\n| c | d |"),
        (rf"{ROW}\intbl {{\listtext 1.\tab}}a\cell x\nestcell y\nestcell"
         r"{\*\nesttableprops\trowd\cellx9\nestrow}{\nonesttables\par}\cell\row",
         "| 1. a | x<br>y |\n| --- | --- |"),
        (r"\intbl a\cell b\cell", "| a | b |\n| --- | --- |"),
        # texts beside the document
        (r"a{\footnote\pard note {\i one}\par}b{\footnote two}",
         "a[^1]b[^2]\n\n[^1]: note *one*\n\n[^2]: two"),
        (r"{\header Top\par}{\headerf Top\par}{\footerr 7}text",
         "text\n\nPage header: Top\n\nPage footer: 7"),
    ],
)  # fmt: skip
def test_texts(body: str, markdown: str) -> None:
    assert read(body).markdown == markdown


def test_title_comments_and_hidden_text() -> None:
    found = read(
        r"{\info{\title The  port}}a{\*\atnauthor Ana}{\*\annotation{\*\atnref 1}check}{\v no}"
    )
    wanted = read(r"a{\*\atnauthor Ana}{\*\annotation check}", comments=True)

    assert (found.title, found.markdown) == ("The port", "a")
    assert found.notes == [
        "comments left out: 1 (config: comments)",
        "hidden text left out (places: 1)",
    ]
    assert wanted.markdown == "a\n\nComment by Ana: check"


def test_mails_in_html_are_read_as_such() -> None:
    body = (
        r"\fromhtml1 {\*\htmltag19 <html>}{\*\htmltag64 <p>}\htmlrtf {\b \htmlrtf0 "
        r"{\*\htmltag84 <b>}a < b{\*\htmltag92 </b>}\htmlrtf }\htmlrtf0 \htmlrtf\par\htmlrtf0 "
        r"{\*\htmltag84 <a href='https://a.example/'>}caf\'e9\tab x{\*\htmltag92 </a>}"
        r"{\*\htmltag72 </p>}{\*\htmltag244 <ul><li>one<li>two</ul>}"
    )

    assert read(body).markdown == "**a < b**[café x](https://a.example/)\n\n- one\n- two"


@pytest.mark.parametrize(
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

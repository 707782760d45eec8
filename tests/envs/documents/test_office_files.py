# Shows W75
"""Word and PowerPoint: content that converters often lose."""

# The libraries that write these files give access to most of their XML by private names only.
from __future__ import annotations

import io
import re
import zipfile
from dataclasses import replace
from typing import Any

import docx
import openpyxl
import pptx
import pytest
from docx.opc.constants import RELATIONSHIP_TYPE as RT
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from PIL import Image
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.opc.package import Part as SlidePart
from pptx.opc.packuri import PackURI as SlideURI
from pptx.util import Inches

from flowengine_documents.document import Document
from flowengine_envs.documents.converting import convert
from tests.rows import each_row

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def saved(document: Any) -> bytes:
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def read(document: Any, comments: bool = False) -> Document:
    return convert(saved(document), comments=comments)


def add(document: Any, xml: str) -> None:
    """Append XML to the body."""
    document.element.body.insert(-1, parse_xml(xml.replace(" W", f" {W}", 1)))


# Shows W74
def test_word_blocks_come_in_the_order_of_the_document() -> None:
    document = docx.Document()
    document.add_heading("Top", 0)
    document.add_heading("One", 1)
    document.add_paragraph("before")
    table = document.add_table(2, 2)
    for at, text in enumerate(("a", "b|c", "d", "e\nf")):
        table.cell(at // 2, at % 2).text = text
    document.add_paragraph("after")
    for style, text in (("List Number", "n1"), ("List Number", "n2"), ("List Bullet", "b1"),
                        ("List Bullet 2", "b2"), ("Quote", "said")):  # fmt: skip
        document.add_paragraph(text, style)
    run = document.add_paragraph("plain ").add_run("bold ")
    run.bold = True

    assert read(document).markdown == (
        "# Top\n\n# One\n\nbefore\n\n| a | b\\|c |\n| --- | --- |\n| d | e<br>f |\n\nafter\n\n"
        "1. n1\n2. n2\n- b1\n    - b2\n\n> said\n\nplain **bold**"
    )


def numbered(document: Any, levels: str, *lists: str) -> None:
    """Add a numbering with ID 77, and lists with IDs from 70 that use it."""
    root = document.part.numbering_part.element
    abstract = parse_xml(f'<w:abstractNum {W} w:abstractNumId="77">{levels}</w:abstractNum>')
    root.insert(0, abstract)
    for number, changes in enumerate(lists, 70):
        inner = f'<w:abstractNumId w:val="77"/>{changes}'
        root.append(parse_xml(f'<w:num {W} w:numId="{number}">{inner}</w:num>'))


def level(at: int, format: str, text: str, more: str = "") -> str:
    return (
        f'<w:lvl w:ilvl="{at}"><w:start w:val="1"/><w:numFmt w:val="{format}"/>{more}'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
    )


def put(document: Any, list: int, at: int, text: str, style: str = "Normal") -> None:
    paragraph = document.add_paragraph(text, style)
    place = f'<w:numPr {W}><w:ilvl w:val="{at}"/><w:numId w:val="{list}"/></w:numPr>'
    paragraph._p.get_or_add_pPr().append(parse_xml(place))


def test_word_numbers_of_clauses_and_headings_are_shown() -> None:
    document = docx.Document()
    numbered(
        document,
        level(0, "upperRoman", "Part %1")
        + level(1, "decimal", "%1.%2", "<w:isLgl/>")
        + level(2, "lowerLetter", "(%3)")
        + level(3, "decimal", "%4)"),
        "",
    )
    put(document, 70, 0, "Terms", "Heading 1")
    for at, text in ((1, "Rent"), (2, "due"), (2, "late"), (3, "fee"), (1, "Repairs"), (2, "who")):
        put(document, 70, at, text)
    put(document, 70, 0, "End", "Heading 1")
    table = document.add_table(1, 1)
    put(table.cell(0, 0), 70, 1, "in a cell")

    assert read(document).markdown == (
        "# Part I Terms\n\n- 1.1 Rent\n    - (a) due\n    - (b) late\n"
        "        1. fee\n- 1.2 Repairs\n    - (a) who\n\n# Part II End\n\n"
        "| 2.1 in a cell |\n| --- |"
    )


@each_row("kind", ["docx", "pptx", "xlsx"])
def test_files_saved_as_strict_are_read_like_others(kind: str) -> None:
    document = docx.Document()
    document.add_heading("Top", 1)
    document.add_table(1, 1).cell(0, 0).text = "cell"
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = "Top"
    book = openpyxl.Workbook()
    book.worksheets[0].append(["Top", 1.5])
    buffer, strict = io.BytesIO(), io.BytesIO()
    {"docx": document, "pptx": deck, "xlsx": book}[kind].save(buffer)
    with zipfile.ZipFile(buffer) as before, zipfile.ZipFile(strict, "w") as after:
        for name in before.namelist():
            own = rb"http://schemas\.openxmlformats\.org/(?!package)(\w+)/2006/"
            after.writestr(name, re.sub(own, rb"http://purl.oclc.org/ooxml/\1/", before.read(name)))

    found = convert(strict.getvalue())
    assert "Top" in found.markdown
    assert found == replace(convert(buffer.getvalue()), size=found.size, sha256=found.sha256)


def changed(data: bytes, changes: dict[str, tuple[str, str]], left_out: str = "") -> bytes:
    """Return a file with text replaced in some parts, and without the part `left_out`."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(made, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            if name in changes:
                old, new = (text.encode() for text in changes[name])
                assert old in content
                content = content.replace(old, new)
            if name != left_out:
                after.writestr(name, content)
    return made.getvalue()


WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
SHOW = "application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml"


@each_row(
    ("name", "type"),
    [
        ("a.docm", "application/vnd.ms-word.document.macroEnabled.main+xml"),
        ("a.dotm", "application/vnd.ms-word.template.macroEnabledTemplate.main+xml"),
        ("a.ppsx", SHOW.replace("presentation.main", "slideshow.main")),
        ("a.potx", SHOW.replace("presentation.main", "template.main")),
    ],
)
def test_files_with_macros_templates_and_shows_are_read(name: str, type: str) -> None:
    document, deck = docx.Document(), pptx.Presentation()
    document.add_paragraph("Top")
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = "Top"
    own, made = (WORD, document) if name[1:3] == ".d" else (SHOW, deck)
    data = changed(saved(made), {"[Content_Types].xml": (own, type)})

    found = convert(data, name)
    assert found.markdown.endswith("Top")
    assert found.notes == []


def test_a_file_is_read_although_an_image_is_missing_or_its_properties_are_odd() -> None:
    image = io.BytesIO()
    Image.new("RGB", (2, 2)).save(image, "PNG")
    document, deck = docx.Document(), pptx.Presentation()
    document.add_paragraph("Top")
    document.add_picture(image)
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Top"
    slide.shapes.add_picture(image, 0, 0)
    for data, lost in (
        (saved(document), "word/media/image1.png"),
        (saved(deck), "ppt/media/image1.png"),
    ):
        assert "Top" in convert(changed(data, {}, lost)).markdown
        twice = (
            "</Relationships>",
            '<Relationship Id="rIdX" Target="docProps/app.xml" Type="http://schemas.openxmlformats.org'
            '/package/2006/relationships/metadata/core-properties"/></Relationships>',
        )
        assert "Top" in convert(changed(data, {"_rels/.rels": twice})).markdown


def test_slides_are_read_although_the_library_trips_over_a_shape() -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    frame = slide.shapes.title.text_frame
    frame.text = "Top"
    frame.paragraphs[0].runs[0].hyperlink.address = "https://example.org/lost"
    data = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = ["a"]
    data.add_series("ships", (1,))  # type: ignore[no-untyped-call]
    slide.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, 9, 9, data)
    slide.shapes.add_textbox(0, 9, 9, 9).text_frame.text = "below"
    ink = '<p:contentPart xmlns:p14="http://schemas.microsoft.com/office/powerpoint/2010/main"/>'
    added = (
        "</p:spTree>",
        '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        f'<mc:Choice Requires="p14">{ink}</mc:Choice></mc:AlternateContent></p:spTree>',
    )
    name = "ppt/slides/slide1.xml"
    lost = ('Id="rId2"', 'Id="rIdX"')
    made = changed(changed(saved(deck), {name: added}), {"ppt/slides/_rels/slide1.xml.rels": lost})

    found = convert(changed(made, {}, "ppt/charts/chart1.xml"))
    assert found.markdown == "<!-- slide 1 -->\n\n## Top\n\nbelow"
    assert len(found.notes) == 1
    assert found.notes[0].startswith("slide 1: only the text of a shape can be read: ")


def test_titles_are_titles_at_any_place_and_cells_have_links() -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Top"
    slide.shapes.title._element.nvSpPr.nvPr.find(".//{*}ph").set("idx", "7")
    cell = slide.shapes.add_table(1, 2, *(Inches(1) for _ in range(4))).table.cell(0, 0)
    cell.text = "log"
    cell.text_frame.paragraphs[0].runs[0].hyperlink.address = "https://example.org/log"
    slide.shapes._spTree.findall(".//{*}tc")[1].txBody.p_lst[0].add_r("b")

    assert read(deck).markdown == (
        "<!-- slide 1 -->\n\n## Top\n\n| [log](https://example.org/log) | b |\n| --- | --- |"
    )


def test_word_merged_cells_and_tables_in_cells() -> None:
    document = docx.Document()
    table = document.add_table(3, 3)
    table.cell(0, 0).merge(table.cell(0, 1)).text = "wide"
    table.cell(1, 0).merge(table.cell(2, 0)).text = "tall"
    inner = table.cell(1, 1).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "x", "y"
    table.cell(2, 2).text = "end"

    assert read(document).tables == [[["wide", "", ""], ["tall", "x; y", ""], ["", "", "end"]]]


def test_word_headers_footers_text_boxes_and_controls() -> None:
    document = docx.Document()
    document.sections[0].header.paragraphs[0].text = "ACME"
    document.sections[0].footer.paragraphs[0].text = "Page one"
    add(document, "<w:sdt W><w:sdtContent><w:p><w:r><w:t>in a control</w:t></w:r></w:p>"
        "</w:sdtContent></w:sdt>")  # fmt: skip
    add(document, "<w:p W><w:r><w:t>anchor</w:t><w:pict><w:txbxContent><w:p><w:r>"
        "<w:t>in a box</w:t></w:r></w:p></w:txbxContent></w:pict></w:r></w:p>")  # fmt: skip
    add(document, "<w:p W><w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r></w:p>")

    assert read(document).markdown == (
        "in a control\n\nanchor\n\nin a box\n\nPage header: ACME\n\nPage footer: Page one"
    )


def insert(document: Any, name: str, media_type: str, data: bytes) -> None:
    """Insert a file as programs do that leave its conversion to Word."""
    part = Part(PackURI(f"/word/{name}"), media_type, data, document.part.package)
    id = document.part.relate_to(part, RT.A_F_CHUNK)
    R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    add(document, f'<w:altChunk W xmlns:r="{R}" r:id="{id}"/>')


def test_word_files_inserted_for_word_to_read_are_read() -> None:
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    deepest, inner, document = docx.Document(), docx.Document(), docx.Document()
    deepest.add_paragraph("deepest")
    inner.add_paragraph("from Word")
    for each, into in ((deepest, inner), (inner, document)):
        saved = io.BytesIO()
        each.save(saved)
        insert(into, "inner.docx", word, saved.getvalue())
    page = b"<title>x</title><h1>Terms</h1><p>pay <b>now</b></p>"
    insert(document, "a.html", "text/html", page)
    insert(document, "b.txt", "text/plain", b"# plain\n*text*")
    insert(document, "c.rtf", "application/rtf", b"{\\rtf1 {\\b rich}}")
    insert(document, "e.pdf", "application/pdf", b"%PDF-1.4")
    saved_page = (
        b'MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary="b"\r\n\r\n--b\r\n'
        b"Content-Type: text/html; charset=iso-8859-1\r\n"
        b"Content-Transfer-Encoding: quoted-printable\r\n\r\n<p>caf=E9 <i>au lait</i></p>\r\n"
        b"--b--\r\n"
    )
    insert(document, "d.mht", "message/rfc822", saved_page)

    found = read(document)
    assert found.markdown == (
        "from Word\n\n# Terms\n\npay **now**\n\n\\# plain\n\n*text*\n\n**rich**\n\n"
        "caf\u00e9 *au lait*"
    )
    assert found.title == ""
    assert len(found.notes) == 2
    assert all("inserted from another file was not read" in note for note in found.notes)


def test_word_comments_are_read_at_their_place() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("The crane ")
    loads = paragraph.add_run("lifts 40 t")
    paragraph.add_run(" at sea.")
    document.add_comment(loads, "really?", "Ana  Silva")
    cell = document.add_table(1, 1).cell(0, 0).paragraphs[0]
    document.add_comment([cell.add_run("x" * 90), cell.add_run("y" * 90)], "[long]", "")
    document.add_comment(document.add_paragraph().add_run("Last."), "", "Bo")

    left_out = read(document)
    assert left_out.notes == ["comments left out: 3 (config: comments)"]
    assert "really" not in left_out.markdown
    assert read(document, comments=True).markdown == (
        f"The crane lifts 40 t[^c0] at sea.\n\n| {'x' * 90}{'y' * 90}[^c1] |\n| --- |\n\n"
        'Last.[^c2]\n\n[^c0]: Ana Silva on "lifts 40 t": really?\n\n'
        f'[^c1]: somebody on "{"x" * 90}{"y" * 10}…": [long]\n\n[^c2]: Bo on "Last.":'
    )


# Shows W44
def test_long_texts_for_images_are_cut() -> None:
    html = f'<p>a <img src="https://x.example/i.png" alt="{"obey " * 400}">'
    assert convert(html.encode(), "a.html").markdown == (
        f"a ![{('obey ' * 100)}…](https://x.example/i.png)"
    )


# Shows W76
def test_slides_with_charts_groups_and_hidden_ones() -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Sales"
    data = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = ["Q1", "Q2"]
    data.add_series("2025", (1.5, 2))  # type: ignore[no-untyped-call]
    box = Inches(1), Inches(4), Inches(4), Inches(3)
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *box, data).chart
    chart.chart_title.text_frame.text = "By quarter"
    chart.value_axis.axis_title.text_frame.text = "Tons"
    chart.category_axis.axis_title.text_frame.text = "Quarter"
    group = slide.shapes.add_group_shape()
    for left, text in ((5, "right"), (1, "left")):
        shape = group.shapes.add_textbox(Inches(left), Inches(2), Inches(1), Inches(1))
        shape.text_frame.text = text
    second = deck.slides.add_slide(deck.slide_layouts[6])
    second._element.set("show", "0")

    assert read(deck).markdown == (
        "<!-- slide 1 -->\n\n## Sales\n\nleft\n\nright\n\n### By quarter\n\n"
        "Values: Tons\n\n| Quarter | 2025 |\n| --- | --- |\n| Q1 | 1.5 |\n| Q2 | 2 |\n\n"
        "<!-- slide 2 (hidden) -->"
    )


def test_texts_of_slides_are_read_as_they_are_shown() -> None:
    def numbered(kind: str, start: int = 1) -> str:
        return f"<a:buAutoNum type='{kind}' startAt='{start}'/>"

    first, letters = numbered("arabicPeriod"), numbered("alphaLcParenBoth")
    fifth = numbered("arabicPeriod", 5)
    for paragraphs, markdown in (
        (
            [(0, first), (1, letters), (1, letters), (0, first), (1, letters)],
            "1. x\n    - (a) x\n    - (b) x\n2. x\n    - (a) x",
        ),
        ([(0, fifth), (0, fifth), (0, ""), (0, first)], "5. x\n6. x\n\nx\n\n1. x"),
        ([(0, numbered("romanUcPeriod")), (0, numbered("alphaUcParenR"))], "- I. x\n- A) x"),
    ):
        deck = pptx.Presentation()
        shapes = deck.slides.add_slide(deck.slide_layouts[6]).shapes
        frame = shapes.add_textbox(*[Inches(1)] * 4).text_frame
        for level, bullet in paragraphs:
            paragraph = frame.add_paragraph()
            paragraph.text, paragraph.level = "x", level
            if bullet:
                paragraph._p.get_or_add_pPr().append(drawing(bullet))
        assert read(deck).markdown.partition("\n\n")[2] == markdown

    deck = pptx.Presentation()
    shapes = deck.slides.add_slide(deck.slide_layouts[6]).shapes
    for text, left, top in (
        ("A", 0, 0),
        ("D", 3, 1.05),
        ("B", 3, 0.05),
        ("C", 0, 1.1),
        ("-", 9, 9),
    ):
        box = shapes.add_textbox(*map(Inches, (left, top, 2, 0.5)))
        box.text_frame.text = text
    box._element._nvXxPr.cNvPr.set("hidden", "1")
    shapes[2].click_action.hyperlink.address = "https://example.org"
    run = shapes[3].text_frame.paragraphs[0].add_run()
    run.text = "à"
    run._r.get_or_add_rPr().append(drawing("<a:sym typeface='Wingdings'/>"))
    shapes[0].text_frame.paragraphs[0].runs[0]._r.get_or_add_rPr().set("strike", "sngStrike")
    document = read(deck)
    assert document.markdown.split("\n\n")[1:] == ["~~A~~", "[B](https://example.org)", "C→", "D"]
    assert document.notes == ["hidden text left out (places: 1)"]


def drawing(xml: str) -> Any:
    """Return an element of a drawing."""
    space = "http://schemas.openxmlformats.org/drawingml/2006/main"
    return parse_xml(xml.replace(" ", f' xmlns:a="{space}" ', 1))


def test_charts_in_word_are_tables() -> None:
    deck = pptx.Presentation()
    data = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = ["Q1", "Q2", "Q3"]
    data.add_series("2024", (1.1, None, 0.1 + 0.2))  # type: ignore[no-untyped-call]
    data.add_series("2025", (4, 5))  # type: ignore[no-untyped-call]
    box = Inches(1), Inches(4), Inches(4), Inches(3)
    shapes = deck.slides.add_slide(deck.slide_layouts[6]).shapes
    drawn = shapes.add_chart(XL_CHART_TYPE.LINE, *box, data).chart
    document = docx.Document()
    name = PackURI("/word/charts/chart1.xml")
    chart = Part(name, drawn.part.content_type, drawn.part.blob, document.part.package)
    id = document.part.relate_to(chart, RT.CHART)
    place = (
        f'<w:p W><w:r><w:t>Before.</w:t></w:r><w:r><w:drawing><c:chart r:id="{id}"'
        ' xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"'
        ' xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"/>'
        "</w:drawing></w:r></w:p>"
    )
    add(document, place)
    document.add_paragraph("After.")

    assert read(document).markdown == (
        "Before.\n\n| Category | 2024 | 2025 |\n| --- | --- | --- |\n| Q1 | 1.1 | 4 |\n"
        "| Q2 |  | 5 |\n| Q3 | 0.3 |  |\n\nAfter."
    )


OLD = "http://schemas.openxmlformats.org/presentationml/2006/main"
NEW = "http://schemas.microsoft.com/office/powerpoint/2018/8/main"
RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
DRAWN = "http://schemas.openxmlformats.org/drawingml/2006/main"


@pytest.mark.parametrize(
    ("people", "authors", "comments"),
    [
        (
            f"{RELATED}/commentAuthors",
            f'<p:cmAuthorLst xmlns:p="{OLD}"><p:cmAuthor id="0" name="Ana"/>'
            '<p:cmAuthor id="1" name="Bo"/></p:cmAuthorLst>',
            f'<p:cmLst xmlns:p="{OLD}"><p:cm authorId="0"><p:text>Right?</p:text></p:cm>'
            '<p:cm authorId="1"><p:text>Yes.</p:text></p:cm></p:cmLst>',
        ),
        (
            "http://schemas.microsoft.com/office/2018/10/relationships/authors",
            f'<n:authorLst xmlns:n="{NEW}"><n:author id="{{A}}" name="Ana"/>'
            '<n:author id="{B}" name="Bo"/></n:authorLst>',
            f'<n:cmLst xmlns:n="{NEW}" xmlns:a="{DRAWN}"><n:cm authorId="{{A}}"><n:replyLst>'
            '<n:reply authorId="{B}"><n:txBody><a:p><a:r><a:t>Yes.</a:t></a:r></a:p></n:txBody>'
            "</n:reply></n:replyLst><n:txBody><a:p><a:r><a:t>Right?</a:t></a:r></a:p></n:txBody>"
            "</n:cm></n:cmLst>",
        ),
    ],
    ids=["old", "new"],
)
def test_comments_on_slides_are_read_if_they_are_wanted(
    people: str, authors: str, comments: str
) -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    for owner, kind, name, xml in (
        (deck.part, people, "authors", authors),
        (slide.part, f"{people.rpartition('/')[0]}/comments", "comments", comments),
    ):
        uri = SlideURI(f"/ppt/{name}.xml")
        owner.relate_to(SlidePart(uri, "application/xml", deck.part.package, xml.encode()), kind)

    assert read(deck).notes == ["comments left out: 2 (config: comments)"]
    assert read(deck, comments=True).markdown == (
        "<!-- slide 1 -->\n\nComment by Ana: Right?\n\nComment by Bo: Yes."
    )

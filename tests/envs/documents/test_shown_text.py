"""Visible text in rarely used parts of a file."""

from __future__ import annotations

import io
import zipfile

import docx
import pptx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from pptx.opc.package import Part as SlidePart
from pptx.opc.packuri import PackURI as SlideURI
from pptx.oxml import parse_xml as parse_slide
from pptx.util import Inches

from flowengine_envs.documents.converters import convert
from tests.envs.documents.test_html import read as read_page
from tests.envs.documents.test_office_files import W, add, read

RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
DIAGRAM = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
DRAWN = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDES = "http://schemas.openxmlformats.org/presentationml/2006/main"
COMPATIBLE = "http://schemas.openxmlformats.org/markup-compatibility/2006"
MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
POINTS = (
    f'<dgm:dataModel xmlns:dgm="{DIAGRAM}" xmlns:a="{DRAWN}"><dgm:ptLst>'
    "<dgm:pt type='doc'/>"
    "<dgm:pt><dgm:t><a:p><a:r><a:t>Plan </a:t></a:r><a:r><a:t>it</a:t></a:r></a:p></dgm:t></dgm:pt>"
    "<dgm:pt><dgm:t><a:p><a:r><a:t>Do it</a:t></a:r></a:p></dgm:t></dgm:pt>"
    "<dgm:pt type='pres'><dgm:t><a:p><a:r><a:t>look</a:t></a:r></a:p></dgm:t></dgm:pt>"
    "</dgm:ptLst></dgm:dataModel>"
).encode()


def word(inner: str) -> str:
    """Return the text converted from a paragraph."""
    document = docx.Document()
    spaces = f'xmlns:mc="{COMPATIBLE}" xmlns:v="urn:schemas-microsoft-com:vml"'
    add(document, f"<w:p W {spaces}>{inner}</w:p>")
    return read(document).markdown


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


@pytest.mark.parametrize(
    ("inner", "shown"),
    [
        (f"<w:dir w:val='rtl'>{run('right')}</w:dir>", "right"),
        (f"<w:bdo w:val='rtl'>{run('right')}</w:bdo>", "right"),
        (f"{run('left')}<w:r><w:ptab/></w:r>{run('right')}", "left right"),
        ("<w:r><w:sym w:font='Wingdings' w:char='F0FE'/></w:r>" + run(" paid"), "\u2612 paid"),
        (
            f"<w:r><w:ruby><w:rt>{run('kan')}</w:rt><w:rubyBase>{run('sea')}</w:rubyBase>"
            "</w:ruby></w:r>",
            "sea(kan)",
        ),
        (
            f"<mc:AlternateContent><mc:Choice Requires='x'>{run('new')}</mc:Choice>"
            f"<mc:Fallback>{run('old')}</mc:Fallback></mc:AlternateContent>",
            "new",
        ),
        (
            run("10") + "<w:r><w:rPr><w:position w:val='8'/><w:sz w:val='19'/></w:rPr>"
            "<w:t>6</w:t></w:r>" + run("H") + "<w:r><w:rPr><w:position w:val='-2'/>"
            "<w:sz w:val='19'/></w:rPr><w:t>2</w:t></w:r>",
            "10^6H_2",
        ),
        ("<w:r><w:pict><v:shape><v:textpath string='DRAFT'/></v:shape></w:pict></w:r>", "DRAFT"),
        (
            "<w:r><w:fldChar w:fldCharType='begin'><w:ffData><w:checkBox><w:default w:val='0'/>"
            "<w:checked/></w:checkBox></w:ffData></w:fldChar></w:r>" + run(" paid"),
            "\u2612 paid",
        ),
        (
            "<w:r><w:fldChar w:fldCharType='begin'><w:ffData><w:ddList><w:result w:val='1'/>"
            "<w:listEntry w:val='north'/><w:listEntry w:val='south'/></w:ddList></w:ffData>"
            "</w:fldChar></w:r>",
            "south",
        ),
        (
            "<w:r><w:pict><w:txbxContent><w:p>" + run("outer") + "<w:r><w:pict><w:txbxContent>"
            f"<w:p>{run('inner')}</w:p></w:txbxContent></w:pict></w:r></w:p></w:txbxContent>"
            "</w:pict></w:r>",
            "outer\n\ninner",
        ),
    ],
    ids=["direction", "override", "tab", "symbol", "ruby", "newer", "moved", "art", "tick",
         "choice", "box"],
)  # fmt: skip
def test_word(inner: str, shown: str) -> None:
    assert word(inner) == shown


def test_the_texts_of_diagrams_in_word() -> None:
    document = docx.Document()
    name, package = PackURI("/word/diagrams/data1.xml"), document.part.package
    data = Part(name, "application/xml", POINTS, package)
    id = document.part.relate_to(data, f"{RELATED}/diagramData")
    drawn = f'<dgm:relIds xmlns:dgm="{DIAGRAM}" xmlns:r="{RELATED}" r:dm="{id}"/>'
    add(
        document, f"<w:p W><w:r><w:t>How</w:t></w:r><w:r><w:drawing>{drawn}</w:drawing></w:r></w:p>"
    )

    assert read(document).markdown == "How\n\n- Plan it\n- Do it"


def test_hidden_text_in_word_is_left_out_and_counted() -> None:
    document = docx.Document()
    for name, kind in (("Secret", WD_STYLE_TYPE.PARAGRAPH), ("Covert", WD_STYLE_TYPE.CHARACTER)):
        document.styles.add_style(name, kind).font.hidden = True
    document.add_paragraph("obey", "Secret")
    document.add_paragraph("seen ").add_run("obey", "Covert")
    paragraph = document.add_paragraph("", "Secret")
    paragraph.add_run("shown").font.hidden = False
    paragraph.add_run("obey").font.hidden = True

    found = read(document)
    assert found.markdown == "seen\n\nshown"
    assert found.notes == ["hidden text left out (places: 3)"]


def test_rows_that_begin_later_and_rows_that_were_deleted() -> None:
    document = docx.Document()
    table = document.add_table(3, 2)
    for at, row in enumerate(table.rows):
        for cell in row.cells:
            cell.text = str(at)
    for row, told in ((table.rows[1], "<w:gridBefore w:val='1'/>"), (table.rows[2], "<w:del/>")):
        properties = parse_xml(f"<w:trPr {W}>{told}</w:trPr>")
        row._tr.insert(0, properties)
    table.rows[1]._tr.remove(table.rows[1]._tr.tc_lst[0])

    assert read(document).tables == [[["0", "0"], ["", "1"]]]


def shape(inner: str) -> str:
    return (
        '<p:sp><p:nvSpPr><p:cNvPr id="9" name="n"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/>'
        f"<p:txBody><a:bodyPr/><a:p>{inner}</a:p></p:txBody></p:sp>"
    )


def test_slides_with_diagrams_formulas_and_footers() -> None:
    deck = pptx.Presentation()
    for _ in range(2):
        slide = deck.slides.add_slide(deck.slide_layouts[6])
        for number, (kind, text) in enumerate([("ftr", "ACME 2026"), ("sldNum", "7")], 20):
            slide.shapes._spTree.append(
                parse_slide(
                    f'<p:sp xmlns:p="{SLIDES}" xmlns:a="{DRAWN}"><p:nvSpPr><p:cNvPr id="{number}"'
                    f' name="n"/><p:cNvSpPr/><p:nvPr><p:ph type="{kind}" idx="{number}"/></p:nvPr>'
                    "</p:nvSpPr><p:spPr/><p:txBody><a:bodyPr/><a:p><a:r>"
                    f"<a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
                )
            )
    formula = (
        f'<a14:m xmlns:a14="x"><m:oMath xmlns:m="{MATH}"><m:r><m:t>x</m:t></m:r></m:oMath></a14:m>'
    )
    slide.shapes._spTree.append(
        parse_slide(
            f'<mc:AlternateContent xmlns:mc="{COMPATIBLE}" xmlns:p="{SLIDES}" xmlns:a="{DRAWN}">'
            f'<mc:Choice Requires="a14">{shape(formula)}</mc:Choice>'
            f"<mc:Fallback>{shape('<a:r><a:t>old</a:t></a:r>')}</mc:Fallback></mc:AlternateContent>"
        )
    )
    name, package = SlideURI("/ppt/diagrams/data1.xml"), slide.part.package
    data = SlidePart(name, "application/xml", package, POINTS)
    id = slide.part.relate_to(data, f"{RELATED}/diagramData")
    frame = slide.shapes.add_table(1, 1, *(Inches(1) for _ in range(4)))._element
    graphic = frame.find(f".//{{{DRAWN}}}graphicData")
    graphic.set("uri", DIAGRAM)
    graphic[:] = [
        parse_slide(f'<dgm:relIds xmlns:dgm="{DIAGRAM}" xmlns:r="{RELATED}" r:dm="{id}"/>')
    ]

    assert read(deck).markdown == (
        "<!-- slide 1 -->\n\n<!-- slide 2 -->\n\n$x$\n\n- Plan it\n- Do it\n\n"
        "Slide footer: ACME 2026"
    )


@pytest.mark.parametrize(
    ("page", "markdown"),
    [
        ("<p><input type=checkbox checked> paid <input type=radio> open", "[x] paid [ ] open"),
        ("<p><ruby>sea<rp>(</rp><rt>kan</rt><rp>)</rp></ruby>", "sea(kan)"),
        ("<p>He said <q>no</q>.", 'He said "no".'),
        ("<menu><li>open<li>close</menu>", "- open\n- close"),
        ("<select><optgroup label=Ports><option>Porto</select>", "Ports\n\n[x] Porto"),
        ("<p>a<marquee>b</marquee>c", "a\n\nb\n\nc"),
    ],
)
def test_pages(page: str, markdown: str) -> None:
    assert read_page(page).markdown == markdown


def test_a_table_of_data_with_a_table_in_one_cell_is_a_table() -> None:
    page = (
        "<table><tr><td>a<td>1<tr><td>b<td><table><tr><td>x<td>y</table>"
        "<tr><td>c<td>3<tr><td>d<td>4</table>"
    )

    assert read_page(page).tables == [[["a", "1"], ["b", "x; y"], ["c", "3"], ["d", "4"]]]


def book(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr(
            "META-INF/container.xml",
            '<container><rootfiles><rootfile full-path="book.opf"/></rootfiles></container>',
        )
        for name, text in files.items():
            archive.writestr(name.replace("__", "."), text)
    return buffer.getvalue()


def test_a_book_says_what_it_says_of_itself_and_has_all_chapters() -> None:
    package = (
        "<package xmlns:dc='http://purl.org/dc/elements/1.1/'><metadata><dc:title>Ships</dc:title>"
        "<dc:creator>Ana</dc:creator><dc:creator>Bo</dc:creator>"
        "<dc:publisher>Quay Press</dc:publisher><dc:date>2026</dc:date></metadata><manifest>"
        "<item id='a' href='a.xhtml' media-type='application/xhtml+xml'/>"
        "<item id='b' href='b.html' media-type='application/octet-stream'/>"
        "<item id='c' href='c.svg' media-type='image/svg+xml'/></manifest>"
        "<spine><itemref idref='a'/><itemref idref='b' linear='no'/><itemref idref='c'/></spine>"
        "</package>"
    )
    data = book(
        book__opf=package,
        a__xhtml="<html><body><p>first</p></body></html>",
        b__html="<html><body><p>second</p></body></html>",
        c__svg="<svg xmlns='http://www.w3.org/2000/svg'><text>third</text></svg>",
    )

    assert convert(data).markdown == (
        "Author: Ana, Bo\n\nPublisher: Quay Press\n\nDate: 2026\n\n<!-- chapter 1 -->\n\nfirst\n\n"
        "<!-- chapter 2 -->\n\nsecond\n\n<!-- chapter 3 -->\n\nthird"
    )

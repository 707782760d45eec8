"""Visible text in rarely used parts of a file."""

from __future__ import annotations

import docx
import pptx
from pptx.opc.package import Part as SlidePart
from pptx.opc.packuri import PackURI as SlideURI
from pptx.oxml import parse_xml as parse_slide
from pptx.util import Inches

from tests.envs.documents.test_office_files import add, read

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

"""PowerPoint presentations, slide by slide."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from pptx.opc.package import PartFactory
from pptx.package import Package
from pptx.parts.presentation import PresentationPart
from pptx.text.text import _Run

from flowengine_documents import charts
from flowengine_documents.archives import parse_xml, readable, title_of
from flowengine_documents.comments import Remarks
from flowengine_documents.document import Damaged, Unreadable
from flowengine_documents.markdown import (
    Full,
    TextSpan,
    Writer,
    hidden_note,
    image,
    inline,
    target,
)
from flowengine_documents.text import shown
from flowengine_documents.word_formulas import MATH, latex
from flowengine_documents.word_styles import numbered

_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_BODY = {"BODY", "OBJECT", "VERTICAL_BODY", "VERTICAL_OBJECT"}
_TITLE = {"TITLE", "CENTER_TITLE", "VERTICAL_TITLE"}
_MARGIN = {"DATE", "FOOTER", "SLIDE_NUMBER", "HEADER"}
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_COMPATIBLE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_WITH_MACROS = tuple(
    f"application/vnd.ms-powerpoint.{kind}.macroEnabled.main+xml"
    for kind in ("presentation", "slideshow", "template")
)
_PICTURE = "{http://schemas.openxmlformats.org/presentationml/2006/main}pic"
_ON = ("1", "true")
_FORMATS = {
    **{"alphaLc": "lowerLetter", "alphaUc": "upperLetter"},
    **{"romanLc": "lowerRoman", "romanUc": "upperRoman"},
}
_DEEPEST = 20


def convert(data: bytes, out: Writer, comments: bool = False) -> None:
    """Convert a presentation.

    Args:
        data: Its bytes.
        out: Receives the text.
        comments: Whether its comments are included.

    Raises:
        Damaged: It cannot be opened.
    """
    package, slides = _opened(readable(data, out.limits))
    out.document.title = title_of(package)
    authors, remarks = _authors(package.main_document_part), Remarks(out, comments)
    margins: dict[str, None] = {}
    unseen: list[Any] = []
    for number, slide in enumerate(slides, 1):
        hidden = " (hidden)" if slide.element.get("show") in {"0", "false"} else ""
        title = _title_of(slide)
        name = title.text_frame.text.strip() if title is not None else ""
        out.part("slide", number, " ".join(name.split()), hidden)
        _slide(slide, title, out, unseen)
        margins |= dict.fromkeys(_margins(slide))
        for author, text in _comments(slide.part):
            remarks.write(authors.get(author, ""), text)
    for text in margins:
        out.paragraph(f"Slide footer: {text}")
    remarks.finish()
    if unseen:
        out.note(hidden_note(len(unseen)))


def _opened(data: bytes) -> tuple[Any, list[Any]]:
    """Return the library's objects for a file and its slides, including shows and templates."""
    PartFactory.part_type_for |= dict.fromkeys(_WITH_MACROS, PresentationPart)
    try:
        package = Package.open(io.BytesIO(data))
        return package, [*package.main_document_part.presentation.slides]
    except Exception as error:  # of the library, of lxml, of zipfile
        raise Damaged(f"the presentation cannot be opened: {error}") from None


def _margins(slide: Any) -> Iterator[str]:
    """Yield the texts in the margins of a slide, except for its number."""
    for shape in slide.placeholders:
        if shape.placeholder_format.type.name in _MARGIN - {"SLIDE_NUMBER"}:
            text = " ".join(shape.text_frame.text.split()) if shape.has_text_frame else ""
            if text:
                yield text


def _title_of(slide: Any) -> Any:
    """Return the title placeholder of a slide, or None."""
    shapes = [shape for shape in slide.placeholders if shape.has_text_frame]
    titles = (shape for shape in shapes if shape.placeholder_format.type.name in _TITLE)
    first = next(titles, None) or slide.shapes.title
    return first if first is not None and first.has_text_frame else None


def _slide(slide: Any, title: Any, out: Writer, unseen: list[Any]) -> None:
    if title is not None:
        out.heading(2, inline(_title(title.text_frame), " "))
    for shape in _in_order(slide.shapes):
        if title is None or shape.shape_id != title.shape_id:
            _readable_shape(shape, out, unseen)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        text = slide.notes_slide.notes_text_frame.text.strip()
        if text:
            out.heading(3, "Notes")
            out.paragraph(text.replace("\v", "\n"))


def _authors(part: Any) -> dict[str, str]:
    """Return the names of the authors of comments, by their ids in comments."""
    lists = [*_related(part, "commentAuthors"), *_related(part, "authors")]
    return {item.get("id", ""): item.get("name", "") for each in lists for item in each}


def _comments(part: Any) -> Iterator[tuple[str, str]]:
    """Yield the comments on a slide and their replies: author's id and text.

    Those of newer programs have paragraphs, those of older ones a `text`.
    """
    for comments in _related(part, "comments"):
        for item in comments.iter("{*}cm", "{*}reply"):
            body = item.find("{*}txBody")
            texts = item.iterfind("{*}text") if body is None else body.iter(f"{_DRAWING}t")
            yield item.get("authorId", ""), " ".join(text.text or "" for text in texts)


def _related(part: Any, kind: str) -> Iterator[Any]:
    for relation in part.rels.values():
        if not relation.is_external and relation.reltype.rpartition("/")[2] == kind:
            yield parse_xml(relation.target_part.blob)


def _title(frame: Any) -> Iterator[TextSpan]:
    for paragraph in frame.paragraphs:
        yield from _spans(paragraph)
        yield TextSpan("\n")


def _in_order(shapes: Any) -> list[Any]:
    """Return shapes in reading order: from the top, and in a row from the left.

    Shapes are in one row if their tops differ by less than half the height of the lower one.
    """
    rows: list[list[Any]] = []
    for shape in sorted([*shapes, *_newer(shapes)], key=_place):
        first = rows[-1][0] if rows else None
        if first is not None and _place(shape)[0] - _place(first)[0] < _height(first, shape) / 2:
            rows[-1].append(shape)
        else:
            rows.append([shape])
    return [shape for row in rows for shape in sorted(row, key=lambda each: _place(each)[1])]


def _height(*shapes: Any) -> int:
    return min(getattr(shape, "height", None) or 0 for shape in shapes)


def _place(shape: Any) -> tuple[int, int]:
    try:
        return shape.top or 0, shape.left or 0
    except AttributeError:  # the library does not know the type
        return 0, 0


def _newer(shapes: Any) -> Iterator[Any]:
    """Yield shapes that have a replacement for older programs, such as those with formulas."""
    for alternatives in shapes._element.iterchildren(f"{_COMPATIBLE}AlternateContent"):
        for choice in alternatives.iterchildren(f"{_COMPATIBLE}Choice"):
            yield from (shapes._shape_factory(item) for item in choice if _is_known(item))
            break
        else:
            continue
        if not any(map(_is_known, choice)):
            for other in alternatives.iterchildren(f"{_COMPATIBLE}Fallback"):
                yield from (shapes._shape_factory(item) for item in other if _is_known(item))


def _is_known(element: Any) -> bool:
    """Return whether the library has a class for a shape, which it does not for pen strokes."""
    return hasattr(element, "has_ph_elm")


def _readable_shape(shape: Any, out: Writer, hidden: list[Any]) -> None:
    """Write a shape, or only its texts if the library fails."""
    try:
        _shape(shape, out, hidden)
    except (Full, MemoryError, Unreadable):
        raise
    except Exception as error:  # of the library: it has errors of many types
        reason = str(error) or type(error).__name__
        out.note(f"slide {len(out.document.parts)}: only the text of a shape can be read: {reason}")
        for paragraph in shape._element.iter(f"{_DRAWING}p"):
            out.paragraph("".join(text.text or "" for text in paragraph.iter(f"{_DRAWING}t")))


def _shape(shape: Any, out: Writer, hidden: list[Any], depth: int = 0) -> None:
    if shape.is_placeholder and shape.placeholder_format.type.name in _MARGIN:
        return
    properties = getattr(getattr(shape._element, "_nvXxPr", None), "cNvPr", None)
    if properties is not None and properties.get("hidden") in _ON:
        hidden.append(shape)
        return
    if getattr(shape, "shapes", None) is not None and depth < _DEEPEST:
        for inner in _in_order(shape.shapes):
            _shape(inner, out, hidden, depth + 1)
    elif getattr(shape, "has_table", False) and shape.has_table:
        out.table(_rows(shape.table))
    elif getattr(shape, "has_chart", False) and shape.has_chart:
        charts.write(shape.chart._chartSpace, out)
    elif shape.has_text_frame and any(_spans_of(shape)):
        _text(shape, out, _address(properties, shape.part))
    elif texts := [*charts.texts(shape._element, shape.part)]:
        for text in texts:
            out.item(0, text)
    else:
        alt = "" if properties is None else properties.get("descr", "")
        if alt or shape._element.tag == _PICTURE:
            link = _address(properties, shape.part)
            out.block(inline([image(alt or "image", "")._replace(link=link)]))


def _spans_of(shape: Any) -> Iterator[str]:
    for paragraph in shape.text_frame.paragraphs:
        yield from (span.text.strip() for span in _spans(paragraph))


def _text(shape: Any, out: Writer, link: str) -> None:
    is_list = shape.is_placeholder and shape.placeholder_format.type.name in _BODY
    counts: dict[int, tuple[str, int]] = {}
    for paragraph in shape.text_frame.paragraphs:
        text = inline(_spans(paragraph, link))
        properties = paragraph._p.pPr
        bullets = (
            [] if properties is None else [str(each.tag).rpartition("}")[2] for each in properties]
        )
        level = paragraph.level
        if not text:
            continue
        mark = "" if properties is None else _number(properties, level, counts)
        for deeper in [each for each in counts if each > level or (each == level and not mark)]:
            del counts[deeper]  # the next number there is the first one
        if mark[:-1].isdigit():
            out.item(level, text, f"{mark[:-1]}.")
        elif mark:
            out.item(level, f"{mark} {text}")
        elif ("buChar" in bullets or is_list or level > 0) and "buNone" not in bullets:
            out.item(level, text)
        else:
            out.paragraph(text)


def _number(properties: Any, level: int, counts: dict[int, tuple[str, int]]) -> str:
    """Return the number of a paragraph, with its period or parenthesis, empty if it has none."""
    found = properties.find(f"{_DRAWING}buAutoNum")
    if found is None:
        return ""
    kind, start = found.get("type", ""), found.get("startAt", "1")
    before, count = counts.get(level, ("", 0))
    if before != kind + start:
        count = int(start) - 1
    counts[level] = (kind + start, count + 1)
    format = next((word for begin, word in _FORMATS.items() if kind.startswith(begin)), "")
    text = numbered(count + 1, format)
    if kind.endswith("ParenBoth"):
        return f"({text})"
    return f"{text})" if kind.endswith("ParenR") else f"{text}."


def _spans(paragraph: Any, around: str = "") -> Iterator[TextSpan]:
    for child in paragraph._p:
        if child.tag == f"{_DRAWING}r":
            run = _Run(child, paragraph)
            look = child.find(f"{_DRAWING}rPr")
            link = _address(look, paragraph.part) or around
            bold, italic = (look is not None and look.get(name) in _ON for name in ("b", "i"))
            strike = look is not None and look.get("strike", "noStrike") != "noStrike"
            text = shown(run.text, _font(look, run.text))
            yield TextSpan(text, bold, italic, strike=strike, link=link, script=_script(look))
        elif child.tag == f"{_DRAWING}br":
            yield TextSpan("\n")
        elif child.tag == f"{_DRAWING}fld":
            yield TextSpan(child.findtext(f"{_DRAWING}t") or "")
        else:
            for formula in child.iter(f"{MATH}oMath"):
                yield TextSpan(f"${latex(formula)}$", raw=True)


def _address(look: Any, part: Any) -> str:
    """Return the target of a run's link, empty if there is none or the file does not contain it."""
    click = None if look is None else look.find(f"{_DRAWING}hlinkClick")
    id = "" if click is None else click.get(f"{_RELATION}id", "")
    relation = part.rels.get(id)
    return target(relation.target_ref) if relation is not None and relation.is_external else ""


def _font(look: Any, text: str) -> str:
    """Return the font of a run. The one for symbols has an effect only on a symbol alone."""
    for kind in ("sym", "latin") if len(text.strip()) == 1 else ("latin",):
        font = None if look is None else look.find(f"{_DRAWING}{kind}")
        if font is not None:
            return str(font.get("typeface", ""))
    return ""


def _script(look: Any) -> str:
    """Return whether a run is above or below the line, as in `TextSpan.script`."""
    raised = 0 if look is None else int(look.get("baseline", "0").rstrip("%").partition(".")[0])
    return "^" if raised > 0 else "_" if raised < 0 else ""


def _rows(table: Any) -> Iterator[list[str]]:
    for row in table.rows:
        yield ["" if cell.is_spanned else _cell(cell) for cell in row.cells]


def _cell(cell: Any) -> str:
    lines = (inline(_spans(paragraph), "\n") for paragraph in cell.text_frame.paragraphs)
    return "\n".join(filter(None, lines))

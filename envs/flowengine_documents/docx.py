"""Word documents, in reading order."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.part import Part, PartFactory
from docx.package import Package
from docx.parts.document import DocumentPart
from docx.parts.image import ImagePart

from flowengine_documents import charts, html, mail, rtf
from flowengine_documents.archives import parse_xml, readable, title_of
from flowengine_documents.comments import WordComments, leave_out
from flowengine_documents.document import ConversionLimits, Damaged, Table, Unreadable
from flowengine_documents.formats import detect, encoding_of
from flowengine_documents.markdown import (
    TextSpan,
    Writer,
    hidden_note,
    image,
    inline,
    plain,
    target,
)
from flowengine_documents.text import lines, noted, shown
from flowengine_documents.word_formulas import MATH, latex
from flowengine_documents.word_styles import Fields, Numbering, Styles, is_on, link_of

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_COMPATIBLE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"
_CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_VML = "{urn:schemas-microsoft-com:vml}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_NOTES = {"footnotes": ("footnote", ""), "endnotes": ("endnote", "e")}
_TRANSPARENT = {
    *(f"{W}{name}" for name in ("ins", "moveTo", "smartTag", "customXml", "sdtContent")),
    *(f"{W}{name}" for name in ("dir", "bdo", "fldSimple")),
    *(f"{_COMPATIBLE}{name}" for name in ("AlternateContent", "Choice")),
}
_SIGNS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "\u2011"}
_TICKED, _OPEN = "\u2612", "\u2610"
_UNREAD = "a part that was inserted from another file was not read"
_CODE = re.compile(r"[0-9A-Fa-f]{1,4}")
_IN_SYMBOL_FONT = re.compile("[\0-\xff\ud800-\uf8ff]")
_MARKDOWN_NUMBER = re.compile(r"\d+[.)]")


def convert(data: bytes, out: Writer, comments: bool = False) -> None:
    """Convert a Word document.

    Args:
        data: Its bytes.
        out: Receives the text.
        comments: Whether its comments are included.

    Raises:
        Damaged: It cannot be opened.
    """
    package = _opened(data, out.limits)
    out.document.title = title_of(package)
    Word(package.main_document_part, out, comments).convert()


def _opened(data: bytes, limits: ConversionLimits) -> Any:
    """Return the library's object for a Word file, including templates and files with macros."""
    data = readable(data, limits)
    PartFactory.part_class_selector = _class_of_part
    try:
        package = Package.open(io.BytesIO(data))
        package.main_document_part.element.body  # noqa: B018 - so that it is read here
        return package
    except Exception as error:  # of the library, of lxml, of zipfile
        raise Damaged(f"the Word document cannot be opened: {error}") from None


def _class_of_part(_media_type: str, relation: str) -> Any:
    """Return the library's class for a part.

    An inserted file declares its type as that of a document.
    """
    known = {
        RELATIONSHIP_TYPE.IMAGE: ImagePart,
        RELATIONSHIP_TYPE.A_F_CHUNK: Part,
        RELATIONSHIP_TYPE.OFFICE_DOCUMENT: DocumentPart,
    }
    return known.get(relation)


class Word:
    """A document that is being converted.

    Args:
        part: The main part of the package.
        out: Receives the text.
        comments: Whether its comments are included.
        inserted: Whether it is a part of another document.
    """

    def __init__(self, part: Any, out: Writer, comments: bool, inserted: bool = False) -> None:
        self._part = part
        self._is_inserted = inserted
        self._out = out
        related = {
            rel.reltype.rpartition("/")[2]: rel for rel in part.rels.values() if not rel.is_external
        }
        self._related = {name: rel.target_part for name, rel in related.items()}
        self._hidden = 0
        """Number of runs with hidden text."""
        self._fields = Fields()
        self._fields.prepare(part.element)
        self._styles = Styles(self._xml("styles"))
        self._numbering = Numbering(self._xml("numbering"))
        self._joined: list[TextSpan] = []
        """The text of paragraphs that the next one continues."""
        self._boxes: list[Any] = []
        """Text boxes anchored in the paragraph that is being read."""
        self._charts: list[Any] = []
        """Charts anchored there."""
        self._diagrams: list[str] = []
        """Texts of diagrams anchored there."""
        root = self._xml("comments")
        elements = [] if root is None else [*root.iterchildren(f"{W}comment")]
        self._remarks = {item.get(f"{W}id", ""): item for item in elements}
        self._wants_comments = comments
        self._comments = WordComments([*self._remarks] if comments else [])

    def _xml(self, name: str) -> Any:
        part = self._related.get(name)
        return None if part is None else self._parsed(part)

    def _parsed(self, part: Any) -> Any:
        root = parse_xml(part.blob)
        self._fields.prepare(root)
        return root

    def convert(self) -> None:
        """Convert the body, then the other parts."""
        for body in self._part.element.iterchildren(f"{W}body"):
            self._blocks(body)
        for name, (tag, mark) in _NOTES.items():
            self._footnotes(self._xml(name), tag, mark)
        self._margins()
        self._write_comments()
        if self._hidden:
            self._out.note(hidden_note(self._hidden))

    def _blocks(self, parent: Any) -> None:
        for child in parent:
            if child.tag == f"{W}p":
                self._paragraph(child)
            elif child.tag == f"{W}tbl":
                self._table(child)
            elif child.tag == f"{W}sdt":
                self._blocks(child.iterchildren(f"{W}sdtContent"))
            elif child.tag in _TRANSPARENT:
                self._blocks(child)
            elif child.tag == f"{W}altChunk":
                self._insert(child)
            else:
                self._limit_of_comment(child)

    def _insert(self, chunk: Any) -> None:
        """Write a file of another format that a program has inserted for Word to read."""
        relation = self._part.rels.get(chunk.get(f"{_RELATION}id", ""))
        if relation is None or relation.is_external:
            self._out.note(f"{_UNREAD}: it is not in the file")
            return
        part, title = relation.target_part, self._out.document.title
        try:
            self._write_inserted(part.blob, str(part.partname), part.content_type)
        except Unreadable as error:
            self._out.note(f"{_UNREAD}: {error}")
        finally:
            self._out.document.title = title

    def _write_inserted(self, data: bytes, name: str, media_type: str) -> None:
        format = detect(data, name, media_type).format
        if format == "html":
            html.convert(data, self._out, encoding_of(data, media_type))
        elif format == "rtf":
            rtf.convert(data, self._out)
        elif format == "eml":
            mail.write(mail.parsed(data), self._out, 0)
        elif format == "text":
            text = noted(data, self._out, encoding_of(data, media_type))
            for line in lines(text).split("\n"):
                self._out.paragraph(plain(line))
        elif format == "docx" and not self._is_inserted:
            part = _opened(data, self._out.limits).main_document_part
            Word(part, self._out, self._wants_comments, inserted=True).convert()
        else:
            self._out.note(f"{_UNREAD}: its format is {format}")

    def _paragraph(self, paragraph: Any) -> None:
        style = self._styles.of(paragraph)
        spans = [*self._joined, *self._spans(paragraph)]
        self._joined = spans if _is_joined(paragraph) else []
        if self._joined:
            return
        text = inline(spans, " " if style.heading else "  \n")
        boxes, self._boxes = self._boxes, []
        place = self._numbering.place(paragraph, style)
        number = self._numbering.mark(place) if place is not None and text else ""
        if style.is_title and not self._is_inserted and not self._out.document.title:
            # The properties of the file have none.
            self._out.document.title = " ".join("".join(span.text for span in spans).split())
        if style.heading:
            self._out.heading(style.heading, f"{number} {text}" if text else "")
        elif place is not None and _MARKDOWN_NUMBER.fullmatch(number):
            self._out.item(self._numbering.depth(place), text, f"{number[:-1]}.")
        elif place is not None:
            self._out.item(self._numbering.depth(place), f"{number} {text}".strip())
        elif style.is_code and text and not any(span.link for span in spans):
            self._out.code("".join(span.text for span in spans))
        elif style.is_quote and text:
            self._out.block("\n".join(f"> {line}" for line in text.split("\n")))
        else:
            self._out.paragraph(text)
        for box in boxes:
            self._blocks(box)
        self._write_charts()

    def _write_charts(self) -> None:
        own_charts, self._charts = self._charts, []
        for chart in own_charts:
            charts.write(chart, self._out)
        texts, self._diagrams = self._diagrams, []
        for text in texts:
            self._out.item(0, text)

    def _spans(self, parent: Any, link: str = "") -> Iterator[TextSpan]:
        for child in parent:
            if child.tag == f"{W}r":
                yield from self._run(child, link)
            elif child.tag == f"{W}hyperlink":
                yield from self._spans(child, self._address(child) or link)
            elif child.tag == f"{W}fldSimple":
                yield from self._spans(child, link_of(child.get(f"{W}instr", "")) or link)
            elif child.tag in _TRANSPARENT:
                yield from self._spans(child, link)
            elif child.tag == f"{W}sdt":
                for content in child.iterchildren(f"{W}sdtContent"):
                    yield from self._spans(content, link)
            elif child.tag in {f"{MATH}oMath", f"{MATH}oMathPara"}:
                formula = latex(child)
                yield TextSpan(f"${formula}$" if formula else "", raw=True)
            else:
                self._limit_of_comment(child)

    def _limit_of_comment(self, element: Any) -> None:
        """Record whether the text of a comment begins or ends here."""
        if element.tag == f"{W}commentRangeStart":
            self._comments.start_quote(element.get(f"{W}id", ""))
        elif element.tag == f"{W}commentRangeEnd":
            self._comments.end(element.get(f"{W}id", ""))

    def _run(self, run: Any, around: str) -> Iterator[TextSpan]:
        look = run.find(f"{W}rPr")
        is_hidden = self._styles.is_hidden(run, look)
        if is_hidden:
            self._hidden += bool("".join(text.text or "" for text in run.iter(f"{W}t")).strip())
        bold, italic, strike = (is_on(look, name) for name in ("b", "i", "strike"))
        code, script = self._styles.is_code(look), _script(look)
        font = None if look is None else look.find(f"{W}rFonts")
        for child in _content(run):
            self._fields.feed(child)
            if is_hidden or (self._fields.is_code and child.tag != f"{W}fldChar"):
                continue
            link = self._fields.link or around
            name = child.tag.removeprefix(W) if isinstance(child.tag, str) else ""
            if name == "t" and child.text:
                self._comments.feed(child.text)
                text = child.text if font is None else shown(child.text, font.get(f"{W}ascii", ""))
                yield TextSpan(text, bold, italic, code, strike, link, script=script)
            elif sign := _sign(child, name):
                yield TextSpan(sign, link=link)
            elif name == "ruby":
                yield from self._ruby(child, link)
            elif name in {"footnoteReference", "endnoteReference"}:
                mark = "e" if name == "endnoteReference" else ""
                yield TextSpan(f"[^{mark}{child.get(f'{W}id')}]", raw=True)
            elif name == "commentReference":
                yield self._comments.mark(child.get(f"{W}id", ""))
            elif name in {"drawing", "pict", "object"}:
                yield from self._drawing(child, link)

    def _ruby(self, ruby: Any, link: str) -> Iterator[TextSpan]:
        """Yield a text, followed by its reading."""
        for base in ruby.iterchildren(f"{W}rubyBase"):
            yield from self._spans(base, link)
        for reading in ruby.iterchildren(f"{W}rt"):
            yield from [TextSpan("("), *self._spans(reading, link), TextSpan(")")]

    def _drawing(self, drawing: Any, link: str) -> Iterator[TextSpan]:
        boxes = [box for box in drawing.iter(f"{W}txbxContent") if _is_outermost(box, drawing)]
        self._boxes += boxes
        for path in drawing.iter(f"{_VML}textpath"):
            yield TextSpan(path.get("string", ""))
        self._diagrams += charts.texts(drawing, self._part)
        for chart in drawing.iter(f"{_CHART}chart"):
            relation = self._part.rels.get(chart.get(f"{_RELATION}id", ""))
            if relation is not None and not relation.is_external:
                self._charts.append(parse_xml(relation.target_part.blob))
        for properties in drawing.iter(f"{_DRAWING}docPr"):
            within = (item.get("descr", "") for item in properties.getparent().iter("{*}cNvPr"))
            alts = [properties.get("descr", "")]
            alts = [*filter(None, alts)] or [*filter(None, within)]
            click = properties.find("{*}hlinkClick")
            where = link if click is None else self._address(click)
            for alt in alts or ["" if boxes else properties.get("title", "image")]:
                yield image(alt, "")._replace(link=where)
        for data in drawing.iter(f"{_VML}imagedata"):
            alt = data.getparent().get("alt", "image" if link else "")
            yield image(alt, "")._replace(link=link)

    def _address(self, hyperlink: Any) -> str:
        """Return the target of a link of a text or an image."""
        relation = self._part.rels.get(hyperlink.get(f"{_RELATION}id", ""))
        anchor = hyperlink.get(f"{W}anchor", "")
        if relation is None or not relation.is_external:
            return target(f"#{anchor}") if anchor else ""
        return target(relation.target_ref + (f"#{anchor}" if anchor else ""))

    def _table(self, table: Any) -> None:
        self._out.table(self._rows(table))
        self._write_charts()

    def _rows(self, table: Any) -> Iterator[list[str]]:
        for row in table.iter(f"{W}tr"):
            if next(row.iterancestors(f"{W}tbl")) is table and row.find(f"{W}trPr/{W}del") is None:
                before = _span(row.find(f"{W}trPr/{W}gridBefore"), 0)
                texts = (text for cell in _within(row, "tc") for text in self._cell(cell))
                yield [*[""] * before, *texts]

    def _cell(self, cell: Any) -> list[str]:
        """Return the text of a cell, and an empty one for each further column it spans."""
        properties = cell.find(f"{W}tcPr")
        merged = None if properties is None else properties.find(f"{W}vMerge")
        if properties is not None and properties.find(f"{W}cellDel") is not None:
            return []
        columns = 1 if properties is None else _span(properties.find(f"{W}gridSpan"), 1)
        continues = merged is not None and merged.get(f"{W}val", "continue") == "continue"
        text = "" if continues else "\n".join(filter(None, self._cell_lines(cell)))
        return [text, *[""] * (columns - 1)]

    def _cell_lines(self, parent: Any) -> Iterator[str]:
        for child in parent:
            if child.tag == f"{W}p":
                yield self._numbered(child, inline(self._spans(child), "\n"))
                boxes, self._boxes = self._boxes, []
                for box in boxes:
                    yield from self._cell_lines(box)
            elif child.tag == f"{W}tbl":
                for row in self._rows(child):
                    yield "; ".join(filter(None, (" ".join(text.split()) for text in row)))
            elif child.tag in {f"{W}sdt", *_TRANSPARENT}:
                yield from self._cell_lines(child)
            elif child.tag == f"{W}altChunk":
                self._out.note(f"{_UNREAD}: it is in a table or beside the text")

    def _numbered(self, paragraph: Any, text: str) -> str:
        """Return the text of a paragraph in a cell, with its number if it is in a list."""
        place = self._numbering.place(paragraph, self._styles.of(paragraph)) if text else None
        return text if place is None else f"{self._numbering.mark(place) or '-'} {text}"

    def _footnotes(self, root: Any, tag: str, mark: str) -> None:
        for note in () if root is None else root.iterchildren(f"{W}{tag}"):
            if note.get(f"{W}type") in {"separator", "continuationSeparator", "continuationNotice"}:
                continue
            text = " ".join(filter(None, self._cell_lines(note)))
            if text:
                self._out.paragraph(f"[^{mark}{note.get(f'{W}id')}]: {text}")

    def _margins(self) -> None:
        """Write headers and footers, without repeating a text."""
        for kind in ("header", "footer"):
            parts = [
                rel.target_part
                for rel in self._part.rels.values()
                if not rel.is_external and rel.reltype.endswith(f"/{kind}")
            ]
            for text, tables in _unique(self._margin(self._parsed(part)) for part in parts):
                if text or tables:
                    self._out.paragraph(f"Page {kind}: {text}".strip())
                for rows in tables:
                    self._out.table(rows)

    def _margin(self, root: Any) -> tuple[str, list[Table]]:
        """Return the text of a header or footer, and its tables. A single row counts as text."""
        texts: list[str] = []
        tables: list[Table] = []
        for child in root:
            rows = [*self._rows(child)] if child.tag == f"{W}tbl" else []
            if len(rows) > 1:
                tables.append(rows)
            else:
                texts += self._cell_lines([child])
        return " ".join(filter(None, texts)), tables

    def _write_comments(self) -> None:
        """Write the comments, or their number."""
        if self._remarks and not self._wants_comments:
            leave_out(self._out, len(self._remarks))
            return
        for id, comment in self._remarks.items():
            text = " ".join(filter(None, self._cell_lines(comment)))
            author = comment.get(f"{W}author", "")
            self._out.paragraph(self._comments.footnote(id, author, text))


def _is_joined(paragraph: Any) -> bool:
    """Return whether the next paragraph continues a paragraph.

    Its mark was deleted in a tracked change, or it is a large initial.
    """
    following = paragraph.getnext()
    return (
        following is not None
        and following.tag == f"{W}p"
        and (
            paragraph.find(f"{W}pPr/{W}rPr/{W}del") is not None
            or paragraph.find(f"{W}pPr/{W}framePr[@{W}dropCap]") is not None
        )
    )


def _content(run: Any) -> Iterator[Any]:
    """Yield the parts of a run. Of alternatives, the first that has some of Word's own is read."""
    for child in run:
        if child.tag == f"{_COMPATIBLE}AlternateContent":
            taken = (each for each in child if each.find(f"{W}*") is not None)
            yield from _content(next(taken, ()))
        else:
            yield child


def _unique(margins: Iterable[tuple[str, list[Table]]]) -> list[tuple[str, list[Table]]]:
    pieces: list[tuple[str, list[Table]]] = []
    for margin in margins:
        if margin not in pieces:
            pieces.append(margin)
    return pieces


def _span(element: Any, otherwise: int) -> int:
    """Return the number of columns that an element spans."""
    value = "" if element is None else element.get(f"{W}val", "")
    return min(int(value), 1_000) if value.isascii() and value.isdigit() else otherwise


def _within(row: Any, name: str) -> Iterator[Any]:
    """Yield the cells of a row, including those wrapped in controls and revisions."""
    for child in row:
        if child.tag == f"{W}{name}":
            yield child
        elif child.tag in {f"{W}sdt", *_TRANSPARENT}:
            yield from _within(child, name)


def _is_outermost(box: Any, drawing: Any) -> bool:
    """Return whether a text box of a drawing is not inside another one."""
    around = takewhile(lambda item: item is not drawing, box.iterancestors())
    return all(item.tag != box.tag for item in around)


def _sign(element: Any, name: str) -> str:
    """Return the text for an element of a run that contains none, empty for other elements."""
    if name == "sym":
        code = element.get(f"{W}char", "")
        sign = chr(int(code, 16)) if _CODE.fullmatch(code) else ""
        text = shown(sign, element.get(f"{W}font", ""))
        return "" if text == sign and _IN_SYMBOL_FONT.match(sign) else text
    if name != "fldChar":
        return _SIGNS.get(name, "")
    if (box := element.find(f"{W}ffData/{W}checkBox")) is not None:
        state = "checked" if box.find(f"{W}checked") is not None else "default"
        return _TICKED if is_on(box, state) else _OPEN
    if (choice := element.find(f"{W}ffData/{W}ddList")) is not None:
        entries = [each.get(f"{W}val", "") for each in choice.iterchildren(f"{W}listEntry")]
        chosen = choice.find(f"{W}result")
        at = "0" if chosen is None else chosen.get(f"{W}val", "")
        return entries[int(at)] if at.isdecimal() and int(at) < len(entries) else ""
    return ""


def _script(look: Any) -> str:
    """Return whether a run is above or below the line, as in `TextSpan.script`."""
    alignment = None if look is None else look.find(f"{W}vertAlign")
    value = "" if alignment is None else alignment.get(f"{W}val", "")
    if value or look is None or look.find(f"{W}sz") is None:
        return {"superscript": "^", "subscript": "_"}.get(value, "")
    position = look.find(f"{W}position")  # LibreOffice raises and lowers small text instead
    moved = "" if position is None else position.get(f"{W}val", "")
    return "_" if moved.startswith("-") else "^" if moved.strip("0") else ""

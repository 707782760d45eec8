"""Rich Text Format, in reading order, including mails in HTML that Outlook converted to it.

Sources: Rich Text Format (RTF) Specification 1.9.1 and [MS-OXRTFEX].
"""

from __future__ import annotations

import copy
import html as markup
import re

from flowengine_documents import html
from flowengine_documents.comments import Remarks
from flowengine_documents.document import Damaged
from flowengine_documents.markdown import TextSpan, Writer, hidden_note
from flowengine_documents.rtf_tokens import (
    CHARSETS,
    CLOSE,
    LATIN,
    OPEN,
    SYMBOL,
    TEXT,
    RtfParagraph,
    RtfTable,
    Token,
    encoding_of_page,
    joined,
    tokens,
)
from flowengine_documents.text import shown
from flowengine_documents.word_styles import link_of

_SIGNS = {
    **{b"tab": "\t", b"line": "\n", b"lbr": "\n", b"emdash": "\u2014", b"endash": "\u2013"},
    **{b"lquote": "\u2018", b"rquote": "\u2019", b"ldblquote": "\u201c", b"rdblquote": "\u201d"},
    **{b"bullet": "\u2022", b"emspace": " ", b"enspace": " ", b"qmspace": " "},
    **{b"~": " ", b"_": "\u2011", b"\t": "\t"},
}
_CAPTURED = frozenset(
    (b"fldinst", b"listtext", b"pntext", b"title", b"atnauthor", b"stylesheet", b"fonttbl")
)
_STORIES = frozenset(
    {
        *(b"footnote", b"annotation", b"header", b"headerl", b"headerr", b"headerf"),
        *(b"footer", b"footerl", b"footerr", b"footerf"),
    }
)
"""Destinations whose text is beside that of the document."""
_SKIPPED = frozenset(
    {
        *(b"colortbl", b"info", b"pict", b"object", b"objdata", b"filetbl", b"revtbl", b"rsidtbl"),
        *(b"listtable", b"listoverridetable", b"xe", b"tc", b"rxe", b"txe", b"template"),
        *(b"themedata", b"ftnsep", b"ftnsepc", b"ftncn", b"aftnsep", b"aftnsepc", b"aftncn"),
        *(b"nonshppict", b"bkmkstart", b"bkmkend", b"generator", b"datafield", b"formfield"),
        *(b"falt", b"panose", b"fontemb", b"nonesttables", b"sp"),
    }
)
_SHOWN = frozenset((b"result", b"fldrslt", b"shptxt", b"shpinst", b"shprslt"))
"""Destinations within skipped or unknown ones whose text is shown."""
_OF_PARAGRAPH = {b"ilvl": "level", b"ls": "list", b"li": "indent"}
_SWITCHES = {
    **{b"b": "bold", b"i": "italic", b"v": "hidden"},
    **{b"strike": "strike", b"striked": "strike"},
}
_LOOKS = frozenset(("bold", "italic", "strike", "hidden"))
_DEEPEST = 2_000
_HEADING = re.compile(r"heading (\d)")


class _State:
    """Settings of a group, which its groups inherit."""

    def __init__(self) -> None:
        self.destination = b""
        self.is_skipped = False
        self.bold = self.italic = self.strike = self.hidden = self.deleted = False
        self.script = ""
        self.link = ""
        self.font = -1
        self.replaced = 1
        """Number of characters that follow a Unicode character for older programs."""
        self.is_converted = False
        """Whether a text is only for programs that do not read the HTML within."""


def convert(data: bytes, out: Writer, comments: bool = False) -> None:
    """Convert a file.

    Args:
        data: Its bytes.
        out: Receives the text.
        comments: Whether its comments are included.

    Raises:
        Damaged: It is nested too deeply.
    """
    _Rtf(out, Remarks(out, comments)).convert(data)


class _Rtf:
    def __init__(self, out: Writer, remarks: Remarks) -> None:
        self._out = out
        self._remarks = remarks
        self._states = [_State()]
        self._encoding = LATIN
        self._fonts: dict[int, str] = {}
        """Number of a font → its encoding."""
        self._named: dict[int, str] = {}
        """Number of a font → its name."""
        self._styles: dict[int, int] = {}
        """Number of a style → its heading level."""
        self._style = -1
        self._captured: list[str] = []
        self._paragraph = RtfParagraph()
        self._stories: list[tuple[RtfParagraph, list[str], RtfTable]] = []
        """The paragraph, lines and table around the text that is read beside the document."""
        self._lines: list[str] = []
        self._table = RtfTable()
        self._notes: list[str] = []
        self._margins: list[str] = []
        self._author = ""
        self._comments: list[tuple[str, str]] = []
        self._left = 0
        """Characters to leave out after one in Unicode."""
        self._hidden = 0
        self._html: list[str] | None = None
        """The HTML that was converted, if it is such a mail."""

    @property
    def _state(self) -> _State:
        return self._states[-1]

    def convert(self, data: bytes) -> None:
        is_first = False
        for token in tokens(data):
            if token.kind == OPEN:
                if len(self._states) > _DEEPEST:
                    raise Damaged("it is nested too deeply")
                self._states.append(copy.copy(self._state))
                is_first, self._left = True, 0
                continue
            if token.kind == CLOSE:
                self._left = 0
                if len(self._states) > 1:
                    self._close(self._states.pop())
            elif token.kind == TEXT:
                self._text(self._decoded(token.value))
            elif token.kind == SYMBOL and token.value == b"*" and is_first:
                self._state.is_skipped = True  # unless the next word is known
                continue
            else:
                self._left = 0
                if token.kind != SYMBOL:
                    self._word(token, is_first)
                elif token.value in b"\r\n":
                    self._end_paragraph()
                elif token.value in b"\\{}":
                    self._text(token.value.decode("ascii"))
                elif sign := _SIGNS.get(token.value):
                    self._text(sign)
            is_first = False
        self._finish()

    def _decoded(self, text: bytes) -> str:
        dropped, self._left = min(self._left, len(text)), max(self._left - len(text), 0)
        encoding = self._fonts.get(self._state.font) or self._encoding
        return text[dropped:].decode(encoding, "replace")

    def _word(self, token: Token, is_first: bool) -> None:
        word, number = token.value, token.number
        state = self._state
        if is_first and self._is_destination(word):
            return
        if word == b"u" and number is not None:
            self._text(chr(number % 0x10000))
            self._left = state.replaced
        elif word == b"htmlrtf":
            state.is_converted = number != 0
        elif word == b"fromhtml" and self._html is None and number != 0:
            self._html = []
        elif word in {b"f", b"deff", b"fcharset", b"s", b"uc", b"ansicpg", b"mac", b"pc"}:
            self._set(word, number or 0)
        elif name := _SWITCHES.get(word):
            setattr(state, name, number != 0)
        elif word == b"deleted":
            state.deleted = number != 0
        elif word in {b"super", b"up", b"sub", b"dn", b"nosupersub"}:
            script = {b"super": "^", b"up": "^", b"sub": "_", b"dn": "_"}.get(word, "")
            state.script = script if number != 0 else ""
        elif word == b"plain":
            state.script = ""
            for look in _LOOKS:
                setattr(state, look, False)
        elif not state.is_skipped:
            self._of_paragraph(word, number or 0)

    def _is_destination(self, word: bytes) -> bool:
        """Handle the first word of a group. Return whether it names a destination of texts."""
        state = self._state
        if word in _SHOWN:
            state.is_skipped, state.destination = False, b""
        elif word in _CAPTURED or word == b"htmltag":
            state.is_skipped, state.destination = False, word
            self._captured = []
        elif word in _STORIES and not state.destination:
            state.is_skipped, state.destination = False, word
            self._stories.append((self._paragraph, self._lines, self._table))
            self._paragraph, self._lines, self._table = RtfParagraph(), [], RtfTable()
        elif word in _SKIPPED:
            state.is_skipped = True
        else:
            return False
        return True

    def _set(self, word: bytes, number: int) -> None:
        if word in {b"f", b"deff"}:
            self._state.font = number
        elif word == b"fcharset":
            self._fonts[self._state.font] = CHARSETS.get(number, "")
        elif word == b"s" and self._state.destination == b"stylesheet":
            self._style = number
        elif word == b"s":
            self._paragraph.style = number
        elif word == b"uc":
            self._state.replaced = min(max(number, 0), 10)
        else:
            pages = {b"mac": "mac_roman", b"pc": "cp437"}
            self._encoding = pages.get(word) or encoding_of_page(number)

    def _of_paragraph(self, word: bytes, number: int) -> None:
        paragraph = self._paragraph
        if self._state.destination == b"stylesheet":
            if word == b"outlinelevel" and number < 9:
                self._styles[self._style] = number + 1
        elif sign := _SIGNS.get(word):
            self._text(sign)
        elif word in {b"par", b"sect", b"page"}:
            self._end_paragraph()
        elif word == b"pard":
            paragraph.reset()
        elif word == b"outlinelevel":
            paragraph.heading = number + 1 if number < 9 else 0
        elif name := _OF_PARAGRAPH.get(word):
            setattr(paragraph, name, number)
        elif word == b"intbl":
            paragraph.is_in_table = True
        elif word == b"nestcell":
            self._lines += paragraph.take()
        elif word == b"cell":
            self._table.end_cell([*self._lines, *paragraph.take()])
            self._lines = []
        elif word == b"row":
            self._table.end_row()
        else:
            self._table.define(word, number)

    def _text(self, text: str) -> None:
        state = self._state
        if state.is_skipped or not text:
            return
        if state.destination == b"fonttbl":
            self._named[state.font] = self._named.get(state.font, "") + text.strip("; ")
        elif state.destination in _CAPTURED or state.destination == b"htmltag":
            self._captured.append(text)
        elif self._html is not None:
            if not state.is_converted:
                self._html.append(markup.escape(text, quote=False))
        elif state.hidden or state.deleted:
            self._hidden += bool(text.strip()) and state.hidden
        else:
            self._paragraph.spans.append(
                TextSpan(
                    *(shown(text, self._named.get(state.font, "")), state.bold, state.italic),
                    strike=state.strike,
                    link=state.link,
                    script=state.script,
                )
            )

    def _close(self, state: _State) -> None:
        """End a group."""
        outer = self._state
        if state.destination == outer.destination:
            if state.destination == b"stylesheet":
                if found := _HEADING.search("".join(self._captured).lower()):
                    self._styles.setdefault(self._style, int(found[1]))
                self._captured = []
            return
        if state.destination in _STORIES:
            self._end_story(state.destination)
            return
        text = joined(self._captured)
        if state.destination == b"fldinst":
            outer.link = link_of(text) or outer.link
        elif state.destination in {b"listtext", b"pntext"}:
            self._paragraph.mark = text.strip() or "-"
        elif state.destination == b"title":
            self._out.document.title = " ".join(text.split())
        elif state.destination == b"atnauthor":
            self._author = text
        elif state.destination == b"htmltag" and self._html is not None:
            self._html.append(text)
        self._captured = []

    def _end_story(self, name: bytes) -> None:
        lines = [*self._lines, *self._paragraph.take()]
        self._paragraph, self._lines, self._table = self._stories.pop()
        text = " ".join(filter(None, lines))
        if name == b"footnote" and text:
            self._notes.append(text)
            self._paragraph.spans.append(TextSpan(f"[^{len(self._notes)}]", raw=True))
        elif name == b"annotation":
            self._comments.append((self._author, text))
        elif text:
            margin = f"Page {'header' if name.startswith(b'header') else 'footer'}: {text}"
            if margin not in self._margins:
                self._margins.append(margin)

    def _end_paragraph(self) -> None:
        paragraph = self._paragraph
        if self._html is not None:
            if not self._state.is_converted:
                self._html.append("\n")
        elif paragraph.is_in_table or self._stories:
            self._lines += self._paragraph.take()
        else:
            self._write_table()
            paragraph.write(self._out, self._styles)

    def _write_table(self) -> None:
        if rows := self._table.rows():
            self._out.table(rows)
        self._table = RtfTable()

    def _finish(self) -> None:
        if self._html is not None:
            html.convert_text(joined(self._html), self._out)
            return
        while self._stories:
            self._end_story(b"")
        self._end_paragraph()
        self._lines += self._paragraph.take()
        self._write_table()
        for line in self._lines:
            self._out.paragraph(line)
        for number, note in enumerate(self._notes, 1):
            self._out.paragraph(f"[^{number}]: {note}")
        for margin in self._margins:
            self._out.paragraph(margin)
        for author, comment in self._comments:
            self._remarks.write(author, comment)
        self._remarks.finish()
        if self._hidden:
            self._out.note(hidden_note(self._hidden))

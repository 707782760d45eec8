"""Paragraphs of Rich Text Format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from flowengine_envs.documents.markdown import TextSpan, Writer, inline

_ORDERED = re.compile(r"\d{1,9}[.)]")
_TYPED_ITEM = re.compile(r"(\d{1,3}[.)]|[\u2022\u25e6\u25aa\u00b7\u2013-])\t")
"""The beginning of an item whose number or bullet is written as text."""
_BULLETS = re.compile(r"[\W_]*")
_STEP = 360
"""Indent of a level, in twentieths of a point."""
_DEEPEST = 8


class RtfParagraph:
    """A paragraph that is being read."""

    def __init__(self) -> None:
        self.spans: list[TextSpan] = []
        self.mark = ""
        """The number or bullet of its item."""
        self.reset()

    def reset(self) -> None:
        """Set the defaults of paragraphs."""
        self.heading = self.level = self.list = self.indent = 0
        self.style = -1
        self.is_in_table = False

    def take(self) -> Iterator[str]:
        """Yield its text with its mark, if it has any, and begin the next paragraph."""
        text, mark = self._text("\n"), self._mark()
        if text:
            yield f"{'-' if _BULLETS.fullmatch(mark) else mark} {text}" if mark else text

    def write(self, out: Writer, styles: Mapping[int, int]) -> None:
        """Write it as a block, and begin the next paragraph.

        Args:
            out: Receives the text.
            styles: Number of a style → its heading level.
        """
        heading, level = self.heading or styles.get(self.style, 0), self.level
        mark = self._mark()
        typed = None if mark else _TYPED_ITEM.match("".join(span.text for span in self.spans))
        if typed is not None:
            mark, level = typed[1], self.indent // _STEP
            self.spans = [*_without(self.spans, typed.end())]
        elif self.list and not mark:
            mark = "" if heading else "-"
        if heading:
            self.spans = [span._replace(bold=False) for span in self.spans]
            text = self._text(" ")
            out.heading(heading, f"{mark} {text}" if text else "")
        elif not mark:
            out.paragraph(self._text("  \n"))
        elif _ORDERED.fullmatch(mark):
            out.item(min(max(level, 0), _DEEPEST), self._text("  \n"), f"{mark[:-1]}.")
        else:
            text = self._text("  \n")
            shown = text if _BULLETS.fullmatch(mark) or not text else f"{mark} {text}"
            out.item(min(max(level, 0), _DEEPEST), shown)

    def _text(self, line_break: str) -> str:
        spans, self.spans = self.spans, []
        return inline(_whole(spans), line_break)

    def _mark(self) -> str:
        mark, self.mark = self.mark, ""
        return mark


def joined(texts: Iterable[str]) -> str:
    """Return texts as one, with pairs of surrogates as the characters that they stand for."""
    return "".join(texts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _whole(spans: Iterable[TextSpan]) -> Iterator[TextSpan]:
    """Yield spans, with adjacent ones of one look as one."""
    for look, same in groupby(spans, lambda span: span._replace(text="")):
        texts = [span.text for span in same]
        yield from (look._replace(text=text) for text in (texts if look.raw else [joined(texts)]))


def _without(spans: Sequence[TextSpan], count: int) -> Iterator[TextSpan]:
    """Yield spans without their first characters."""
    for span in spans:
        yield span._replace(text=span.text[count:])
        count = max(count - len(span.text), 0)

"""Comments of people in documents: read if they are wanted, otherwise counted.

In Word documents a mark stands at their place, and at the end what they say.
"""

from __future__ import annotations

from typing import Any

from flowengine_envs.documents.markdown import Span, Writer

_LONGEST = 100
"""Characters of the commented text that are quoted."""


class Remarks:
    """The comments of a document that stand behind the page, slide or sheet they are on.

    Args:
        out: Where they go.
        wanted: Whether they are read; otherwise a note says how many there are.
    """

    def __init__(self, out: Writer, wanted: bool) -> None:
        self._out = out
        self._wanted = wanted
        self._left_out = 0

    def write(self, author: str, text: str, about: str = "") -> None:
        """Write a comment.

        Args:
            author: Who made it; may be empty.
            text: What it says.
            about: What it is about, if that is known.
        """
        text = " ".join(text.split())
        if not text:
            return
        if not self._wanted:
            self._left_out += 1
            return
        where = f" on {about}" if about else ""
        self._out.paragraph(f"Comment by {_who(author)}{where}: {text}")

    def finish(self) -> None:
        """Note what was left out."""
        if self._left_out:
            leave_out(self._out, self._left_out)


def leave_out(out: Writer, count: int) -> None:
    """Note that comments are not read, and how they are."""
    out.note(f"comments left out: {count:,} (config: comments)")


class Comments:
    """The comments of a Word document.

    Args:
        ids: Of those that are there; nothing is kept of others, or if comments are not wanted.
    """

    def __init__(self, ids: list[str]) -> None:
        self._quotes: dict[str, str] = dict.fromkeys(ids, "")
        self._open: dict[str, None] = {}

    def begin(self, id: str) -> None:
        """Take text from here on for what a comment is about."""
        if id in self._quotes:
            self._open[id] = None

    def end(self, id: str) -> None:
        """Take no more."""
        self._open.pop(id, None)

    def take(self, text: str) -> None:
        """Take text of the document."""
        for id in self._open:
            if len(self._quotes[id]) <= _LONGEST:
                self._quotes[id] += text

    def mark(self, id: str) -> Span:
        """Return the mark that stands behind what a comment is about."""
        return Span(f"[^{_label(id)}]" if id in self._quotes else "", raw=True)

    def told(self, id: str, author: str, text: str) -> str:
        """Return a comment as a footnote: who wrote it, about what, and what it says."""
        quote = " ".join(self._quotes.get(id, "").split())
        if len(quote) > _LONGEST:
            quote = f"{quote[:_LONGEST]}…"
        about = f' on "{quote}"' if quote else ""
        return f"[^{_label(id)}]: {_who(author)}{about}: {text}".rstrip()


def _label(id: Any) -> str:
    return f"c{id}"


def _who(author: str) -> str:
    return " ".join(author.split()) or "somebody"

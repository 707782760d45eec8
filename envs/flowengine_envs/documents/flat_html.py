"""The text of HTML that is nested too deeply for its parser: only paragraphs."""

from __future__ import annotations

from html.parser import HTMLParser

_DROPPED = frozenset(("script", "style", "template", "noscript", "head"))
_INLINE = frozenset(
    ("a", "abbr", "b", "code", "em", "font", "i", "s", "small", "span", "strong", "u")
)


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a page."""
    reader = _Paragraphs()
    reader.feed(text)
    reader.close()
    reader.end()
    return reader.texts


class _Paragraphs(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self._text: list[str] = []
        self._dropped = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _DROPPED and not self._dropped:
            self._dropped = tag
        if tag not in _INLINE:
            self.end()

    def handle_endtag(self, tag: str) -> None:
        if tag == self._dropped:
            self._dropped = ""
        if tag not in _INLINE:
            self.end()

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self._text.append(data)

    def end(self) -> None:
        """End a paragraph."""
        text = " ".join("".join(self._text).split())
        self._text.clear()
        if text:
            self.texts.append(text)

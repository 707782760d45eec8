"""PDFium, which draws scanned pages of a PDF and reads text that pypdf cannot decode.

A scan is drawn as a whole, because scanners cut a page into strips, put a picture below a mask, or
compress it as JBIG2. Fonts of Chinese, Japanese and Korean files often name their characters by
tables that are not in the file. PDFium includes these tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from pypdf import PageObject

from flowengine_documents.pdf_tables import Word
from flowengine_documents.pdf_tags import mapping_of, object_of
from flowengine_documents.picture import LONGEST_SIDE, copy_of

_SMALLEST_SIDE = 200
"""Pixels. A smaller image is not the scan of a page."""
_SMALLEST_PAGE = 400 * 400
"""Pixels of all images of a page. A page with fewer is not a scan in strips."""
_DEEPEST = 3
"""Maximum depth of nested forms that are searched for images."""
_MOST_IMAGES = 5_000
_MOST_CHARACTERS = 50_000
"""Maximum characters of a page whose tables without lines are looked for."""
_SIZE = 0.86
"""The size of a font, as a fraction of the height of its characters' boxes."""
_WORD = re.compile(r"[^\s\x02\ufffe]+")
"""A word. The library represents a hyphen at the end of a line by one of these characters."""
_OWN_TABLES = frozenset({"/Identity-H", "/Identity-V"})
_CODECS = (
    *("GB-EUC", "GBpc-EUC", "GBK-EUC", "GBK2K", "ETen-B5", "ETenms-B5", "90ms-RKSJ"),
    *("UniGB-UTF16", "UniCNS-UTF16", "UniJIS-UTF16"),
)
_CODEC_TABLES = frozenset(f"/{name}-{direction}" for name in _CODECS for direction in "HV")
"""Tables that are also encodings of Python, so that `pypdf` can read them."""
_COLLECTIONS = frozenset({"Japan1", "GB1", "CNS1", "Korea1", "KR"})


class Pdfium:
    """The pages of a PDF, as PDFium sees them.

    Args:
        data: The bytes of the file.
        password: The password of the user or the owner.
    """

    def __init__(self, data: bytes, password: str = "") -> None:
        self._data = data
        self._password = password
        self._opened: Any = None

    @contextmanager
    def _page(self, number: int) -> Iterator[Any]:
        """Open a page, counted from 1."""
        from pypdfium2 import PdfDocument

        if self._opened is None:
            self._opened = PdfDocument(self._data, password=self._password or None)
        page = self._opened[number - 1]
        try:
            yield page
        finally:
            page.close()

    def text(self, number: int) -> str:
        """Return the text of a page.

        Args:
            number: Number of the page, from 1.

        Raises:
            Exception: The page cannot be read. The library raises several types of errors.
        """
        with self._page(number) as page:
            text = page.get_textpage()
            try:
                return str(text.get_text_range()).replace("\r\n", "\n")
            finally:
                text.close()

    def words(self, number: int) -> list[Word]:
        """Return the words of a page with their positions, or none if it cannot be read.

        Args:
            number: Number of the page, from 1.
        """
        try:
            with self._page(number) as page:
                text = page.get_textpage()
                try:
                    return [*_words(text)]
                finally:
                    text.close()
        except MemoryError:
            raise
        except Exception:  # of the library: positions only show tables
            return []

    def copy_of_scan(self, page: PageObject, number: int, most_pixels: int) -> str:
        """Return a copy of a scanned page as a `data:` URL, empty for other pages.

        Args:
            page: A page without text, as pypdf sees it.
            number: Number of the page, from 1.
            most_pixels: Maximum width times height of all its images.

        Raises:
            ValueError: Its images have more pixels.
            Exception: It cannot be drawn. The libraries raise many types of errors.
        """
        sizes = [*islice(_images(page.get("/Resources")), _MOST_IMAGES)]
        pixels = sum(wide * high for wide, high in sizes)
        is_large = any(min(size) >= _SMALLEST_SIDE for size in sizes)
        if not is_large and (len(sizes) < 2 or pixels < _SMALLEST_PAGE):
            return ""
        if pixels > most_pixels:
            raise ValueError(f"it has {pixels:,} pixels, but the limit 'pixels' is {most_pixels:,}")
        with self._page(number) as drawn:
            wide, high = drawn.get_size()
            scale = min(LONGEST_SIDE / max(wide, high), math.sqrt(pixels / (wide * high)))
            return copy_of(drawn.render(scale=scale).to_pil())


def _words(text: Any) -> Iterator[Word]:
    """Yield the words of a page's text. One query for each character would take ten times as long.

    Raises:
        Exception: A position is unknown.
    """
    from ctypes import c_double

    from pypdfium2.raw import FPDFText_GetCharOrigin

    x, y = c_double(), c_double()
    count = text.count_chars()
    shown = text.get_text_range(0, count) if count <= _MOST_CHARACTERS else ""
    if len(shown) != count:  # a character of two units, or one without a text
        shown = "".join(chr(text.get_unicode(at)) for at in range(min(count, _MOST_CHARACTERS)))
    for word in _WORD.finditer(shown):
        first, last = word.span()
        left, low, right, high = text.get_charbox(first, loose=True)
        other_left, _, other_right, _ = text.get_charbox(last - 1, loose=True)
        if not FPDFText_GetCharOrigin(text, first, x, y):
            raise ValueError("a position is unknown")
        start, end = min(left, other_left), max(right, other_right)  # Hebrew begins at the right
        yield Word(word[0], start, end, y.value, (high - low) * _SIZE)


def has_unknown_fonts(page: PageObject, even_for_pypdf: bool = False) -> bool:
    """Return whether a page has a font whose characters are named by a table not in the file.

    Args:
        page: The page.
        even_for_pypdf: Whether to count only tables that `pypdf` cannot read either.
    """
    fonts = mapping_of(mapping_of(page.get("/Resources")).get("/Font"))
    unknown = filter(_is_unknown, islice(fonts.values(), _MOST_IMAGES))
    tables = (object_of(mapping_of(font).get("/Encoding")) for font in unknown)
    return any(not even_for_pypdf or str(table) not in _CODEC_TABLES for table in tables)


def _is_unknown(given: Any) -> bool:
    font = mapping_of(given)
    if font.get("/Subtype") != "/Type0" or "/ToUnicode" in font:
        return False
    encoding = object_of(font.get("/Encoding"))
    if isinstance(encoding, str) and encoding not in _OWN_TABLES:
        return True
    inner = object_of(font.get("/DescendantFonts"))
    system = mapping_of(
        mapping_of(inner[0] if isinstance(inner, list) and inner else None).get("/CIDSystemInfo")
    )
    return str(system.get("/Ordering", "")) in _COLLECTIONS


def _images(resources: Any, depth: int = 0) -> Iterator[tuple[int, int]]:
    """Yield width and height of the images that a page can draw, including those in its forms."""
    for each in mapping_of(mapping_of(resources).get("/XObject")).values():
        font = mapping_of(each)
        if font.get("/Subtype") == "/Image":
            yield int(font["/Width"]), int(font["/Height"])
        elif font.get("/Subtype") == "/Form" and depth < _DEEPEST:
            yield from _images(font.get("/Resources"), depth + 1)

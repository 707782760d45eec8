"""Lines of a PDF with right-to-left text, in the order in which they are read.

Letters are drawn from left to right, and stretches of a line in any order. The library reverses
right-to-left letters within a stretch. Here the line as displayed is restored, and then read from
the side where it begins: words and numbers of the other direction keep their order.

Source: Unicode Standard Annex 9, whose rules W1 to N2 are applied to a line as displayed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from flowengine_documents.pdf_order import width_of

_BLOCKS = ((0xFB13, 0xFB17), (0xFB1D, 0xFB4F), (0xFB50, 0xFDFF), (0xFE70, 0xFEFC))
LETTERS = {
    code: letters
    for first, last in _BLOCKS
    for code in range(first, last + 1)
    if (letters := unicodedata.normalize("NFKC", chr(code)).strip()) != chr(code)
}
"""Presentation forms, which fonts use for shapes of letters → the letters."""
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe]")
"""Characters that the library reverses."""
_CLASSES = {"L": "L", "R": "R", "AL": "R", "EN": "E", "AN": "A", "ES": "+", "CS": ",", "ET": "%"}
_LEFT_TO_RIGHT = re.compile(r"[LE](?:[^RA]*[LE])?")
_NUMBER = re.compile(r"%*E+(?:[+,]E+)*%*")
_ARABIC_NUMBER = re.compile(r"[EA]+(?:,[EA]+)*")
_SEGMENT = re.compile(r"[RA](?:[^L]*[RA])?")
_ARABIC = re.compile("[\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefe]")
_GAP = 0.25
"""Minimum gap between two words, in font sizes."""
_WIDEST = 1.5
"""Maximum width of a text in relation to the usual one."""
_MIRRORED = str.maketrans("()[]{}<>«»\u2039\u203a≤≥", ")(][}{><»«\u203a\u2039≥≤")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


class Drawn(Protocol):
    """A text of a page. The direction of its letters does not change within it."""

    @property
    def text(self) -> str: ...
    @property
    def x(self) -> float: ...
    @property
    def size(self) -> float: ...


class DrawnText(NamedTuple):
    """A text of a page, and where it begins."""

    text: str
    x: float = 0.0
    size: float = 0.0
    """Its font size, 0 if it is unknown."""


def is_right_to_left(texts: Iterable[str]) -> bool:
    """Return whether most letters of texts are written from right to left."""
    texts = [*texts]
    if not any(map(_RIGHT_TO_LEFT.search, texts)):
        return False
    balance = 0
    for text in texts:
        if _RIGHT_TO_LEFT.search(text):
            classes = _classes(text)
            balance += classes.count("R") - classes.count("L")
        else:
            balance -= sum(map(str.isalpha, text))
    return balance > 0


def lines_of(texts: Sequence[Drawn], on_right_to_left_page: bool) -> list[str]:
    """Return the lines of texts that were drawn one after another, each in reading order."""
    if not any(_RIGHT_TO_LEFT.search(each.text) for each in texts):
        return "".join(each.text for each in texts).splitlines()
    lines: list[list[DrawnText]] = [[]]
    for each in texts:
        first, *more = (DrawnText(line, each.x, each.size) for line in each.text.split("\n"))
        lines[-1].append(first)
        lines += [[line] for line in more]
    return [joined(line, on_right_to_left_page) for line in lines]


def joined(texts: Sequence[Drawn], on_right_to_left_page: bool) -> str:
    """Return the texts of a line in reading order.

    Args:
        texts: The texts in drawing order.
        on_right_to_left_page: Whether most letters of the page are written from right to left.
    """
    if not any(_RIGHT_TO_LEFT.search(each.text) for each in texts):
        return "".join(each.text for each in texts)
    shown = _displayed(texts)
    classes = _classes(shown)
    if _begins_right(classes, on_right_to_left_page):
        return _read(shown)
    parts: list[str] = []
    end = 0
    for segment in _SEGMENT.finditer(classes):
        parts += [shown[end : segment.start()], _read(shown[segment.start() : segment.end()])]
        end = segment.end()
    return "".join([*parts, shown[end:]])


def _displayed(texts: Sequence[Drawn]) -> str:
    """Return a line as displayed, from left to right."""
    order = sorted(range(len(texts)), key=lambda at: texts[at].x)
    for at in range(1, len(order)):
        if _is_mark_of(texts[order[at]], texts[order[at - 1]]):
            order[at - 1], order[at] = order[at], order[at - 1]
    shown = ""
    for before, at in zip([None, *order], order, strict=False):
        text = texts[at].text
        text = text[::-1] if _RIGHT_TO_LEFT.search(text) else text
        if before is not None and at != before + 1 and _is_apart(texts[before], texts[at]):
            shown += " "
        shown += text
    return re.sub(r" {2,}", " ", shown).strip()


def _is_mark_of(mark: Drawn, letter: Drawn) -> bool:
    """Return whether a text is a mark, such as a vowel, on the letter that begins left of it.

    In a line as displayed, such a mark precedes its letter.
    """
    is_mark = bool(mark.text) and all(map(unicodedata.combining, mark.text))
    return is_mark and mark.x - letter.x < mark.size


def _is_apart(left: Drawn, right: Drawn) -> bool:
    """Return whether there is a gap between texts that were not drawn one after the other."""
    width = width_of(left.text, left.size) * _WIDEST
    return bool(left.size) and right.x - left.x > width + _GAP * left.size


def _begins_right(classes: str, on_right_to_left_page: bool) -> bool:
    """Return whether a line is read from its right side."""
    rights, lefts = classes.count("R"), classes.count("L")
    if not on_right_to_left_page:
        return rights > lefts
    return rights >= lefts or classes.replace("N", "").rstrip("E+,%")[-1:] != "L"


def _read(shown: str) -> str:
    """Return a displayed text in the order in which it is read from right to left."""
    parts: list[str] = []
    end = len(shown)
    mirrored = {} if _is_paired(shown[::-1]) else _MIRRORED
    for start, stop in reversed(_kept(shown)):
        parts += [shown[stop:end][::-1].translate(mirrored), shown[start:stop]]
        end = start
    parts.append(shown[:end][::-1].translate(mirrored))
    return "".join(parts)


def _is_paired(text: str) -> bool:
    """Return whether brackets are in the order in which they are read.

    Some programs name the character of a mirrored bracket, others its shape.
    """
    brackets = [sign for sign in text if sign in "()[]{}"]
    return len(brackets) > 1 and brackets[0] in _BRACKETS and brackets[-1] not in _BRACKETS


def _kept(shown: str) -> list[tuple[int, int]]:
    """Return the stretches of a displayed text that are read from left to right."""
    classes = _classes(shown)
    number = _ARABIC_NUMBER if _ARABIC.search(shown) else _NUMBER
    kept: list[tuple[int, int]] = []
    end = 0
    for words in _LEFT_TO_RIGHT.finditer(classes):
        if "L" in words[0]:
            kept += _numbers(classes, number, end, words.start())
            end = _with_bracket(shown, *words.span())
            kept.append((words.start(), end))
    return kept + _numbers(classes, number, end, len(shown))


def _numbers(classes: str, number: re.Pattern[str], start: int, end: int) -> list[tuple[int, int]]:
    return [found.span() for found in number.finditer(classes, start, end)]


def _with_bracket(shown: str, start: int, end: int) -> int:
    """Return the end of words, including the bracket that closes one of theirs."""
    for opening, closing in _BRACKETS.items():
        words = shown[start:end]
        if shown[end : end + 1] == closing and words.count(opening) > words.count(closing):
            end += 1
    return end


def _classes(text: str) -> str:
    """Return one letter for the class of each character, as in the patterns."""
    return "".join(_CLASSES.get(unicodedata.bidirectional(sign), "N") for sign in text)

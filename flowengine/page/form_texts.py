"""Texts in the fields of forms: shown with nothing hidden, and read back with nothing lost.

A field shows a character that hides or disguises text as a mark, such as `⟦U+200F⟧`. A browser
replaces all line endings. What comes back is therefore compared with what was shown: a text that
was not changed stays as it was, and the rest of a changed text keeps its characters and line
endings.
"""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher

from flowengine.sdk.visible_text import DISGUISING

_HIDDEN = re.compile(f"\r\n|⟦(?=U\\+)|{DISGUISING.pattern}")
MARK = re.compile("⟦U\\+([0-9A-F]{4,6})⟧")
_ENDING = re.compile("\r\n|\n")
_MOST_COMPARED = 1_000_000
"""Maximum product of the numbers of lines that are compared with each other."""


def shown_text(text: str) -> str:
    """Return a text as a field shows it. Lines end with a line feed."""
    return _HIDDEN.sub(lambda match: "\n" if match[0] == "\r\n" else _mark(match[0]), text)


def as_sent(text: str) -> str:
    """Return a text as a form sends it back, apart from its line endings.

    Browsers replace each line ending by another, and cannot send a NUL (HTML, 4.10.22).
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")


def restored(original: str, sent: str) -> str:
    """Return the text that a user means who was shown a text and has sent another one.

    Args:
        original: The text, of which `shown_text` was shown.
        sent: What was sent, see `as_sent`.
    """
    shown = shown_text(original)
    if sent == shown:
        return original
    characters = {_mark(match[0]): match[0] for match in _HIDDEN.finditer(original)}
    lines = sent.split("\n")
    endings = _endings(shown.split("\n"), _ENDING.findall(original), lines)
    known = [MARK.sub(lambda match: characters.get(match[0], match[0]), line) for line in lines]
    return "".join(map("".join, zip(known, [*endings, ""], strict=True)))


def _mark(character: str) -> str:
    return f"⟦U+{ord(character):04X}⟧" if len(character) == 1 else "\n"


def _endings(before: list[str], endings: list[str], after: list[str]) -> list[str]:
    """Return the ending of each line but the last. An unchanged line keeps its own.

    Args:
        before: The lines as shown.
        endings: Their endings, without that of the last line.
        after: The lines as sent.
    """
    counts = Counter(endings)
    usual = counts.most_common(1)[0][0] if counts else "\n"
    found = [usual] * len(after)
    if len(counts) > 1:
        for mine, other, size in _same(before, after):
            own = endings[mine : mine + size]
            found[other : other + len(own)] = own
    return found[: len(after) - 1]


def _same(before: list[str], after: list[str]) -> list[tuple[int, int, int]]:
    """Return the blocks of lines that stand for each other: their places, and their length."""
    most = min(len(before), len(after))
    head = next((n for n in range(most) if before[n] != after[n]), most)
    most -= head
    tail = next((n for n in range(most) if before[-1 - n] != after[-1 - n]), most)
    inside, changed = before[head : len(before) - tail], after[head : len(after) - tail]
    blocks = [(0, 0, head), (len(before) - tail, len(after) - tail, tail)]
    if len(inside) * len(changed) > _MOST_COMPARED:
        return blocks
    for what, first, last, start, end in SequenceMatcher(
        None, inside, changed, autojunk=False
    ).get_opcodes():
        if what in ("equal", "replace"):
            blocks.append((head + first, head + start, min(last - first, end - start)))
    return blocks

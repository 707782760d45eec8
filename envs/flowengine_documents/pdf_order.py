"""The reading order of the lines of a PDF page, which may differ from the drawing order.

Most programs draw a page in reading order, and then nothing is changed. Programs that fill in forms
draw the form first and its values later, or company, title and total last. Lines that continue each
other form a block. Blocks drawn out of order are read from top to bottom, and adjacent ones from
left to right. Columns of prose stay columns. A label and the value on its right are joined to one
line, in any drawing order, and so are an item of a list and its mark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from flowengine_documents.document import Table
from flowengine_documents.pdf_tables import looks_like_mark, looks_like_number

_MOST_LINES = 600
"""Maximum lines of a page. A page with more is read in drawing order."""
_DEEPEST = 40
_WIDTH, _NARROW = 0.5, 0.26
"""Width of a character as a fraction of its height, about that of most fonts."""
_NARROW_ONES = re.compile(r"[\s.,:;'|!ijl]")
_LINE_STEP = 2.5
"""Maximum distance between lines of a block, in font sizes."""
_MARK_STEP = 4.0
"""Maximum distance between the mark of a list and its item, in font sizes."""
_PROSE = 20
"""Minimum average characters per line of a block of prose."""
_LONGEST_LABEL = 60
_LONGEST_HEADING = 160
_HEADING_STEP = 1.5
"""Maximum distance between lines of a heading, in sizes of its font."""
_NEAR_HEADING = 4.0
"""Maximum distance between a small heading and the text below it, in sizes of its font."""
_LEVELS = ((1.6, 1), (1.3, 2), (1.12, 3))
"""Ratio of a heading's size to that of the text, and the heading's level."""


class PdfLine(NamedTuple):
    """A line of text, or a table."""

    text: str
    x: float = 0.0
    y: float = 0.0
    """Its baseline. For a table, that of its last row."""
    size: float = 0.0
    """Its font size, 0 if the position of the line is unknown."""
    end: float = 0.0
    """Its approximate right end."""
    rows: Table | None = None
    high: float = 0.0
    """For a table, its height."""
    level: int = 0
    """Level of a heading, 0 for other lines."""
    bold: bool = False


class _Block:
    """Lines that continue each other."""

    def __init__(self, lines: Sequence[PdfLine]) -> None:
        self.lines = [*lines]
        self.left = min(line.x for line in lines)
        self.right = max(line.end for line in lines)
        self.top = max(line.y + max(line.high, line.size * 0.7) for line in lines)
        self.bottom = min(line.y for line in lines)

        self.is_prose = _is_prose([line.text.strip() for line in lines])

    def continues(self, before: _Block) -> bool:
        """Return whether it directly continues a block: on the same lines, or just below."""
        size = max(line.size for line in (before.lines[-1], self.lines[0]))
        return self.is_beside(before) or 0 <= before.bottom - self.top <= size

    def is_beside(self, other: _Block) -> bool:
        """Return whether they share a part of their height."""
        return self.bottom < other.top and other.bottom < self.top

    def is_below(self, other: _Block) -> bool:
        return self.top <= other.bottom

    def is_right_of(self, other: _Block) -> bool:
        return self.left >= min(other.right, other.left + 1 + (other.right - other.left) * 0.9)


def _is_prose(texts: Sequence[str]) -> bool:
    """Return whether texts are prose, and not labels, values or cells."""
    labels = sum(text.endswith(":") for text in texts)
    length = sum(map(len, texts))
    return len(texts) > 2 and labels * 2 < len(texts) and length >= _PROSE * len(texts)


def width_of(text: str, size: float) -> float:
    """Return about how wide a text is."""
    narrow = len(_NARROW_ONES.findall(text.rstrip()))
    return size * (narrow * _NARROW + (len(text.rstrip()) - narrow) * _WIDTH)


def ordered(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """Return the lines of a page in reading order.

    Args:
        lines: The lines in drawing order.

    Returns:
        The same lines if they were drawn in that order. A line without text separates blocks.
    """
    if not 1 < len(lines) <= _MOST_LINES or any(not line.size for line in lines):
        return [*lines]
    lines = _marked(lines)
    joined = _joined(lines)
    chains = _chains(_blocks(joined))
    if len(chains) < 2:
        return joined
    in_order: list[PdfLine] = []
    before: _Block | None = None
    for block in _cut([block for chain in chains for block in chain]):
        if before is not None and not block.continues(before):
            in_order.append(PdfLine(""))
        in_order += block.lines
        before = block
    return in_order


def with_rows(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """Return lines in reading order, with consecutive texts on one height in one line.

    Programs that draw a table cell by cell put each cell on a separate line.
    """
    rows: list[list[PdfLine]] = []
    for line in lines:
        last = rows[-1][-1] if rows else None
        if (
            last is not None
            and last.rows is line.rows is None
            and last.level == line.level == 0
            and abs(last.y - line.y) < 0.3 * line.size
            and last.x < line.x
        ):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [_one(row) if len(row) > 1 else row[0] for row in rows]


def with_headings(lines: Sequence[PdfLine], sizes: Counter[float]) -> list[PdfLine]:
    """Return lines with the levels of those that are headings by their size.

    Args:
        lines: The lines in reading order.
        sizes: Font size → number of characters known so far.
    """
    (body, _), *_rest = sizes.most_common(1) or [(0.0, 0)]
    sorted_lines: list[PdfLine] = []
    for at, line in enumerate(lines):
        level = _level(line, body)
        if level == _LEVELS[-1][1] and not _is_above(line, lines[at + 1 : at + 3]):
            level = 0
        before = sorted_lines[-1] if sorted_lines else None
        if (
            level
            and before is not None
            and level == before.level
            and _flows(before, line, _HEADING_STEP)
        ):
            sorted_lines[-1] = line._replace(
                text=f"{before.text.rstrip()} {line.text}", level=level
            )
        else:
            sorted_lines.append(line._replace(level=level))
    large = sum(_length(line) for line in sorted_lines if line.level)
    is_odd = large * 3 > sum(map(_length, sorted_lines))
    too_long = any(line.level and len(line.text) > _LONGEST_HEADING for line in sorted_lines)
    return [*lines] if is_odd or too_long else sorted_lines


def count_sizes(lines: Sequence[PdfLine], sizes: Counter[float]) -> None:
    """Count the characters of each size of font."""
    for line in lines:
        if line.size:
            sizes[round(line.size, 1)] += _length(line)


def _length(line: PdfLine) -> int:
    cells = [cell for row in line.rows or () for cell in row]
    return sum(map(len, cells)) if cells else len(line.text.strip())


def _level(line: PdfLine, body: float) -> int:
    letters = sum(map(str.isalpha, line.text))
    if line.rows is not None or not body or letters < 3 or letters * 3 < len(line.text.strip()):
        return 0
    size = max(line.size, _LEVELS[-1][0] * body) if _is_bold_heading(line, body) else line.size
    return next((level for ratio, level in _LEVELS if size >= ratio * body), 0)


def _is_bold_heading(line: PdfLine, body: float) -> bool:
    """Return whether a line is short and bold, but not a label or the end of a sentence."""
    text = line.text.strip()
    return (
        line.bold
        and line.size >= 0.95 * body
        and len(text) <= _LONGEST_LABEL
        and text[-1] not in ".:;,"
    )


def _is_above(line: PdfLine, following: Sequence[PdfLine]) -> bool:
    """Return whether a line is a small heading, with text close below it, and not in a margin."""
    below = next((item for item in following if item.text.strip() or item.rows), None)
    if below is None:
        return False
    step = line.y - below.y - below.high
    return 0 < step <= _NEAR_HEADING * line.size and below.x < line.end and line.x < below.end


def _flows(line: PdfLine, following: PdfLine, step: float = _LINE_STEP) -> bool:
    """Return whether a line continues the one before it."""
    if line.rows is not None or following.rows is not None:
        return False
    size = max(line.size, following.size)
    return (
        0 < line.y - following.y <= step * size
        and following.x < line.end
        and line.x < following.end
        and size <= 1.15 * min(line.size, following.size)
    )


def _blocks(lines: Sequence[PdfLine]) -> list[_Block]:
    groups: list[list[PdfLine]] = []
    for line in lines:
        if groups and _flows(groups[-1][-1], line):
            groups[-1].append(line)
        else:
            groups.append([line])
    return [_Block(group) for group in groups]


def _chains(blocks: Sequence[_Block]) -> list[list[_Block]]:
    """Return blocks that were drawn consecutively in reading order."""
    chains: list[list[_Block]] = []
    for block in blocks:
        if chains and _follows(block, chains[-1]):
            chains[-1].append(block)
        else:
            chains.append([block])
    return chains


def _follows(block: _Block, chain: Sequence[_Block]) -> bool:
    last = chain[-1]
    if block.is_below(last):
        return not any(
            other.is_below(block) and not other.is_right_of(block) and not block.is_right_of(other)
            for other in chain
        )
    if block.is_right_of(last) and block.is_beside(last):
        return True
    lower = [other for other in chain if other.bottom < block.top]
    return any(other.is_beside(block) for other in lower) and all(
        block.is_right_of(other) for other in lower
    )


def _cut(blocks: Sequence[_Block], depth: int = 0) -> Iterator[_Block]:
    """Yield blocks from top to bottom, and adjacent ones from left to right.

    Columns of prose take precedence over rows, and extend down until something crosses them.
    """
    groups = _columns(blocks) or _bands(blocks)
    if len(groups) < 2:
        groups = _parted(blocks, by_height=False)
    if len(groups) < 2 or depth == _DEEPEST:
        yield from sorted(blocks, key=lambda block: (-block.top, block.left))
        return
    for group in groups:
        yield from _cut(group, depth + 1)


def _bands(blocks: Sequence[_Block]) -> list[list[_Block]]:
    """Return blocks in groups from top to bottom.

    Blocks that form columns together are one group.
    """
    bands = _parted(blocks, by_height=True)
    if sum(block.is_prose for block in blocks) < 2:
        return bands
    merged: list[list[_Block]] = []
    for band in bands:
        if merged and not _is_apart(band, merged[-1]) and _columns([*merged[-1], *band]):
            merged[-1] = [*merged[-1], *band]
        else:
            merged.append(band)
    return merged


def _is_apart(band: Sequence[_Block], above: Sequence[_Block]) -> bool:
    """Return whether a band is a footer: not prose, and at a distance."""
    gap = min(block.bottom for block in above) - max(block.top for block in band)
    size = max(block.lines[0].size for block in band)
    return gap > 2 * size and not any(block.is_prose for block in band)


def _columns(blocks: Sequence[_Block]) -> list[list[_Block]]:
    """Return adjacent columns of prose, or nothing if there are none."""
    columns = _parted(blocks, by_height=False)
    prose = [[block for block in column if block.is_prose] for column in columns]
    is_beside = any(
        left.is_beside(right)
        for entry, other in pairwise(filter(None, prose))
        for left in entry
        for right in other
    )
    return columns if is_beside else []


def _parted(blocks: Sequence[_Block], *, by_height: bool) -> list[list[_Block]]:
    """Return blocks in groups separated by empty stretches across the page."""
    spans = sorted(
        ((-block.top, -block.bottom, at) if by_height else (block.left, block.right, at))
        for at, block in enumerate(blocks)
    )
    groups: list[list[_Block]] = []
    end = float("-inf")
    for start, own_end, at in spans:
        if start >= end:
            groups.append([])
        groups[-1].append(blocks[at])
        end = max(end, own_end)
    return groups


def _marked(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """Return lines with the marks of lists before their items."""
    marks = [at for at, line in enumerate(lines) if looks_like_mark(line.text.strip())]
    remaining = dict(enumerate(lines))
    for at in marks:
        mark = lines[at]
        beside = [
            other
            for other, line in remaining.items()
            if abs(line.y - mark.y) <= 0.3 * mark.size
            and 0 < line.x - mark.x <= _MARK_STEP * mark.size
            and line.rows is None
        ]
        if beside:
            nearest = min(beside, key=lambda other: remaining[other].x)
            text = f"{mark.text.strip()} {remaining[nearest].text.lstrip()}"
            remaining[nearest] = remaining[nearest]._replace(text=text, x=mark.x)
            del remaining[at]
    return [*remaining.values()]


def _joined(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """Return lines with labels joined to their values."""
    prose = {id(line) for block in _blocks(lines) if block.is_prose for line in block.lines}
    free = [at for at, line in enumerate(lines) if line.rows is None and id(line) not in prose]
    free.sort(key=lambda at: (-lines[at].y, lines[at].x))
    groups: list[list[int]] = []
    for at in free:
        if groups and lines[groups[-1][0]].y - lines[at].y <= 0.3 * lines[at].size:
            groups[-1].append(at)
        else:
            groups.append([at])
    taken: dict[int, list[int]] = {}
    """Number of a line → the lines that continue it."""
    for group in groups:
        for run in _runs(lines, sorted(group, key=lambda at: lines[at].x)):
            taken[run[0]] = run
    merged = {at for run in taken.values() for at in run[1:]}
    return [
        _one([lines[each] for each in taken[at]]) if at in taken else line
        for at, line in enumerate(lines)
        if at not in merged
    ]


def _runs(lines: Sequence[PdfLine], row: Sequence[int]) -> Iterator[list[int]]:
    """Yield the lines of a row that belong together, but were not drawn consecutively."""
    runs: list[list[int]] = []
    for at in row:
        if runs and _is_value(lines[runs[-1][-1]], lines[at], alone=len(runs[-1]) == 1):
            runs[-1].append(at)
        else:
            runs.append([at])
    for run in runs:
        if any(after != before + 1 for before, after in pairwise(run)):
            yield run


def _is_value(label: PdfLine, value: PdfLine, *, alone: bool) -> bool:
    """Return whether a text is the value of a label on its left."""
    name, text = label.text.strip(), value.text.strip()
    if not alone or len(name) > _LONGEST_LABEL or text.endswith(":") or value.x < label.x:
        return False
    return name.endswith(":") or (looks_like_number(text) and not looks_like_number(name))


def _one(run: Sequence[PdfLine]) -> PdfLine:
    text = "  ".join(line.text.strip() for line in run)
    return run[0]._replace(text=text, end=max(line.end for line in run))

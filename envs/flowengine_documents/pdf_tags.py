"""The structure of a tagged PDF: headings and table cells.

Programs that print pages or office documents mark the text of each element with a number. A page
maps these numbers to elements, and an element leads to its enclosing ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pypdf import PageObject, PdfReader

from flowengine_documents.pdf_directions import DrawnText, is_right_to_left, lines_of
from flowengine_documents.pdf_tables import TableRow, key_of

_LEVELS = {"H": 1, "Title": 1, **{f"H{level}": level for level in range(1, 7)}}
_CELLS = frozenset({"TD", "TH"})
_DEEPEST = 64
"""Maximum depth of nested elements."""
_MOST_COLUMNS = 200
_MOST_MARKS = 20_000
"""Maximum number of marked texts of a page."""
_MOST_PAGES = 100_000


class Structure(NamedTuple):
    """The structure of the text of a page."""

    headings: list[tuple[str, int]]
    """Texts with their levels."""
    tables: list[list[TableRow]]


class MarkedTexts:
    """Collects the marked texts of a page while its text is extracted."""

    def __init__(self) -> None:
        self._all: list[DrawnText] = []
        self._marked: dict[int, list[DrawnText]] = {}
        self._open: list[int | None] = []

    def read(self) -> tuple[list[str], dict[int, str]]:
        """Return the lines of the page, and the text of each mark."""
        is_reversed = is_right_to_left(each.text for each in self._all)
        texts = {
            mark: "\n".join(lines_of(each, is_reversed)) for mark, each in self._marked.items()
        }
        return lines_of(self._all, is_reversed), texts

    def operator(self, operator: bytes, operands: Any, *_: object) -> None:
        """Handle an operator of the page that begins or ends a mark."""
        if operator in (b"BDC", b"BMC"):
            given = operands[1] if len(operands) > 1 else None
            mark = given.get("/MCID") if isinstance(given, Mapping) else None
            around = self._open[-1] if self._open else None
            self._open.append(int(mark) if isinstance(mark, int) else around)
        elif operator == b"EMC" and self._open:
            self._open.pop()

    def text(
        self, text: str, around: Sequence[float], own: Sequence[float], _font: object, size: float
    ) -> None:
        """Add a piece of the text of the page."""
        x = own[4] * around[0] + own[5] * around[2] + around[4]
        drawn = DrawnText(text, x, abs(size * own[3] * around[3]))
        self._all.append(drawn)
        mark = self._open[-1] if self._open else None
        if mark is not None and (mark in self._marked or len(self._marked) < _MOST_MARKS):
            self._marked.setdefault(mark, []).append(drawn)


class Tags:
    """The tags of a document.

    Args:
        reader: The document.
    """

    def __init__(self, reader: PdfReader) -> None:
        self._parents: dict[int, Any] = {}
        """Number of a page → its elements, by the number of the mark."""
        self._roles: Mapping[str, Any] = {}
        try:
            root = mapping_of(reader.root_object.get("/StructTreeRoot"))
            self._roles = mapping_of(root.get("/RoleMap"))
            self._parents = dict(_numbered(root.get("/ParentTree")))
        except Exception:  # of the library, so it is plain text without tags
            self._parents = {}

    def __bool__(self) -> bool:
        """Whether there are any tags."""
        return bool(self._parents)

    def structure(self, page: PageObject, texts: Mapping[int, str]) -> Structure:
        """Return the structure of the text of a page.

        Args:
            page: The page.
            texts: The texts of its marks, in drawing order.
        """
        try:
            return self._structure(page, texts)
        except Exception:  # of the library, so it is plain text without tags
            return Structure([], [])

    def _structure(self, page: PageObject, marked: Mapping[int, str]) -> Structure:
        elements = object_of(self._parents.get(int(page.get("/StructParents", -1)))) or []
        headings: dict[int, tuple[str, int]] = {}
        tables: dict[int, dict[int, tuple[Any, dict[int, str]]]] = {}
        for mark, text in marked.items():
            if not 0 <= mark < len(elements):
                continue
            roles: dict[str, Any] = {}
            for item in _around(elements[mark]):
                roles.setdefault(self._role(item), item)
            level = next((_LEVELS[role] for role in roles if role in _LEVELS), 0)
            cell = next((roles[role] for role in roles if role in _CELLS), None)
            if level:
                at = next(id(value) for role, value in roles.items() if role in _LEVELS)
                headings[at] = headings.get(at, ("", level))[0] + text, level
            elif cell is not None and "TR" in roles and "Table" in roles:
                rows = tables.setdefault(id(roles["Table"]), {})
                row = rows.setdefault(id(roles["TR"]), (roles["TR"], {}))
                row[1][id(cell)] = row[1].get(id(cell), "") + text
        by_table = [self._rows(rows.values()) for rows in tables.values()]
        return Structure([*headings.values()], [rows for rows in by_table if _is_table(rows)])

    def _rows(self, rows: Iterable[tuple[Any, Mapping[int, str]]]) -> list[TableRow]:
        """Return the rows of a table with spanned cells empty, or [] if it is invalid.

        Some programs omit cells without text. The next cell is then placed below its header.
        """
        made: list[TableRow] = []
        headers: dict[str, int] = {}
        """Id of a header cell → its column."""
        reaching: dict[int, int] = {}
        """Column → number of further rows that a cell from above spans."""
        for row, texts in rows:
            cells: list[str] = []
            above, reaching = reaching, {at: more - 1 for at, more in reaching.items() if more > 1}
            left = dict(texts)
            for cell in self._cells(row):
                wide, high, below = _attributes(cell)
                least = max((headers.get(item, 0) for item in below), default=0)
                while len(cells) in above or len(cells) < least:
                    cells.append("")
                if "/ID" in cell:
                    headers[str(cell["/ID"])] = len(cells)
                if high > 1:
                    reaching |= dict.fromkeys(range(len(cells), len(cells) + wide), high - 1)
                cells += [" ".join(left.pop(id(cell), "").split()), *[""] * (wide - 1)]
            if left or len(cells) > _MOST_COLUMNS:
                return []  # read as plain text
            made.append(TableRow(cells, key_of("".join(texts.values()))))
        return made

    def _cells(self, row: Any) -> Iterator[Any]:
        """Yield all cells of a row, including those without text."""
        for kid in islice(list_of(row.get("/K")), _MOST_COLUMNS):
            cell = object_of(kid)
            if isinstance(cell, Mapping) and self._role(cell) in _CELLS:
                yield cell

    def _role(self, element: Any) -> str:
        """Return the role of an element, in the terms of the standard."""
        name = str(element.get("/S", ""))
        return str(self._roles.get(name, name)).removeprefix("/")


def _is_table(rows: Sequence[TableRow]) -> bool:
    """Return whether rows are a table, and not a frame around other content."""
    return len(rows) > 1 and any(len(row.cells) > 1 for row in rows)


def _around(element: Any) -> Iterator[Any]:
    """Yield an element and its enclosing ones, from the inside out."""
    node = object_of(element)
    for _ in range(_DEEPEST):
        if not isinstance(node, Mapping) or "/S" not in node:
            return
        yield node
        node = object_of(node.get("/P"))


def _attributes(cell: Any) -> tuple[int, int, list[str]]:
    """Return the column and row spans of a cell, and the ids of its headers."""
    wide = high = 1
    below: list[str] = []
    for each in islice(list_of(cell.get("/A")), _DEEPEST):
        attributes = mapping_of(each)
        wide = int(attributes.get("/ColSpan", wide))
        high = int(attributes.get("/RowSpan", high))
        below += map(str, islice(list_of(attributes.get("/Headers")), _DEEPEST))
    return min(max(wide, 1), _MOST_COLUMNS), max(high, 1), below


def _numbered(tree: Any) -> Iterator[tuple[int, Any]]:
    """Yield the entries of a number tree, up to the possible number of pages."""
    pending, left = deque([tree]), _MOST_PAGES
    while pending and left > 0:
        node = mapping_of(pending.popleft())
        pending.extend(islice(list_of(node.get("/Kids")), left))
        numbers = list_of(node.get("/Nums"))
        for at in range(0, min(len(numbers) - 1, 2 * left), 2):
            yield int(numbers[at]), numbers[at + 1]
        left -= 1 + len(numbers) // 2


def object_of(given: Any) -> Any:
    """Return an object of the library, resolving a reference."""
    return given.get_object() if hasattr(given, "get_object") else given


def mapping_of(given: Any) -> Mapping[str, Any]:
    """Return a dictionary of the library, or an empty one for other objects."""
    value = object_of(given)
    return value if isinstance(value, Mapping) else {}


def list_of(given: Any) -> list[Any]:
    """Return the items of a list of the library, or the only one."""
    value = object_of(given)
    return value if isinstance(value, list) else [] if value is None else [given]

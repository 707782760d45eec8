"""Links of cells, and marks of hidden rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowengine_envs.documents.markdown import TextSpan, inline, target

_HIDDEN = "<!-- hidden -->"
_MOST_RANGES = 1_000


def mark_row(row: list[str], note: Callable[[str], None]) -> None:
    """Mark a row that is not empty as hidden, in its first cell with a text."""
    at = next(at for at, text in enumerate(row) if text)
    row[at] = f"{_HIDDEN} {row[at]}"
    note("hidden rows are marked")


def mark_columns(
    rows: Sequence[list[str]], hidden: Sequence[range], note: Callable[[str], None]
) -> None:
    """Mark hidden columns with a text, in the first row.

    Args:
        rows: The rows of the sheet.
        hidden: Ranges of hidden columns.
        note: Takes a note for the reader.
    """
    if not rows or not hidden:
        return
    used = {at for row in rows for at, text in enumerate(row) if text}
    head = rows[0]
    for at in sorted(used):
        if any(at in each for each in hidden[:_MOST_RANGES]):
            head.extend([""] * (at + 1 - len(head)))
            head[at] = f"{_HIDDEN} {head[at]}".strip()
            note("hidden columns are marked")


def linked(text: str, address: str) -> str:
    """Return the text of a cell with a link, if there is a text and the address is safe."""
    where = target(address) if text.strip() else ""
    return inline([TextSpan(text, link=where)], "\n") if where else text

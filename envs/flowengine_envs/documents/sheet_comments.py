"""Comments on the cells of Excel workbooks: notes, and threads of newer programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flowengine_envs.documents.archives import parse_xml, read_entry, relationships
from flowengine_envs.documents.comments import Remarks

if TYPE_CHECKING:
    import zipfile


class SheetComments:
    """The comments of a workbook.

    Args:
        archive: The workbook.
        remarks: Receives them.
    """

    def __init__(self, archive: zipfile.ZipFile, remarks: Remarks) -> None:
        self._archive = archive
        self._names = frozenset(archive.namelist())
        self._remarks = remarks
        self._people: dict[str, str] = {}
        for name in self._names:
            if name.startswith("xl/persons/"):
                people = parse_xml(read_entry(archive, name))
                self._people |= {
                    person.get("id"): person.get("displayName", "") for person in people
                }

    def write(self, sheet: str) -> None:
        """Write the comments on a sheet, each with its cell.

        Args:
            sheet: The path of the sheet in the archive.
        """
        threads = [
            (item.get("ref", ""), self._people.get(item.get("personId"), ""), item)
            for root in self._related(sheet, "threadedComment")
            for item in root
        ]
        commented = {cell for cell, _, _ in threads}  # each also has a note for older programs
        notes = [
            (cell, author, entry)
            for root in self._related(sheet, "comments")
            for cell, author, entry in _notes(root)
            if cell not in commented
        ]
        for cell, author, entry in [*notes, *threads]:
            text = "".join(each.text or "" for each in entry.iter("{*}t", "{*}text"))
            self._remarks.write(author, text, cell)

    def _related(self, sheet: str, kind: str) -> Iterator[Any]:
        """Yield the roots of a sheet's comment parts of one kind."""
        for relation in relationships(self._archive, sheet):
            if relation.kind == kind and relation.target in self._names:
                yield parse_xml(read_entry(self._archive, relation.target))


def _notes(root: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield cell, author and text of notes."""
    authors = [item.text or "" for item in root.iter("{*}author")]
    for item in root.iter("{*}comment"):
        number = item.get("authorId", "")
        known = number.isascii() and number.isdigit() and int(number[:9]) < len(authors)
        yield item.get("ref", ""), authors[int(number)] if known else "", item

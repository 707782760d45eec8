"""The result of a conversion, its limits, and its errors."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

MIB = 1024 * 1024
Table = list[list[str]]


@dataclass(frozen=True)
class ConversionLimits:
    """Limits for one file.

    Content that exceeds `pages`, `cells`, `characters` or `pictures` is cut off, with a note.
    Exceeding another limit is an error.
    """

    bytes: int = 64 * MIB
    """Size of the file."""
    unpacked: int = 256 * MIB
    """Unpacked size of an archive, or of one stream of a PDF."""
    entries: int = 10_000
    """Files in an archive."""
    pages: int = 5_000
    """Pages, slides, sheets or chapters."""
    cells: int = 500_000
    """Cells of all tables together."""
    characters: int = 20_000_000
    """Length of the Markdown."""
    pixels: int = 200_000_000
    """Width times height of an image."""
    pictures: int = 20
    """Pages of a scan that are copied as pictures."""


@dataclass(frozen=True)
class DocumentPart:
    """A page, slide, sheet or chapter, with its start in the Markdown."""

    kind: str
    number: int
    name: str
    start: int


@dataclass
class Document:
    """The content of a file."""

    format: str
    """`pdf`, `docx`, `html`, …"""
    markdown: str = ""
    title: str = ""
    parts: list[DocumentPart] = field(default_factory=list)
    """Its pages, slides, sheets or chapters, empty if the format has none."""
    tables: list[Table] = field(default_factory=list)
    """The rows of its tables, as text. All rows of a table have the same length."""
    notes: list[str] = field(default_factory=list)
    """Notes for the reader: omitted parts, doubts about the format."""
    truncated: bool = False
    """Whether a limit cut something off. A note names the limit."""
    pictures: dict[str, str] = field(default_factory=dict)
    """On request, small copies of an image or of scanned pages that may be sent to a model, as
    `data:` URLs without location metadata. The key is the line of the Markdown that the description
    follows, or empty for the end."""
    following: int = 0
    """The page of the file with which the next stretch begins, 0 if there is none."""
    size: int = 0
    """Bytes of the file."""
    sha256: str = ""
    """Its digest."""

    def as_data(self) -> dict[str, Any]:
        """Return the document as plain data."""
        return asdict(self)


class Unreadable(Exception):
    """The file cannot be read. The message contains the reason."""


class NoSuchFile(Unreadable):
    """No file exists at the path."""


class UnsupportedFormat(Unreadable):
    """No converter supports the format."""


class Damaged(Unreadable):
    """The file does not have the format that it claims, or a part of it is missing."""


class PasswordRequired(Unreadable):
    """The file is encrypted, and no password was given."""


class WrongPassword(Unreadable):
    """The file is encrypted, and the password does not open it."""


class LimitReached(Unreadable):
    """The file exceeds a limit.

    Args:
        limit: Name of the limit.
        allowed: Its value.
        what: Description of the actual value.
    """

    def __init__(self, limit: str, allowed: int, what: str) -> None:
        super().__init__(f"{what}, but the limit '{limit}' is {allowed:,}")
        self.limit = limit
        self.allowed = allowed

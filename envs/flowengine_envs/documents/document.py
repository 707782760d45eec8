"""What a file becomes, the limits it is read under, and why it cannot be read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

MIB = 1024 * 1024
Table = list[list[str]]


@dataclass(frozen=True)
class Limits:
    """What one file may take.

    What exceeds `pages`, `cells`, `characters` or `pictures` is cut off, and noted; all else is an
    error.
    """

    bytes: int = 64 * MIB
    """Size of the file."""
    unpacked: int = 256 * MIB
    """What an archive, or one stream of a PDF, unpacks to."""
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
    """Pages of a scan of which a picture is made."""


@dataclass(frozen=True)
class Part:
    """A page, slide, sheet or chapter: where it starts in the Markdown."""

    kind: str
    number: int
    name: str
    start: int


@dataclass
class Document:
    """What a file says."""

    format: str
    """`pdf`, `docx`, `html`, …"""
    markdown: str = ""
    title: str = ""
    parts: list[Part] = field(default_factory=list)
    """Its pages, slides, sheets or chapters; none if the format has none."""
    tables: list[Table] = field(default_factory=list)
    """The rows of its tables, as text; all rows of a table have the same length."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know: parts left out, doubts about the format."""
    truncated: bool = False
    """Whether a limit cut something off; a note names the limit."""
    pictures: dict[str, str] = field(default_factory=dict)
    """If that was asked for, small copies of an image or of scanned pages that may be sent to a
    model, as addresses of their data; they say nothing of where they were taken. The key is the
    line of the Markdown behind which a description belongs; empty: at the end."""
    following: int = 0
    """The page of the file with which the next stretch begins; 0: there is none."""
    size: int = 0
    """Bytes of the file."""
    sha256: str = ""
    """Its digest."""

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @classmethod
    def of(cls, data: dict[str, Any]) -> Document:
        """Return the document that `as_data` described."""
        known = {each.name for each in fields(cls)}
        values = {name: value for name, value in data.items() if name in known}
        return cls(**{**values, "parts": [Part(**part) for part in values["parts"]]})


class Unreadable(Exception):
    """The file cannot be read; the message says why."""


class NoSuchFile(Unreadable):
    """There is no file at the path."""


class UnsupportedFormat(Unreadable):
    """There is no converter for it."""


class Damaged(Unreadable):
    """It is not what it claims to be, or part of it is missing."""


class PasswordRequired(Unreadable):
    """It is encrypted, and no password was given."""


class WrongPassword(Unreadable):
    """It is encrypted, and the password does not open it."""


class LimitReached(Unreadable):
    """It takes more than it may.

    Args:
        limit: Name of the limit.
        allowed: Its value.
        what: What was found.
    """

    def __init__(self, limit: str, allowed: int, what: str) -> None:
        super().__init__(f"{what}; the limit '{limit}' is {allowed:,}")
        self.limit = limit
        self.allowed = allowed

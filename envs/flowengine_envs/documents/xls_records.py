"""The records of a workbook in XLS: Excel 5 to 2003.

Source: [MS-XLS] 2.3, 2.4 and 2.5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from flowengine_envs.documents.document import Damaged
from flowengine_envs.documents.sheet_rows import SheetLink

BOF, EOF, CONTINUE, FILE_PASS = 0x0809, 0x000A, 0x003C, 0x002F
BOUND_SHEET, CODE_PAGE, DATE_MODE, FORMAT, XF, SST = 0x0085, 0x0042, 0x0022, 0x041E, 0x00E0, 0x00FC
ROW, COLUMNS, LINK, STRING = 0x0208, 0x007D, 0x01B8, 0x0207
LABEL_SST, LABEL, RICH_LABEL = 0x00FD, 0x0204, 0x00D6
NUMBER, RK, MULTIPLE_RK, FORMULA, BOOLEAN = 0x0203, 0x027E, 0x00BD, 0x0006, 0x0205
_HEAD = struct.Struct("<HH")
_URL = bytes.fromhex("e0c9ea79f9bace118c8200aa004ba90b")
_FILE = bytes.fromhex("0303000000000000c000000000000046")
_MOST_STRINGS = 10_000_000


def records(stream: bytes, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the content of each record."""
    while at + 4 <= len(stream):
        kind, length = _HEAD.unpack_from(stream, at)
        yield kind, stream[at + 4 : at + 4 + length]
        at += 4 + length


def short_string(data: bytes, at: int, encoding: str) -> str:
    """Return a string with its length in one byte, in an encoding or as in Excel 97."""
    return _string(data, at + 1, data[at] if at < len(data) else 0, encoding)


def string(data: bytes, at: int, encoding: str) -> str:
    """Return a string with its length in two bytes, in an encoding or as in Excel 97."""
    return _string(data, at + 2, int.from_bytes(data[at : at + 2], "little"), encoding)


def _string(data: bytes, at: int, count: int, encoding: str) -> str:
    if encoding:
        return data[at : at + count].decode(encoding, "replace")
    flags, at = (data[at] if at < len(data) else 0), at + 1
    at += 2 * bool(flags & 0x08) + 4 * bool(flags & 0x04)
    if flags & 0x01:
        return data[at : at + 2 * count].decode("utf-16-le", "replace")
    return data[at : at + count].decode("latin-1")


class SharedStrings:
    """Reads the strings that cells share, which extend over several records.

    Args:
        pieces: The contents of these records.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._piece = 0
        self._at = 8

    def read(self) -> list[str]:
        """Return all strings, up to the first one that is cut off."""
        count = int.from_bytes(self._pieces[0][4:8], "little")
        strings: list[str] = []
        try:
            while len(strings) < min(count, _MOST_STRINGS):
                strings.append(self._string())
        except IndexError:
            pass
        return strings

    def _string(self) -> str:
        count = int.from_bytes(self._take(2), "little")
        flags = self._take(1)[0]
        runs = int.from_bytes(self._take(2), "little") if flags & 0x08 else 0
        added = int.from_bytes(self._take(4), "little") if flags & 0x04 else 0
        text = ""
        while count:
            width = 2 if flags & 0x01 else 1
            left = (len(self._pieces[self._piece]) - self._at) // width
            part = self._take(min(count, left) * width)
            text += part.decode("utf-16-le" if width == 2 else "latin-1", "replace")
            count -= len(part) // width
            if count:  # continued in the next record, which begins with its own flags
                self._piece, self._at = self._piece + 1, 1
                flags = self._pieces[self._piece][0]
        self._skip(4 * runs + added)
        return text

    def _take(self, count: int) -> bytes:
        """Return bytes that are in one record."""
        while count and self._at >= len(self._pieces[self._piece]):
            self._piece, self._at = self._piece + 1, 0
        taken = self._pieces[self._piece][self._at : self._at + count]
        if len(taken) < count:
            raise IndexError
        self._at += count
        return taken

    def _skip(self, count: int) -> None:
        while count:
            here = min(count, len(self._pieces[self._piece]) - self._at)
            self._at, count = self._at + here, count - here
            if count:
                self._piece, self._at = self._piece + 1, 0


def rk(data: bytes, at: int) -> float:
    """Return a number in the short form of cells."""
    word = int.from_bytes(data[at : at + 4], "little", signed=True)
    value: float
    if word & 2:
        value = word >> 2
    else:
        (value,) = struct.unpack("<d", bytes(4) + (word & ~3 & 0xFFFFFFFF).to_bytes(4, "little"))
    return value / 100 if word & 1 else value


def link(data: bytes) -> SheetLink:
    """Return a link.

    Raises:
        Damaged: It is invalid.
    """
    if len(data) < 32:
        raise Damaged("a link of the workbook is cut off")
    top, bottom, left, right = struct.unpack_from("<4H", data)
    flags, at = int.from_bytes(data[28:32], "little"), 32
    for flag in (0x10, 0x80):  # a text, a frame
        if flags & flag:
            at += 4 + 2 * int.from_bytes(data[at : at + 4], "little")
    address = ""
    if flags & 0x100:
        address, at = _counted(data, at, 2)
    elif flags & 0x01:
        kind, at = data[at : at + 16], at + 16
        if kind == _URL:
            address, at = _counted(data, at, 1)
        elif kind == _FILE:
            length = int.from_bytes(data[at + 2 : at + 6], "little")
            address = data[at + 6 : at + 6 + length].partition(b"\0")[0].decode("latin-1")
            return SheetLink(top, bottom, left, right, address)
    if flags & 0x08:
        place, at = _counted(data, at, 2)
        address = f"{address}#{place}"
    return SheetLink(top, bottom, left, right, address)


def _counted(data: bytes, at: int, width: int) -> tuple[str, int]:
    """Return a string with its length in four bytes, and where it ends."""
    end = at + 4 + width * int.from_bytes(data[at : at + 4], "little")
    return data[at + 4 : end].decode("utf-16-le", "replace").partition("\0")[0], end

"""Mail messages of Outlook: sender, recipients, text, and attachments.

Sources: [MS-OXMSG], [MS-OXPROPS], [MS-OXRTFCP] (compressed text).
"""

from __future__ import annotations

import datetime
import email.utils
import struct
from collections.abc import Iterator

from flowengine_documents import html, rtf
from flowengine_documents.document import ConversionLimits, Damaged, LimitReached
from flowengine_documents.encodings import declared_in
from flowengine_documents.formats import CompoundFile
from flowengine_documents.mail import write_attachment, write_head, write_text
from flowengine_documents.markdown import Writer
from flowengine_documents.rtf_tokens import encoding_of_page
from flowengine_documents.text import decode

PROPERTIES = "__properties_version1.0"
_TEXT, _BYTES = "001F", "0102"
_OLD_TEXT = "001E"
_SUBJECT, _SENT, _RECEIVED = "0037", 0x0039, 0x0E06
_PLAIN, _RICH, _HTML = "1000", "1009", "1013"
_PAGE, _PAGE_OF_HTML = 0x3FFD, 0x3FDE
_KIND_OF_RECIPIENT = 0x0C15
_TO, _CC = 1, 2
_HEADS = {"": 32, "__recip": 8, "__attach": 8}
"""Beginning of a storage → bytes before its first property."""
_EPOCH = datetime.datetime(1601, 1, 1, tzinfo=datetime.UTC)
_PACKED, _STORED = b"LZFu", b"MELA"
_DICTIONARY = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript "
    rb"\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n"
    rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)
_WINDOW = 4096


def convert(data: bytes, out: Writer) -> None:
    """Convert a message.

    Args:
        data: Its bytes.
        out: Receives the text.

    Raises:
        Damaged: It cannot be opened.
        LimitReached: Its text would become too large.
    """
    file = CompoundFile(data)
    message = _Part(file, "")
    recipients = [_Part(file, path) for path in _storages(file, "__recip_version1.0_")]
    sent = message.time(_SENT) or message.time(_RECEIVED)
    write_head(
        out,
        message.text(_SUBJECT),
        [
            ("From", _address(message.text("0C1A"), message.text("5D01", "0C1F"))),
            ("To", _addresses(recipients, _TO) or message.text("0E04")),
            ("Cc", _addresses(recipients, _CC) or message.text("0E03")),
            ("Date", email.utils.format_datetime(sent) if sent else ""),
        ],
    )
    _write_body(message, out)
    for path in _storages(file, "__attach_version1.0_"):
        part = _Part(file, path)
        embedded = _Part(file, f"{path}/__substg1.0_3701000D")
        name = part.text("3707", "3704", "3001") or embedded.text(_SUBJECT)
        kind = "message/rfc822" if embedded.exists else part.text("370E")
        write_attachment(out, name, kind, part.size_of_bytes("3701"))


def _write_body(message: _Part, out: Writer) -> None:
    title, page = out.document.title, message.number(_PAGE_OF_HTML)
    if markup := message.bytes(_HTML) or message.text(_HTML).encode():
        html.convert(markup, out, declared_in(markup) or (encoding_of_page(page) if page else ""))
    elif packed := message.bytes(_RICH):
        try:
            rtf.convert(unpacked(packed, out.limits), out)
        except Damaged as error:
            out.note(f"the formatted text cannot be read: {error}")
            write_text(out, message.text(_PLAIN))
    else:
        write_text(out, message.text(_PLAIN))
    out.document.title = title


def _storages(file: CompoundFile, beginning: str) -> list[str]:
    """Return the storages of the message itself whose names begin so."""
    names = (path.partition("/")[0] for path in file.paths)
    return sorted({name for name in names if name.lower().startswith(beginning)})


def _addresses(recipients: list[_Part], kind: int) -> str:
    named = (
        _address(each.text("3001"), each.text("39FE", "3003"))
        for each in recipients
        if each.number(_KIND_OF_RECIPIENT) == kind
    )
    return ", ".join(filter(None, named))


def _address(name: str, address: str) -> str:
    """Return a name with its address. Addresses of Exchange are left out."""
    shown = address if "@" in address and address != name else ""
    return f"{name} <{shown}>" if name and shown else name or shown


class _Part:
    """The properties of a message, a recipient or an attachment.

    Args:
        file: The file.
        path: Its storage.
    """

    def __init__(self, file: CompoundFile, path: str) -> None:
        self._file = file
        self._path = f"{path}/" if path else ""
        stream = file.find(f"{self._path}{PROPERTIES}")
        self.exists = bool(stream)
        heads = (size for name, size in _HEADS.items() if name and path.startswith(name))
        head = 24 if "3701000D" in path else next(heads, _HEADS[""])
        self._fixed = dict(_fixed(file.read(stream)[head:])) if stream else {}
        page = self.number(_PAGE)
        self._encoding = encoding_of_page(page) if page else ""

    def number(self, id: int) -> int:
        """Return a number, 0 if it is not set."""
        return int.from_bytes(self._fixed.get(id, b"")[:4], "little")

    def time(self, id: int) -> datetime.datetime | None:
        """Return a point in time."""
        ticks = int.from_bytes(self._fixed.get(id, b""), "little")
        try:
            return _EPOCH + datetime.timedelta(microseconds=ticks // 10) if ticks else None
        except OverflowError:
            return None

    def text(self, *ids: str) -> str:
        """Return the first of some texts that is not empty."""
        for id in ids:
            if path := self._file.find(self._stream(id, _TEXT)):
                text = self._file.read(path).decode("utf-16-le", "replace")
            elif path := self._file.find(self._stream(id, _OLD_TEXT)):
                text = decode(self._file.read(path), self._encoding)[0]
            else:
                continue
            if text := text.rstrip("\0"):
                return text
        return ""

    def bytes(self, id: str) -> bytes:
        """Return bytes, empty if they are not set."""
        path = self._file.find(self._stream(id, _BYTES))
        return self._file.read(path) if path else b""

    def size_of_bytes(self, id: str) -> int:
        """Return the number of some bytes."""
        path = self._file.find(self._stream(id, _BYTES))
        return self._file.size(path) if path else 0

    def _stream(self, id: str, kind: str) -> str:
        return f"{self._path}__substg1.0_{id}{kind}"


def _fixed(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the properties of a fixed size."""
    for at in range(0, len(data) - 15, 16):
        _, id = struct.unpack_from("<HH", data, at)
        yield id, data[at + 8 : at + 16]


def unpacked(data: bytes, limits: ConversionLimits) -> bytes:
    """Return a compressed text.

    Raises:
        Damaged: It is invalid.
        LimitReached: It would become too large.
    """
    if len(data) < 16:
        raise Damaged("its compressed text is cut off")
    size, kind = int.from_bytes(data[4:8], "little"), data[8:12]
    if size > limits.unpacked:
        raise LimitReached("unpacked", limits.unpacked, f"its text unpacks to {size:,} bytes")
    if kind == _STORED:
        return data[16 : 16 + size]
    if kind != _PACKED:
        raise Damaged("its compressed text is of an unknown kind")
    window = bytearray(_DICTIONARY.ljust(_WINDOW, b"\0"))
    end, at = len(_DICTIONARY), 16
    text = bytearray()
    while at < len(data) and len(text) < size:
        control, at = data[at], at + 1
        for bit in range(8):
            if at >= len(data) or len(text) >= size:
                break
            if control >> bit & 1:
                reference = int.from_bytes(data[at : at + 2], "big")
                at += 2
                start, length = reference >> 4, (reference & 0xF) + 2
                if start == end:
                    return bytes(text)
                copied = range(start, start + length)
            else:
                window[end] = data[at]
                text.append(data[at])
                end, at = (end + 1) % _WINDOW, at + 1
                continue
            for place in copied:
                window[end] = window[place % _WINDOW]
                text.append(window[end])
                end = (end + 1) % _WINDOW
    return bytes(text[:size])

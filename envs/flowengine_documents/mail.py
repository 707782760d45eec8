"""Mail messages: sender, recipients, texts, invitations and attachments, in their order."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from email.errors import MessageError
from email.message import EmailMessage
from email.policy import EmailPolicy
from functools import lru_cache
from typing import Any, cast

from flowengine_documents import html
from flowengine_documents.document import Damaged
from flowengine_documents.encodings import codec_of
from flowengine_documents.markdown import Writer
from flowengine_documents.text import decode, lines, noted

_MESSAGES = {"message/rfc822", "message/global", "message/partial"}
_TEXTS = {"text/plain": 1, "text/html": 2}
"""Type of a text → its rank among others with the same content."""
_DEEPEST = 6
_INVALID = (ValueError, IndexError, MessageError)
"""Exceptions for invalid headers."""
_HEADERS = ("From", "To", "Cc", "Date")
_LABEL = re.compile(r"(=\?|\*=)([\w:.-]+)(?=(?:\*[\w-]*)?\?[bq]\?|')", re.IGNORECASE)
"""The encoding of a word in a header (RFC 2047), or of a parameter (RFC 2231)."""
_SIGNED = "the message is signed. Its signature is not checked"
_SIGNED_DATA = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02"
_DATA = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01"
"""The identifier of the signed content in a signed message, RFC 5652, 5.2."""
_EVENT = {
    **{"SUMMARY": "Event", "DTSTART": "Start", "DTEND": "End", "RRULE": "Repeated"},
    **{"LOCATION": "Place", "ORGANIZER": "Organizer", "DESCRIPTION": "Description"},
    **{"DURATION": "Duration", "STATUS": "Status"},
}
"""Property of an invitation (RFC 5545) → its label."""
_PROPERTY = re.compile(r'([\w-]+)((?:;[\w-]+=(?:"[^"]*"|[^":;])*)*):(.*)', re.DOTALL)
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d)?")


class _Policy(EmailPolicy):
    """Decodes headers like texts."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        if not value.isascii():
            value = decode(value.encode("utf-8", "surrogateescape").replace(b"\0", b""))[0]
        return name, _LABEL.sub(lambda label: label[1] + (codec_of(label[2]) or label[2]), value)

    def header_fetch_parse(self, name: str, value: str) -> Any:
        return _parsed_header(name, value)


_parsed_header = lru_cache(1_000)(email.policy.default.header_fetch_parse)
"""A header is read several times, and parts often have the same ones."""


def convert(data: bytes, out: Writer) -> None:
    """Convert a message.

    Args:
        data: Its bytes.
        out: Receives the text.
    """
    write(parsed(data), out)


def write(message: EmailMessage, out: Writer, level: int = 1) -> None:
    """Write the texts, invitations and attachments of a message in their order, then its messages.

    Args:
        message: The message.
        out: Receives the text.
        level: Level of its heading. Messages in messages are a level lower. 0 means that its
            headers are not written.
    """
    if level:
        headers = [(name, _header(message, name)) for name in _HEADERS]
        write_head(out, _header(message, "Subject"), headers, level)
    parts, messages = [(message, False)], list[EmailMessage]()
    while parts:
        part, is_file = parts.pop()
        kind, inner = part.get_content_type(), _parts(part)
        if kind in _MESSAGES and inner and level < _DEEPEST:
            messages.append(inner[0][0])
        elif kind.startswith("multipart/") and inner:
            parts += reversed(inner)
        elif is_file or not _is_text(part):
            parts += ((signed, False) for signed in _write_file(part, out))
        else:
            _write_part(part, out)
        if kind == "multipart/signed":
            out.note(_SIGNED)
    for each in messages:
        write(each, out, level + 1)


def _write_part(part: EmailMessage, out: Writer) -> None:
    data = _data(part)
    if name := _name(part):
        write_attachment(out, name, part.get_content_type(), len(data))
    charset = part.get_content_charset() or ""
    try:
        if part.get_content_type() == "text/html":
            html.convert(data, out, charset)
        elif data:
            write_text(out, noted(data, out, charset))
    except Damaged as error:
        out.note(f"a text of type {part.get_content_type()} cannot be read: {error}")


def _write_file(part: EmailMessage, out: Writer) -> Iterator[EmailMessage]:
    """Write the name of a file, with the events of an invitation. Yield a signed message."""
    kind, data = part.get_content_type(), _data(part)
    if kind.endswith("pkcs7-mime") and (signed := _signed(data)):
        out.note(_SIGNED)
        yield parsed(signed)
        return
    if kind.endswith(("pkcs7-mime", "/pgp-encrypted")):
        out.note("the message is encrypted or compressed, so its text cannot be read")
    write_attachment(out, _name(part), kind, len(data))
    if kind == "text/calendar":
        for line in _event(noted(data, out, part.get_content_charset() or "")):
            out.item(1, line)


def _data(part: EmailMessage) -> bytes:
    """Return the content of a part: of a report, its fields, which are parsed like messages."""
    data = part.get_payload(decode=True)
    fields = (f"{name}: {value}\n" for each, _ in _parts(part) for name, value in each.raw_items())
    return data if isinstance(data, bytes) else "".join(fields).encode("utf-8", "surrogateescape")


def _parts(part: EmailMessage) -> list[tuple[EmailMessage, bool]]:
    """Return the parts to read of a part, and whether each is only named, as a file."""
    payload = part.get_payload()
    kind = part.get_content_type()
    if not isinstance(payload, list) or not kind.startswith(("message/", "multipart/")):
        return []
    inner = cast("list[EmailMessage]", payload)
    match kind if inner else "":
        case "multipart/related":  # a page, and the files that it shows
            start = part.get_param("start")
            page = next((each for each in inner if start and each["Content-ID"] == start), inner[0])
            return [(page, False), *((each, True) for each in inner if each is not page)]
        case "multipart/alternative":
            best = max(reversed(inner), key=_preference)
            others = (leaf for each in inner if each is not best for leaf in each.walk())
            return [(best, False), *((leaf, True) for leaf in others if not _is_text(leaf))]
    return [(each, False) for each in inner]


def _preference(part: EmailMessage) -> int:
    texts = (each for each in part.walk() if each.get_content_type() in _TEXTS)
    shown = (each for each in texts if not each.is_attachment() and _data(each).strip())
    return max((_TEXTS[each.get_content_type()] for each in shown), default=0)


def _is_text(part: EmailMessage) -> bool:
    """Return whether a part is shown, and is not only named as a file."""
    kind = part.get_content_type()
    if part.is_attachment() or kind in {"text/calendar", *_MESSAGES}:
        return False
    usual = kind in _TEXTS or kind.startswith(("message/", "multipart/"))
    return usual or (kind[:5] == "text/" and not _name(part))


def _signed(data: bytes) -> bytes:
    """Return the content of a signed message in CMS, empty if it has none.

    Source: RFC 5652, 5.2, in BER (X.690, 8.1.3 and 8.7).
    """
    at = data.find(_DATA, data.find(_SIGNED_DATA, 0, 32))
    if at < 0 or _SIGNED_DATA not in data[:32]:
        return b""
    at, content, around = at + len(_DATA), bytearray(), [0x24, 0xA0]
    while at + 2 <= len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length > 0x80:
            length, at = int.from_bytes(data[at : at + length - 0x80], "big"), at + length - 0x80
        if tag == 0x04:
            content += data[at : at + length]
            at, around = at + length, []
        elif tag in around:
            around.remove(tag)
        else:
            break
    return bytes(content)


def _event(calendar: str) -> Iterator[str]:
    """Yield the lines of the events of an invitation."""
    is_event = False
    for line in re.sub(r"\n[ \t]", "", lines(calendar)).split("\n"):
        if line.startswith(("BEGIN:", "END:")):
            is_event = line in {"BEGIN:VEVENT", "END:VALARM"}
        found = _PROPERTY.match(line)
        if found is None or not is_event or found[1].upper() not in _EVENT:
            continue
        name, given, value = found.groups()
        zone = re.search(r'TZID="?([^";]+)', given)
        if time := name.upper().startswith("DT") and _TIME.match(value):
            value = "-".join(time.group(1, 2, 3)) + (f" {time[4]}:{time[5]}" if time[4] else "")
            value += f" ({zone[1]})" if zone else " UTC" if time.string.endswith("Z") else ""
        yield f"{_EVENT[name.upper()]}: {_unescaped(value)}"


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", lambda sign: "\n" if sign[1] in "nN" else sign[1], value)


def write_head(
    out: Writer, subject: str, headers: Iterable[tuple[str, str]], level: int = 1
) -> None:
    """Write the subject of a message, which is its title on the first level, and its headers."""
    title = " ".join(subject.split())
    if level == 1:
        out.document.title = title
    out.heading(level, title)
    lines = ((name, " ".join(value.split())) for name, value in headers)
    out.block("  \n".join(f"{name}: {value}" for name, value in lines if value))


def write_attachment(out: Writer, name: str, media_type: str, size: int) -> None:
    about = ", ".join(filter(None, (media_type, f"{size:,} bytes" if size else "")))
    named = " ".join(name.split()) or "without a name"
    out.item(0, f"Attachment: {named}" + (f" ({about})" if about else ""))


def write_text(out: Writer, text: str) -> None:
    out.paragraph(lines(text).strip("\n"))


def parsed(data: bytes) -> EmailMessage:
    """Return a message, or a page saved as one (MHTML)."""
    policy = cast("EmailPolicy[EmailMessage]", _Policy())
    return email.message_from_bytes(data, policy=policy)


def _name(part: EmailMessage) -> str:
    """Return the name of a file, which a page saved as a message gives as its address."""
    with suppress(*_INVALID):
        if name := part.get_filename():
            return name
    return _header(part, "Content-Location")


def _header(message: EmailMessage, name: str) -> str:
    with suppress(*_INVALID):
        return " ".join(str(message.get(name, "")).split())
    return ""

"""Mail messages: sender, recipients, text, and attachments."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterable
from email.errors import MessageError
from email.message import EmailMessage
from typing import Any, cast

from flowengine_envs.documents import html
from flowengine_envs.documents.markdown import Writer, plain
from flowengine_envs.documents.text import decode, lines

_MESSAGE = "message/rfc822"
_DEEPEST = 6
_HEADERS = ("From", "To", "Cc", "Date")


def convert(data: bytes, out: Writer) -> None:
    """Convert a message.

    Args:
        data: Its bytes.
        out: Receives the text.
    """
    _write(parsed(data), out)


def _write(message: EmailMessage, out: Writer, level: int = 1) -> None:
    """Write a message, and the messages attached to it, whose headings are a level lower."""
    headers = [(name, _header(message, name)) for name in _HEADERS]
    write_head(out, _header(message, "Subject"), headers, level)
    write_body(message, out)
    is_envelope = message.get_content_type() == _MESSAGE
    messages: list[EmailMessage] = []
    for part in [message] if is_envelope else _attachments(message):
        inner = part.get_payload() if part.get_content_type() == _MESSAGE else None
        if level < _DEEPEST and isinstance(inner, list) and inner:
            messages.append(cast("EmailMessage", inner[0]))
        else:
            size = len(part.get_payload(decode=True) or b"")
            write_attachment(out, part.get_filename() or "", part.get_content_type(), size)
    for inner in messages:
        _write(inner, out, level + 1)


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
    """Write the name of an attachment."""
    about = ", ".join(filter(None, (media_type, f"{size:,} bytes" if size else "")))
    named = " ".join(name.split()) or "without a name"
    out.item(0, f"Attachment: {named}" + (f" ({about})" if about else ""))


def write_text(out: Writer, text: str) -> None:
    """Write plain text."""
    out.block("\n".join(plain(line) for line in lines(text).strip("\n").split("\n")))


def parsed(data: bytes) -> EmailMessage:
    """Return a message, or a page saved as one (MHTML)."""
    return email.message_from_bytes(data, policy=email.policy.default)


def write_body(message: EmailMessage, out: Writer) -> None:
    """Write the text of a message."""
    body = message.get_body(("html", "plain"))
    text = "" if body is None else _content(body)
    if body is not None and body.get_content_type() == "text/html":
        html.convert_text(text, out)
    else:
        write_text(out, text)


def _header(message: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(message.get(name, "")).split())
    except (ValueError, IndexError, MessageError):  # invalid headers
        return ""


def _content(part: Any) -> str:
    data = part.get_payload(decode=True) or b""
    return decode(data, part.get_content_charset() or "")[0] if data else ""


def _attachments(message: EmailMessage) -> list[EmailMessage]:
    try:
        return [*message.iter_attachments()]
    except (AttributeError, KeyError, MessageError):
        return []

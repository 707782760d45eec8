"""Mail messages: sender, recipients, text, and attachments."""

from __future__ import annotations

import email
import email.policy
from email.errors import MessageError
from email.message import EmailMessage
from typing import Any

from flowengine_envs.documents import html
from flowengine_envs.documents.markdown import Writer, plain
from flowengine_envs.documents.text import decode, lines

_HEADERS = ("From", "To", "Cc", "Date", "Subject")


def convert(data: bytes, out: Writer) -> None:
    """Convert a message.

    Args:
        data: Its bytes.
        out: Receives the text.
    """
    message = parsed(data)
    out.document.title = _header(message, "Subject")
    out.heading(1, out.document.title)
    headers = [(name, _header(message, name)) for name in _HEADERS[:-1]]
    out.block("  \n".join(f"{name}: {value}" for name, value in headers if value))
    write_body(message, out)
    for part in _attachments(message):
        name = part.get_filename() or "without a name"
        size = len(part.get_payload(decode=True) or b"")
        out.item(0, f"Attachment: {name} ({part.get_content_type()}, {size:,} bytes)")


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
        out.block("\n".join(plain(line) for line in lines(text).strip("\n").split("\n")))


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

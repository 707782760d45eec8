"""Encodings of received bytes: by a byte order mark, by a declaration, and by what they contain."""

from __future__ import annotations

import codecs
import json
import re
from contextlib import suppress

_MARKED = ("utf-8-sig", "utf-32", "utf-16")
"""Encodings of a byte order mark. Others are guessed."""
_DECLARED = re.compile(
    rb"""\A\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([^"'>]{1,40})"""
    rb"""|<meta[^>]{0,200}?charset\s*=\s*["']?\s*([^\s"'/>;]{1,40})""",
    re.IGNORECASE,
)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_HEAD = 4_096
"""Bytes that are searched for a declared encoding."""
_CODECS = {"gbk": "gb18030", "x-user-defined": "cp1252"}
"""Encodings of browsers whose codec has another name here."""
_CHARSETS = ("utf", "iso8859", "cp", "windows", "ascii", "latin", "koi8", "big5", "gb", "euc",
             "shift_jis", "mac", "tis", "iso2022", "hz", "johab")  # fmt: skip
"""Beginnings of the names of text encodings. Python has others that are not text encodings or take
unbounded time."""
_SEVEN_BITS = ("utf-7", "hz", "iso2022")
"""Their texts are valid UTF-8, too."""
_SHIFT = re.compile(rb"\x1b\$[@AB()]")
"""Begins Chinese, Japanese or Korean in a text of 7 bits."""


def marked_encoding(data: bytes) -> str | None:
    """Return the encoding that a byte order mark declares, or None without such a mark."""
    encoding = json.detect_encoding(data)
    return encoding if encoding in _MARKED else None


def declared_in(data: bytes) -> str:
    """Return the label of the encoding that HTML or XML declares for itself.

    A text whose declaration can be read is not UTF-16.
    """
    declared = _DECLARED.search(_COMMENT.sub(b"", data[:_HEAD]))
    label = (declared[1] or declared[2]).decode("ascii", "replace") if declared else ""
    return "utf-8" if codec_of(label).startswith("utf-16") else label


def charset_of(content_type: str) -> str:
    """Return the label of the encoding that a media type declares."""
    from email.message import Message

    message = Message()
    message["Content-Type"] = content_type.replace("\r", "").replace("\n", "")
    return message.get_content_charset() or ""


def codec_of(label: str) -> str:
    """Return the codec for the label of an encoding, empty if it is unknown.

    Labels mean what they mean to browsers: `gb2312` is GB18030, and `iso-8859-1` is windows-1252.

    Source: the Encoding Standard (WHATWG), 4.2.
    """
    from webencodings import lookup

    try:
        found = lookup(label)
        if found is None or found.name == "replacement":
            name = codecs.lookup(label).name
            found = lookup(name.replace("_", "-"))
            if found is None:
                return name if name.startswith(_CHARSETS) else ""
    except (LookupError, ValueError):
        return ""
    return _CODECS.get(found.name) or str(found.codec_info.name)


def declared_text(data: bytes, label: str = "") -> str | None:
    """Return the text of bytes in UTF-8 or a declared encoding, or None if it is in neither.

    A byte order mark takes precedence. Encodings of 7 bits come before UTF-8.
    """
    if marked := marked_encoding(data):
        return data.decode(marked, "replace")
    encodings = ["utf-8", codec_of(label)]
    if data.isascii() and (_SHIFT.search(data) or encodings[1].startswith(_SEVEN_BITS)):
        encodings = [encodings[1], "iso2022_jp_2", "utf-8"]
    elif b"\0" in data and encodings[1].startswith("utf-16"):
        encodings.reverse()
    texts = (text_in(data, each, 2 if each == "utf-8" else 1) for each in encodings if each)
    return next((text for text in texts if text is not None), None)


def text_in(data: bytes, codec: str, doubt: int = 2) -> str | None:
    """Return the text of bytes, or None if the encoding is probably another one.

    Args:
        data: The bytes.
        codec: The encoding.
        doubt: Characters outside of ASCII that must be decoded for each one that becomes U+FFFD.
    """
    with suppress(UnicodeDecodeError):
        return data.decode(codec)
    text = data.decode(codec, "with_signs_of_vendors")
    wrong, others = text.count("\ufffd"), len(text) - len(text.encode("ascii", "ignore"))
    return text if wrong * doubt <= others - wrong else None


def _sign_of_vendor(error: UnicodeError) -> tuple[str, int]:
    """Return a sign of NEC or IBM in Japanese text, such as ①, which cp932 has at the same place.

    Source: the Encoding Standard (WHATWG), 5, index jis0208.
    """
    assert isinstance(error, UnicodeDecodeError)
    sign = error.object[error.start : error.start + 2]
    if "jp" in error.encoding and len(sign) == 2:
        row, cell = ((each & 0x7F) - 0x21 for each in sign)
        lead, trail = row // 2 + (0x81 if row < 62 else 0xC1), cell + (cell > 62) + 0x40
        text = bytes([lead, cell + 0x9F if row % 2 else trail]).decode("cp932", "replace")
        if "\ufffd" not in text:
            return text, error.start + 2
    return "\ufffd", error.end


codecs.register_error("with_signs_of_vendors", _sign_of_vendor)

"""Text and JSON received from outside: from servers, programs, clients and files.

Converters of documents run this module inside sandboxes, so it needs only the standard library, and
the labels of encodings.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

DEEPEST = 200
"""Maximum nesting of a value that is kept."""
_DEEPEST_RECEIVED = DEEPEST - 10
"""Received data becomes part of a value, such as the result of a step, which is nested deeper."""
_TOO_DEEP = f"it is nested more than {_DEEPEST_RECEIVED} levels deep"
_MARK = "\ufeff"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_PATTERN = r"NaN|Infinity|[0-9]{19}|[0-9.][eE]\+?[0-9]{3}|\\u[dD][89a-fA-F]"
_UNUSUAL = re.compile(rf"\A\ufeff|{_PATTERN}")
_UNUSUAL_BYTES = re.compile(rf"\A\xef\xbb\xbf|{_PATTERN}".encode("latin-1"))
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
_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN = re.compile(rf"(?P<key>{_TEXT})(?=\s*:)|{_TEXT}|[{{}}\[\]]", re.DOTALL)
"""A key, another text or a bracket of JSON."""
_LEAST, _MOST = -(2**63), 2**64 - 1


def marked_encoding(data: bytes) -> str | None:
    """Return the encoding that a byte order mark declares, or None without such a mark."""
    return next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)


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


def received_text(data: bytes, encoding: str = "utf-8", errors: str = "strict") -> str:
    """Decode received bytes.

    Args:
        data: The bytes. A byte order mark takes precedence over the encoding, and is not part of
            the text.
        encoding: The declared encoding.
        errors: Treatment of undecodable bytes, as for `bytes.decode`.

    Returns:
        The text.

    Raises:
        UnicodeDecodeError: They are not text, and `errors` is `strict`.
    """
    return data.decode(marked_encoding(data) or encoding, errors).removeprefix(_MARK)


class RepeatedKey(ValueError):
    """An object in JSON has a key twice. The message names the key and its position."""


def received_json(received: str | bytes, *, lenient: bool = False, distinct: bool = False) -> Any:
    """Return the data of received JSON.

    A byte order mark is skipped. Half a surrogate pair, for example of an emoji that was cut,
    becomes U+FFFD.

    Args:
        received: JSON.
        lenient: Accept control characters in texts, and numbers that cannot be kept: `NaN` and
            infinities become null, and numbers beyond 64 bits the text of their digits. This is for
            answers: the effect that they report has happened, so they must not be lost.
        distinct: Refuse objects that have a key twice. Otherwise, its last value counts.

    Returns:
        Plain data that can be kept.

    Raises:
        RepeatedKey: An object has a key twice, and `distinct` is set.
        ValueError: It is not JSON, cannot be decoded, or contains a value that cannot be kept. The
            message states the reason.
    """
    text = received_text(received) if isinstance(received, bytes) else received
    text = text.removeprefix(_MARK)

    # Functions take time for each number.
    readers: dict[str, Any] = _number_readers(lenient) if is_unusual(text) else {}
    if distinct:
        readers["object_pairs_hook"] = _distinct
    try:
        value = json.loads(text, strict=not lenient, **readers)
    except RepeatedKey as error:
        raise RepeatedKey(f"{error} ({_place_of_repeated(text)})") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"{error.msg} ({place})") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("[") + text.count("{") > _DEEPEST_RECEIVED:
        _check_depth(value)
    return whole_texts(value) if "\\ud" in text.lower() or not _is_whole(text) else value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    raise RepeatedKey(f"the key {json.dumps(_shown(key), ensure_ascii=False)} is given twice")


def _place_of_repeated(text: str) -> str:
    """Return the position of the first key that an object of valid JSON has twice.

    Objects are compared in the order of their ends, as `json` reads them.
    """
    open_objects: list[dict[str, int] | None] = []
    repeated: list[int] = []
    for token in _TOKEN.finditer(text):
        if token[0] in "{[":
            open_objects.append({} if token[0] == "{" else None)
            repeated.append(-1)
        elif token[0] in "}]":
            open_objects.pop()
            if (at := repeated.pop()) >= 0:
                line = text.count("\n", 0, at) + 1
                return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"
        elif token["key"] is not None and (members := open_objects[-1]) is not None:
            key = json.loads(token["key"], strict=False)
            if members.setdefault(key, token.start()) != token.start() and repeated[-1] < 0:
                repeated[-1] = token.start()
    return "its position is unknown"


def _number_readers(lenient: bool) -> dict[str, Callable[[str], Any]]:
    """Return the functions that read numbers, as arguments of `json.loads`."""

    def constant(word: str) -> None:
        if not lenient:
            raise ValueError(f"{word} is not a number in JSON. Send null or text")

    def integer(digits: str) -> int | str:
        if len(digits) < 19 or (len(digits) < 22 and _LEAST <= int(digits) <= _MOST):
            return int(digits)
        if lenient:
            return digits
        raise ValueError(f"{_shown(digits)} has more than 64 bits. Send it as text")

    def fraction(digits: str) -> float | str:
        number = float(digits)
        if math.isfinite(number):
            return number
        if lenient:
            return digits
        raise ValueError(f"{_shown(digits)} is too large for a number. Send it as text")

    return {"parse_constant": constant, "parse_int": integer, "parse_float": fraction}


def is_unusual(received: str | bytes) -> bool:
    """Return whether JSON may contain a value that other readers refuse, or that cannot be kept."""
    if isinstance(received, str):
        return _UNUSUAL.search(received) is not None
    return _UNUSUAL_BYTES.search(received) is not None


def whole_text(text: str) -> str:
    """Return a text with surrogate pairs joined. An unpaired surrogate becomes U+FFFD.

    JSON can contain an unpaired surrogate, for example when a length limit cuts an emoji. It cannot
    be stored.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_texts(data: Any) -> Any:
    """Return data with `whole_text` applied to all its texts."""
    if isinstance(data, str):
        return whole_text(data)
    if isinstance(data, list):
        return [whole_texts(item) for item in data]
    if isinstance(data, dict):
        return {whole_text(key): whole_texts(value) for key, value in data.items()}
    return data


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST_RECEIVED):
        parts = [part.values() if isinstance(part, dict) else part for part in level]
        level = [each for part in parts for each in part if isinstance(each, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)

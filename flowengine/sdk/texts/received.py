"""Text and JSON received from outside: from servers, programs, clients and files."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

DEEPEST = 200
"""Maximum nesting of a value that is kept."""
_DEEPEST_RECEIVED = DEEPEST - 10
"""Received data becomes part of a value, such as the result of a step, which is nested deeper."""
_TOO_DEEP = f"it is nested more than {_DEEPEST_RECEIVED} levels deep"
_MARK = "\ufeff"
_MARKED = ("utf-8-sig", "utf-32", "utf-16")
"""Encodings of a byte order mark. Others are guessed."""
_PATTERN = r"NaN|Infinity|[0-9]{19}|[0-9.][eE]\+?[0-9]{3}|\\u[dD][89a-fA-F]"
_UNUSUAL = re.compile(rf"\A\ufeff|{_PATTERN}")
_UNUSUAL_BYTES = re.compile(rf"\A\xef\xbb\xbf|{_PATTERN}".encode("latin-1"))
_SURROGATE = re.compile(r"\\u[dD]|[\ud800-\udfff]")
_LEAST, _MOST = -(2**63), 2**64 - 1


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
    detected = json.detect_encoding(data)
    if detected in _MARKED:
        encoding = detected
    return data.decode(encoding, errors).removeprefix(_MARK)


class RepeatedKey(ValueError):
    """An object in JSON has a key twice. The message names the key."""


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
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"{error.msg} ({place})") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("[") + text.count("{") > _DEEPEST_RECEIVED:
        _check_depth(value)
    return whole_texts(value) if _SURROGATE.search(text) else value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    counts = Counter(key for key, _ in pairs)
    key = next(key for key, count in counts.items() if count > 1)
    raise RepeatedKey(f"the key {json.dumps(_shown(key), ensure_ascii=False)} is given twice")


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

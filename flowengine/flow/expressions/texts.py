"""CEL's functions of texts, `string()` and `format()`."""

from __future__ import annotations

import datetime
import functools
import math
import re
from collections.abc import Callable
from typing import Any

from flowengine.flow.expressions.bounds import room_for
from flowengine.flow.expressions.clock import time_text
from flowengine.flow.expressions.functions import EvaluationBudget
from flowengine.flow.expressions.operators import WrongTypes, as_double, takes, to_bytes
from flowengine.flow.expressions.paths import NoValue, name_of
from flowengine.flow.expressions.scope import TypeName
from flowengine.kernel.graph.compiled import Plain

_SPACE = " \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_TO_LOWER = str.maketrans(_LOWER.upper(), _LOWER)
_TO_UPPER = str.maketrans(_LOWER, _LOWER.upper())
_QUOTED = str.maketrans({
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
})  # fmt: skip
_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]*))?(.?))", re.DOTALL)
_MAX_PRECISION = 1000
_SPECIAL = frozenset(["NaN", "Infinity", "-Infinity"])


def text_of(value: Plain) -> str:
    """Return the text of a value, as `string()` does."""
    if isinstance(value, str) and not isinstance(value, TypeName):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise NoValue("the bytes are not the UTF-8 of a text") from None
    if isinstance(value, datetime.timedelta):
        total = value // datetime.timedelta(microseconds=1)
        seconds, rest = divmod(abs(total), 1_000_000)
        fraction = "" if not rest else f".{rest:06d}" if rest % 1000 else f".{rest // 1000:03d}"
        return f"{'-' if total < 0 else ''}{seconds}{fraction}s"
    if isinstance(value, datetime.datetime):
        return time_text(value)
    raise WrongTypes


def double_text(value: float) -> str:
    """Return the shortest text of a double, with an exponent from a million on.

    Args:
        value: The double.
    """
    if not math.isfinite(value):
        return str(value)
    sign = "-" if math.copysign(1, value) < 0 else ""
    digits, _, power = f"{abs(value):.16e}".partition("e")
    for precision in range(17):
        shortest = f"{abs(value):.{precision}e}"
        if float(shortest) == abs(value):
            digits, _, power = shortest.partition("e")
            break
    exponent = int(power)
    if -5 < exponent < 6:
        return f"{sign}{abs(value):.{max(len(digits) - 2 - exponent, 0)}f}"
    return f"{sign}{digits}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _index(text: str, index: int, function: str) -> int:
    """Return an index within a text, whose end counts."""
    if not 0 <= index <= len(text):
        raise NoValue(f"{function}() has no place {index}: the text has {len(text)} characters")
    return index


def _char_at(text: str, index: int) -> str:
    return text[_index(text, index, "charAt") :][:1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    return text.find(part, _index(text, start, "indexOf"))


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    return text.rfind(part, 0, _index(text, start, "lastIndexOf") + len(part))


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else _index(text, end, "substring")
    if _index(text, start, "substring") > last:
        raise NoValue(f"substring() cannot end at {last}, before its beginning at {start}")
    return text[start:last]


def _split(text: str, separator: str, limit: int = -1) -> list[Plain]:
    if limit == 0:
        return []
    if separator:
        return list(text.split(separator, limit - 1 if limit > 0 else -1))
    if not text:
        return [""]
    if limit < 0:
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]] if len(text) >= limit else list(text)


def _matches(text: str, pattern: str) -> bool:
    """Return whether a regular expression matches a part of a text, in linear time."""
    return regular_expression(pattern).search(to_bytes(text)) is not None


@functools.lru_cache(maxsize=128)
def regular_expression(pattern: str) -> Any:
    """Compile a regular expression of RE2, which bounds its size.

    Raises:
        NoValue: It is none.
    """
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(to_bytes(pattern), options)
    except re2.error as error:
        (reason,) = error.args
        raise NoValue(f"invalid regular expression: {reason.decode(errors='replace')}") from None


def _format(pattern: str, values: list[Plain]) -> str:
    """Return a text with a value in the place of each clause: `'%s: %d'.format(['a', 3])`."""
    EvaluationBudget().weigh(values)  # before shared parts are written out
    parts: list[str] = []
    at = used = length = 0
    for match in _CLAUSE.finditer(pattern):
        text = "%"
        if match.group() != "%%":
            if not match[2]:
                raise NoValue("format(): the text ends within a clause. Write '%%' for '%'")
            if used == len(values):
                raise NoValue(f"format(): there is no value for the clause '{match.group()}'")
            text = _clause(match[2], match[1], values[used])
            used += 1
        parts += [pattern[at : match.start()], text]
        at = match.end()
        length += len(text)
        room_for(length)
    return "".join([*parts, pattern[at:]])


def _clause(letter: str, digits: str | None, value: Plain) -> str:
    write = _CLAUSES.get(letter)
    if write is None:
        raise NoValue(f"format() has no clause '%{letter}'. It has %s %d %f %e %b %o %x %X %%")
    precision = int(digits[:5]) if digits else 6
    if precision > _MAX_PRECISION or digits == "":
        raise NoValue(f"format(): a precision is a number up to {_MAX_PRECISION}")
    text = write(value, precision)
    if text is None:
        raise NoValue(f"format(): '%{letter}' does not take {name_of(value)}")
    return text


def _shown(value: Plain, precision: int = 0) -> str:
    """Return any value as a readable text."""
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_shown(value[key])}' for key in sorted(value))}}}"
    if value is None or isinstance(value, TypeName):
        return "null" if value is None else str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return _special(value)
    return text_of(value)


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Plain, precision: int) -> str | None:
    if isinstance(value, float):
        return _fixed("f")(value, precision)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _fixed(letter: str) -> Callable[[Plain, int], str | None]:
    def fixed(value: Plain, precision: int) -> str | None:
        if isinstance(value, str):
            return value if value in _SPECIAL else None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        number = as_double(value)
        return f"{number:.{precision}{letter}}" if math.isfinite(number) else _special(number)

    return fixed


def _in_base(letter: str) -> Callable[[Plain, int], str | None]:
    def digits(value: Plain, precision: int) -> str | None:
        if isinstance(value, bool):
            return f"{value:{letter}}" if letter == "b" else None
        if isinstance(value, int):
            return f"{value:{letter}}"
        if letter in "xX" and isinstance(value, (str, bytes)):
            data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            return data.hex().upper() if letter == "X" else data.hex()
        return None

    return digits


_CLAUSES: dict[str, Callable[[Plain, int], str | None]] = {
    "s": _shown, "d": _decimal, "f": _fixed("f"), "e": _fixed("e"), "b": _in_base("b"),
    "o": _in_base("o"), "x": _in_base("x"), "X": _in_base("X"),
}  # fmt: skip

TEXT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "charAt": takes("si", _char_at),
    "contains": takes("ss", lambda text, part: part in text),
    "endsWith": takes("ss", str.endswith),
    "format": takes("sl", _format),
    "indexOf": takes("ss ssi", _index_of),
    "lastIndexOf": takes("ss ssi", _last_index_of),
    "lowerAscii": takes("s", lambda text: text.translate(_TO_LOWER)),
    "matches": takes("ss", _matches),
    "reverse": takes("s", lambda text: text[::-1]),
    "split": takes("ss ssi", _split),
    "startsWith": takes("ss", str.startswith),
    "string": text_of,
    "strings.quote": takes("s", lambda text: f'"{text.translate(_QUOTED)}"'),
    "substring": takes("si sii", _substring),
    "trim": takes("s", lambda text: text.strip(_SPACE)),
    "upperAscii": takes("s", lambda text: text.translate(_TO_UPPER)),
}

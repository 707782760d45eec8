"""Masking: replaces the values of secrets in texts, bytes and files by `***`.

A value may occur verbatim, line by line, or in base64, also as part of a longer encoded text such
as `user:password`. All of these may be escaped for JSON, HTML, Python, a shell or a URL, in any
notation and several times. So data is compared in every form between its own and the one without
escapes (`_readings`). Code that wants to hide a value in another form can do so: masking prevents
accidents.

Where output was cut before it could be masked, the halves of a value on both sides of the cut are
replaced as well: see `LEFT_OUT`.
"""

from __future__ import annotations

import base64
import logging
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property, lru_cache, partial
from operator import itemgetter
from typing import IO, Any, NamedTuple

from flowengine.kernel.graph.compiled import Plain

MASK = b"***"

LEFT_OUT = re.compile(rb"\n\.\.\. \d+ bytes left out[^\n]*\n")
"""The line that replaces output cut by a sandbox or a process runner."""

_SHORT = 4
"""A shorter value is masked only as a whole word. Masking each `a` of a text for a secret `a` would
reveal more than it hides."""
_SHORT_LINE = 8
"""From this length on, single lines of a secret with several lines are masked."""
_FOR_URLS = bytes.maketrans(b"+/", b"-_")
_BLOCK = 4 * 1024 * 1024
"""Bytes of a file that are searched together."""
_MARGIN = 64 * 1024
"""Bytes at the end of a block that are searched again with the next one."""


class _Known(NamedTuple):
    """The search patterns for the values that a masker knows."""

    forms: list[bytes]
    """The values as they are, without escapes, and in base64, the longest first."""
    words: list[bytes]
    """The same for values that are masked only as words."""
    short: re.Pattern[bytes] | None
    """Matches them."""
    anchors: dict[bytes, int]
    """The longest run of letters and digits of each form, and the length of the longest form with
    it. A value is only where its run is, or where a letter or a digit is escaped."""

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Return the positions of values in bytes, in order, without overlaps."""
        ranges = []
        for first, last in self._places(data):
            for reading in _readings(data[first:last]):
                found = [span for form in self.forms for span in _each(reading.text, form)]
                if self.short is not None:
                    found += [match.span() for match in self.short.finditer(reading.text)]
                ranges += [(first + reading.start(at), first + reading.end(to)) for at, to in found]
        return _joined(ranges)

    def open_end(self, data: bytes) -> int:
        """Return the start of the longest end of the bytes that may be the beginning of a value."""
        skipped = max(0, len(data) - self.reach)
        starts = [len(data)]
        for reading in _readings(data[skipped:], is_open=True):
            text = reading.text
            found = [_open_end(text, form, len(form) - 1) for form in self.forms]
            found += [_open_end(text, word, len(word)) for word in self.words]  # more may follow
            start = min(found, default=len(text))
            end = reading.start(start) if start < len(text) else reading.end(start)
            starts.append(skipped + end)
        return min(starts)

    @property
    def reach(self) -> int:
        """The bytes that the longest value may have."""
        return _reach(self.longest)

    @property
    def longest(self) -> int:
        """The bytes of the longest form, or 0 if no value is known."""
        return max(self.anchors.values(), default=0)

    def _places(self, data: bytes) -> list[tuple[int, int]]:
        """Return the parts of bytes that may have values: reading all of them takes long."""
        places = []
        finds: list[tuple[Callable[[int], int], int]] = [
            (partial(data.find, anchor), length) for anchor, length in self.anchors.items()
        ]
        if finds:
            finds.append((partial(_coded, data), self.longest))
        for find, length in finds:
            reach = _reach(length)
            at = find(0)
            while at >= 0:
                places.append((max(0, at - reach), at + 2 * reach))
                at = find(at + reach)
        return _joined(places)


def _reach(length: int) -> int:
    """Return the bytes that a form may have if it is escaped, and a little more."""
    return _LONGEST_ESCAPE * (1 + length)


class Masker:
    """Knows the values of some secrets."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._made: tuple[dict[str, str], _Known] | None = None
        """Built on first use, with the names that it was built for."""

    def learn(self, value: str, name: str) -> None:
        """Mask a value from now on.

        Args:
            value: The value of a secret. A value of whitespace only is not masked.
            name: The name of the secret.
        """
        if value in self._names or not value.strip():
            return
        self._names = {**self._names, value: name}

    @property
    def knows_any(self) -> bool:
        """Whether there are any values to mask."""
        return bool(self._names)

    def mask(self, value: Plain) -> Plain:
        """Return plain data with every known value in it replaced, including keys of maps."""
        return _mask(value, self._forms()) if self._names else value

    def stream(self) -> StreamMasker:
        """Return a masker for a text that arrives in pieces."""
        return StreamMasker(self)

    def _forms(self) -> _Known:
        names, made = self._names, self._made
        if made is None or made[0] is not names:
            made = self._made = (names, _known(names))
        return made[1]

    def names_in(self, file: IO[bytes]) -> list[str]:
        """Return the names of the secrets in a file.

        Args:
            file: The file, read from its current position to its end.
        """
        names: dict[str, None] = {}
        for data, spans, _ in self._blocks(file):
            for start, end in spans:
                names.update(dict.fromkeys(self._names_of(data[start:end])))
        return list(names)

    def mask_file(self, source: IO[bytes], target: IO[bytes]) -> None:
        """Copy a file with every known value in it replaced.

        Args:
            source: The file, read from its current position to its end.
            target: The file to write.
        """
        for data, spans, end in self._blocks(source):
            target.write(_replaced(data[:end], [span for span in spans if span[0] < end]))

    def _blocks(self, file: IO[bytes]) -> Iterator[tuple[bytes, list[tuple[int, int]], int]]:
        """Yield a file in blocks: the bytes, the positions of values, and how many bytes are new.

        No value begins in the new part of a block and ends after it.
        """
        known = self._forms()
        rest = b""
        while True:
            read = file.read(_BLOCK)
            data = rest + read
            spans = known.spans(data)
            end = max(0, len(data) - _MARGIN) if read else len(data)
            for start, stop in spans:
                if start < end < stop:
                    end = start
            yield data, spans, end
            if not read:
                return
            rest = data[end:]

    def _names_of(self, data: bytes) -> Iterator[str]:
        """Yield the names of the secrets in a piece of a file."""
        for value, name in self._names.items():
            if _known([value]).spans(data):
                yield name


class StreamMasker:
    """Masks a text that arrives in pieces, including values that are split over several pieces.

    An end that may be the beginning of a value is held back until this is decided. The masked
    pieces, joined, are the masked text.

    Args:
        masker: Knows the values.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""
        self._before = b""
        """The last byte that was passed on, which decides whether a word can begin after it."""

    def feed(self, piece: str) -> str:
        """Take the next piece, and return the text that can be passed on."""
        if not (self._masker.knows_any or self._held):  # replies come in many small pieces
            self._before = piece[-1:].encode(errors="surrogatepass")[-1:] or self._before
            return piece
        self._held += piece.encode(errors="surrogatepass")
        return self._pass_on(self._masker._forms().open_end(self._held))

    def close(self) -> str:
        """Return the text that was held back, because the text has ended."""
        return self._pass_on(len(self._held))

    def _pass_on(self, end: int) -> str:
        before = len(self._before)
        found = self._masker._forms().spans(self._before + self._held)
        spans = [(max(start - before, 0), stop - before) for start, stop in found]
        end = min([end, *(start for start, stop in spans if start < end < stop)])
        if len(self._held) - end > _MARGIN:
            end = len(self._held)
        passed, self._held = self._held[:end], self._held[end:]
        self._before = passed[-1:] or self._before
        masked = _replaced(passed, [span for span in spans if span[1] <= end])
        return masked.decode(errors="surrogatepass")


def _mask(value: Plain, known: _Known) -> Plain:
    if type(value) is str:
        data = value.encode(errors="surrogatepass")
        masked = _mask_bytes(data, known)
        return value if masked is data else masked.decode(errors="surrogatepass")
    if type(value) is dict:
        return {_mask(key, known): _mask(item, known) for key, item in value.items()}
    if type(value) is list:
        return [_mask(item, known) for item in value]
    return _mask_bytes(value, known) if type(value) is bytes else value


def _mask_bytes(data: bytes, known: _Known) -> bytes:
    spans = known.spans(data)
    masked = _replaced(data, spans) if spans else data
    return _without_halves(masked, known) if b"bytes left out" in masked else masked


def _without_halves(data: bytes, known: _Known) -> bytes:
    """Return bytes with partial values masked at the places where output was cut."""
    halves: list[tuple[int, int]] = []
    cuts = [match.span() for match in LEFT_OUT.finditer(data)]
    for (_, before), (start, end), (after, _) in zip(
        [(0, 0), *cuts], cuts, [*cuts[1:], (len(data), 0)], strict=False
    ):
        first = max(before, start - known.reach)
        for reading in _readings(data[first:start]):
            length = max((_overlap(reading.text, form) for form in known.forms), default=0)
            halves += [(first + reading.start(len(reading.text) - length), start)] * bool(length)
        for reading in _readings(data[end : min(after, end + known.reach)]):
            length = max((_overlap(form, reading.text) for form in known.forms), default=0)
            halves += [(end, end + reading.end(length))] * bool(length)
    return _replaced(data, _joined(halves))


def _overlap(left: bytes, right: bytes) -> int:
    """Return the length of the longest end of bytes that is the beginning of others."""
    for length in range(min(len(left), len(right)), _SHORT - 1, -1):
        if left.endswith(right[:length]):
            return length
    return 0


def _open_end(data: bytes, form: bytes, longest: int) -> int:
    """Return the start of the longest end of the bytes that is a beginning of a form.

    Args:
        data: The bytes.
        form: The form of a value.
        longest: Number of bytes of the form that count.
    """
    at = data.find(form[:1], max(0, len(data) - longest))
    while at >= 0 and not form.startswith(data[at:]):
        at = data.find(form[:1], at + 1)
    return at if at >= 0 else len(data)


def _coded(data: bytes, start: int) -> int:
    """Return where the next escaped letter or digit is. -1: nowhere."""
    match = _CODED.search(data, start)
    return match.start() if match else -1


def _each(data: bytes, form: bytes) -> Iterator[tuple[int, int]]:
    at = data.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = data.find(form, at + len(form))


def _replaced(data: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    pieces: list[bytes] = []
    done = 0
    for start, end in spans:
        pieces += (data[done:start], MASK)
        done = end
    return b"".join([*pieces, data[done:]])


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, with overlapping ones merged."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


# Escapes

_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\(?:u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|u\{[0-9a-fA-F]{1,6}\}|x[0-9a-fA-F]{2}|[0-7]{3}|.)"
    rb"|%[0-9a-fA-F]{2}"
    rb"|&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,7}|[A-Za-z][0-9A-Za-z]{1,31});?"
    rb"|'\"'\"'|\"'\"'\"|\"\"|''",
    re.DOTALL,
)
_UNFINISHED = re.compile(
    rb"(?:\\+(?:[uU]?\{?[0-9a-fA-F]{0,8}|x[0-9a-fA-F]?)|%[0-9a-fA-F]?|&[0-9A-Za-z#]{0,32}|[\"'])+\Z"
)
"""Matches an end that may be the beginning of an escape, and unfinished ones before it."""
_LONGEST_ESCAPE = 64
"""Bytes that an escaped character may have."""
_CODED = re.compile(
    rb"[\\%#](?:(?<=\\)(?:x|u00|U0{6}|u\{0*)HEX|(?<=%)(?:25)*HEX|(?<=#)[xX]0*HEX(?![0-9a-fA-F])"
    rb"|(?<=#)0*(?:3[578]|4[89]|5[0-7]|6[5-9]|[78][0-9]|9[027-9]|1[01][0-9]|12[0-2])(?![0-9])"
    rb"|(?<=\\)(?:06[0-7]|07[01]|1[0-7]{2}))".replace(
        b"HEX", rb"(?:2[356]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[cC])"
    )
)
"""Matches an escaped letter or digit, or the beginning of an escape that is escaped in turn."""
_MOST_READINGS = 8
"""How often an escape may be escaped."""
_NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f", b"v": b"\v", b"a": b"\a"}


class _Reading:
    """Data with its escapes replaced by the characters that they stand for.

    Args:
        text: The data.
        of: The reading whose escapes were replaced. None: this is the data itself.
    """

    def __init__(self, text: bytes, of: _Reading | None = None) -> None:
        self.text = text
        self._of = of

    @cached_property
    def _pieces(self) -> list[tuple[int, int, int, int]]:
        """Start and end of each replaced escape, here and there. Only values need them."""
        pieces: list[tuple[int, int, int, int]] = []
        less = 0
        assert self._of is not None
        for match in _ESCAPE.finditer(self._of.text):
            if (meant := _meant(match[0])) is not None:
                start, end = match.span()
                pieces.append((start - less, start - less + len(meant), start, end))
                less += end - start - len(meant)
        return pieces

    def start(self, at: int) -> int:
        """Return the position in the original data at which the character at a position begins."""
        return self._place(at)[0]

    def end(self, at: int) -> int:
        """Return the position in the original data at which the character before one ends."""
        return self._place(at - 1)[1] if at else 0

    def _place(self, at: int) -> tuple[int, int]:
        start, end = at, at + 1
        if self._of is None:
            return start, end
        if number := bisect_right(self._pieces, at, key=itemgetter(0)):
            _, until, first, last = self._pieces[number - 1]
            shifted = last + at - until
            start, end = (first, last) if at < until else (shifted, shifted + 1)
        return self._of.start(start), self._of.end(end)


def _readings(data: bytes, *, is_open: bool = False) -> Iterator[_Reading]:
    """Yield data as it is, and with its escapes replaced, until there are none.

    Args:
        data: The data.
        is_open: Whether more may follow, so that an escape at the end may be unfinished.
    """
    reading = _Reading(data)
    for _ in range(_MOST_READINGS):
        end = max(0, len(reading.text) - _LONGEST_ESCAPE)
        if is_open and (cut := _UNFINISHED.search(reading.text, end)):
            reading.text = reading.text[: cut.start()]
        yield reading
        meant = _ESCAPE.sub(_replacement, reading.text)
        if meant == reading.text:
            break
        reading = _Reading(meant, reading)
    if b"+" in reading.text:  # a space in a form
        reading.text = reading.text.replace(b"+", b" ")
        yield reading


def _replacement(match: re.Match[bytes]) -> bytes:
    meant = _meant(match[0])
    return match[0] if meant is None else meant


@lru_cache(4096)
def _meant(escape: bytes) -> bytes | None:
    """Return the characters that an escape stands for. None: it is none."""
    kind, rest = escape[:1], escape[1:]
    if kind in b"\"'":  # doubled in CSV and SQL, or quoted in a shell
        return kind
    if kind == b"%":
        return bytes.fromhex(rest.decode())
    if kind == b"&":
        from html import unescape

        text = unescape(escape.decode())
        return None if text == escape.decode() else text.encode(errors="surrogatepass")
    if len(rest) == 1:
        return _NAMED.get(rest, rest)
    if rest[:1] in b"01234567":
        return bytes([int(rest, 8) & 255])
    if rest[:1] == b"x":
        return bytes.fromhex(rest[1:].decode())
    digits = [int(each.strip(b"{}"), 16) for each in re.split(rb"\\?[uU]", rest)[1:]]
    text = "".join(chr(min(digit, sys.maxunicode)) for digit in digits)
    pair = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return pair.encode()


# Forms of a value


def _known(values: Iterable[str]) -> _Known:
    written: dict[bytes, None] = {}
    for text in [text for value in values for text in _texts(value)]:
        value = text.encode(errors="surrogatepass")
        read = [*_readings(value), *_readings(b"".join(map(_in_latin, text)))]
        written[value] = None
        written |= dict.fromkeys(each.text for each in read if len(each.text.strip()) >= _SHORT)
        if len(text) >= _SHORT:
            written |= dict.fromkeys(_base64(value))
    forms = sorted(written, key=len, reverse=True)
    short = [form for form in forms if len(form) < _SHORT]
    words = rb"(?<![\w\x80-\xff])(?:%s)(?![\w\x80-\xff])" % b"|".join(map(re.escape, short))
    long = [form for form in forms if len(form) >= _SHORT]
    anchors: dict[bytes, int] = {}
    for form in forms:
        anchor = max(re.findall(rb"[0-9A-Za-z]+", form), key=len, default=b"")
        anchors.setdefault(anchor, len(form))
    return _Known(long, short, re.compile(words) if short else None, anchors)


def _texts(secret: str) -> list[str]:
    """Return a value, and its lines that are masked separately."""
    lines = (line.strip() for line in secret.splitlines())
    return [secret, secret.strip(), *(line for line in lines if len(line) >= _SHORT_LINE)]


def _in_latin(character: str) -> bytes:
    """Return a character as the byte that stands for it in ISO 8859-1, or else in UTF-8."""
    return character.encode("latin-1" if character < "\u0100" else "utf-8", "surrogatepass")


def _base64(secret: bytes) -> Iterator[bytes]:
    """Yield the fixed part of a value in base64, for each offset in the encoded bytes.

    Three bytes become four characters. Characters that also depend on neighboring bytes are left
    out.
    """
    for offset in range(3):
        data = b"\0" * offset + secret
        form = base64.b64encode(data)[(offset * 8 + 5) // 6 : len(data) * 8 // 6]
        if len(form) >= _SHORT:
            yield form
            yield form.translate(_FOR_URLS)


# Logs


@cache
def mask_logs(mask: Callable[[Any], Any]) -> None:
    """Mask every record that is logged from now on, for all handlers.

    Records are created in one place, so they are masked there: filters of loggers apply only to
    that logger, and handlers may be added at any time.

    Args:
        mask: Replaces the values of secrets in plain data.
    """
    make = logging.getLogRecordFactory()
    tracebacks = logging.Formatter()

    def masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        try:
            text = record.getMessage()
        except Exception:
            return record  # the handler reports the error in it
        hidden = mask(text)
        if hidden != text:
            record.msg, record.args = hidden, None
        if record.exc_info and record.exc_info[0] is not None:
            text = tracebacks.formatException(record.exc_info)
            hidden = mask(text)
            if hidden != text:
                record.exc_text = hidden
        return record

    logging.setLogRecordFactory(masked)


NOTHING = Masker()
"""Masks nothing, for flows without secrets."""
PROCESS = Masker()
"""Knows the values that this process has read, for its logs."""

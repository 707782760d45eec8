"""Common mistakes in YAML, reported in the user's terms.

The parser reports "did not find expected ',' or '}'", while the user has left an expression
unquoted. Here, the parser's error and the text around it become a message and a hint. An
unambiguous mistake also has a patch of the same length, so that the rest of the file can be read
with all positions unchanged.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import yaml

LINE_END = re.compile(r"[\r\n]")
COMMENT = re.compile(r"[ \t]+#")
QUOTE = "put it in quotes, or use block style (| or >-)"


_ESCAPE_END = re.compile(r"[0-9a-fA-F]{0,8}")


class Slip(NamedTuple):
    """A place that is not valid YAML."""

    start: int
    """Index in the text. With a patch, the start of the value that is put in quotes."""
    end: int
    message: str
    hint: str | None = None
    patch: str | None = None
    """Text of the same length that the parser accepts."""
    at: int | None = None
    """Index to report, if it is not `start`."""


def find_slip(text: str, error: yaml.YAMLError, last: tuple[int, int] | None) -> Slip:
    """Return the mistake behind an error of the parser.

    Args:
        text: The parsed text.
        error: The error of the parser.
        last: Start and end of the last plain scalar before it.

    Returns:
        The mistake, in the user's terms.
    """
    if isinstance(error, yaml.reader.ReaderError):
        code = error.character if isinstance(error.character, int) else ord(error.character)
        message = f"the character U+{code:04X} is not allowed"
        index = max(text.find(chr(code)), 0)  # the parser counts bytes here
        return Slip(index, index + 1, message, "remove it")
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        start = int(error.args[0]) if error.args and isinstance(error.args[0], int) else 0
        return Slip(start, start + 1, "lists and maps are nested too deeply", "at most 100 levels")
    index = min(error.problem_mark.index, max(len(text) - 1, 0))
    problem, context = str(error.problem or ""), str(error.context or "")
    start = min(error.context_mark.index if error.context_mark else index, index)
    return (
        _expression(text, index, last)
        or _tab(text, index, problem)
        or _quoted(text, index, start, problem, context)
        or _indicator(text, index, start, problem, context)
        or _colon(text, index, problem, last)
        or _no_key(text, index)
        or _structure(text, index, start, problem, context)
    )


def cut_short(text: str, start: int, end: int) -> int | None:
    """Return the end of an expression that a comment cuts short, or None.

    Args:
        text: The file.
        start: Start of a plain scalar.
        end: Its end.
    """
    opened = text.rfind("${{", start, end)
    if opened < 0 or not COMMENT.match(text, end):
        return None
    closed = _expression_end(text, opened, _line_end(text, end))
    return closed if closed and closed > end else None


def _expression(text: str, index: int, last: tuple[int, int] | None) -> Slip | None:
    """Recognize an expression without quotes inside `{}` or `[]`, or one that `: ` cuts short."""
    if last is None:
        return None
    start, end = last
    opened = text.find("${{", start)
    in_flow = text[end - 1 : end + 2] == "${{" and index >= end
    if in_flow:
        opened = end - 1
        message = "an expression inside {...} or [...] must be quoted"
    elif 0 <= opened < index and "\n" not in text[opened:index] and text[index : index + 1] == ":":
        message = "': ' cuts the expression short"
    else:
        return None
    closed = _expression_end(text, opened, _line_end(text, opened))
    if closed is None:
        return Slip(start, end, message, QUOTE, at=opened)
    stop = _value_end(text, closed, in_flow)
    hint = '"' + text[start:stop].replace('"', "'") + '"' if stop - start <= 60 else QUOTE
    return Slip(
        start,
        stop,
        message,
        f"write {hint}" if hint != QUOTE else QUOTE,
        _patch(stop - start),
        opened,
    )


def _expression_end(text: str, opened: int, limit: int) -> int | None:
    """Return the index after the `}}` that ends the expression opened at `opened`."""
    depth, quote, index = 0, "", opened + 3
    while index < limit:
        character = text[index]
        if quote:
            if character == "\\":
                index += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character == "{":
            depth += 1
        elif character == "}" and depth:
            depth -= 1
        elif text.startswith("}}", index):
            return index + 2
        index += 1
    return None


def _value_end(text: str, start: int, in_flow: bool) -> int:
    """Return the end of a plain value that continues from `start`."""
    stop = re.compile(r"[,\]}\r\n]| #" if in_flow else r"[\r\n]| #").search(text, start)
    end = stop.start() if stop else len(text)
    return start + len(text[start:end].rstrip())


def _patch(length: int) -> str:
    return '"' + "x" * (length - 2) + '"'


def _tab(text: str, index: int, problem: str) -> Slip | None:
    line_start = text.rfind("\n", 0, index) + 1
    indentation = re.compile(r"[ \t]*").match(text, line_start)
    assert indentation
    tab = text.find("\t", line_start, indentation.end())
    if tab < 0 or not (
        "tab character" in problem or text[index] == "\t" or index <= indentation.end()
    ):
        return None
    return Slip(tab, indentation.end(), "a tab in the indentation", "indent with spaces")


def _quoted(text: str, index: int, start: int, problem: str, context: str) -> Slip | None:
    at_end = not text[index:].strip()
    if "escape character" in problem:
        hint = "write \\\\ for a backslash, or use single quotes"
        return Slip(index, index + 2, f"escape '{text[index : index + 2]}' does not exist", hint)
    if "escape code" in problem or "hexdecimal" in problem:
        end = _ESCAPE_END.match(text, index).end()  # type: ignore[union-attr]
        begin = text.rfind("\\", 0, index)
        hint = "write the character itself"
        return Slip(begin, end, f"'{text[begin:end]}' is not the escape of a character", hint)
    if "quoted scalar" in context:
        return Slip(
            start, start + 1, "this quote is never closed", "end the text with the same quote"
        )
    if at_end and "flow" in context:
        opened = max(text.rfind("{", 0, index), text.rfind("[", 0, index))
        start = start if text[start] in "{[" else max(opened, 0)
        return Slip(start, start + 1, f"this {text[start]!r} is never closed", None)
    return None


def _indicator(text: str, index: int, start: int, problem: str, context: str) -> Slip | None:
    """Recognize a text that begins with a character that has a special meaning."""
    character = text[start if "alias" in context or "anchor" in context else index]
    begins = "cannot start any token" in problem or "alias" in context or "anchor" in context
    if not begins or character in "\t\r\n":
        return None
    if "cannot start any token" not in problem:
        index = start
    message = f"a text cannot start with {character!r}"
    line_start = text.rfind("\n", 0, index) + 1
    if re.fullmatch(r"[^{\[]*(: |- )[ ]*", text[line_start:index]):
        end = _value_end(text, index, in_flow=False)
        return Slip(index, end, message, "put it in quotes", _patch(end - index))
    return Slip(index, index + 1, message, "put the text in quotes")


def _colon(text: str, index: int, problem: str, last: tuple[int, int] | None) -> Slip | None:
    """Recognize a text without quotes that contains `: `."""
    if "mapping values are not allowed" not in problem or last is None:
        return None
    start = last[0]
    if "\n" in text[start:index]:
        message = "this line is indented deeper than the one before, which already has a value"
        first = text.rfind("\n", 0, index) + 1
        first += len(text[first:index]) - len(text[first:index].lstrip())
        return Slip(first, index, message, "line it up with its siblings, or quote the text above")
    before = text[text.rfind("\n", 0, start) + 1 : start]
    if not before.strip():
        return None
    end = _value_end(text, index, in_flow=False)
    return Slip(start, end, "': ' inside a text that is not quoted", QUOTE, _patch(end - start))


def _no_key(text: str, index: int) -> Slip | None:
    """Recognize a value whose key is empty, which a map of the language does not have."""
    before = text[text.rfind("\n", 0, index) + 1 : index].rstrip()
    is_value = re.match(r":(?:\s|$|[,}\]])", text[index : index + 2])
    if is_value is None or (before and before[-1] not in "[{,-?"):
        return None
    return Slip(index, index + 1, "there is no key before this ':'", "a key must be text")


def _structure(text: str, index: int, start: int, problem: str, context: str) -> Slip:
    line_start = text.rfind("\n", 0, index) + 1
    first = line_start + len(text[line_start:]) - len(text[line_start:].lstrip(" "))
    end = max(_line_end(text, first), first + 1)
    if "<document start>" in problem:
        hint = "indent it, or write it in its own file"
        return Slip(first, end, "this line is no part of the value above", hint)
    if text[line_start:index].strip() and "block" in context:
        return Slip(index, end, "unexpected text after a value", "quote the text as a whole")
    if "block mapping" in context or "block collection" in context or "block sequence" in context:
        line = text.count("\n", 0, start) + 1
        message = f"this line does not line up with the block that starts in line {line}"
        return Slip(first, end, message, "indent it like its siblings")
    if "simple key" in context:
        key_end = max(_line_end(text, start), start + 1)
        return Slip(start, key_end, "expected 'key: value'", "add the colon, or indent the text")
    if "flow" in context:
        return Slip(
            index, index + 1, "expected ',' or the closing bracket", "check commas and quotes"
        )
    return Slip(index, index + 1, f"not YAML: {problem or context}", None)


def _line_end(text: str, index: int) -> int:
    end = LINE_END.search(text, index)
    return end.start() if end else len(text)

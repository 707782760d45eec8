"""Parsing of docstrings into the descriptions of a function and of its parameters.

Sections of parameters are recognized in the formats of Google, NumPy and reST (Sphinx).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from inspect import cleandoc

_WORDS = "Args|Arguments|Parameters|Params|Other Parameters|Keyword Args|Keyword Arguments"
_GOOGLE = re.compile(rf"(?:{_WORDS}):\s*")
_NUMPY = re.compile(rf"(?:{_WORDS})\s*")
_UNDERLINE = re.compile(r"-{3,}\s*")
_BEFORE, _AFTER = r"(?:[-*+•]\s+)?[*`]*", r"[*`]*"
"""Around a name: it can be an item of a list, and code or bold."""
_ENTRY = re.compile(
    rf"([ \t]+){_BEFORE}(\w+){_AFTER}\s*(\((?:[^()]|\([^()]*\))*\)\s*)?(?::(?:\s+(.*)|$)|$)"
)
_NAMES = re.compile(rf"{_BEFORE}(\w+{_AFTER}(?:\s*,\s*{_BEFORE}\w+{_AFTER})*)\s*(?::(.*))?")
_TYPES = (
    "(?:str|int|float|bool|bytes|list|dict|tuple|set|string|integer|number|boolean|array|object|date"
    r"|datetime|Any|None|Path|Decimal|UUID|optional|[\w.]+\[.*\]|[a-z]\w*\.\w+)"
)
_OR = r"(?:\s*[|,]\s*|\s+or\s+)"
_ONLY_A_TYPE = re.compile(rf"{_TYPES}(?:{_OR}{_TYPES})*")
_NAMES_A_TYPE = rf"`*(?:{_TYPES}|[A-Z]\w*|:\w+:`[^`]*)`*"
_IN_PARENTHESES = re.compile(rf"\((?:{_NAMES_A_TYPE}(?:{_OR}{_NAMES_A_TYPE})*)?\)")
"""A type where only a type can be. Words there, such as `one of 'a', 'b'`, describe values."""
_FIELD = re.compile(
    r":(param|parameter|arg|argument|key|keyword|type)\s+(?:([^:]*)\s)?\*{0,2}(\w+):(.*)"
)


def parse(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description and the parameters.

    Args:
        docstring: As written in the source, or None if there is none.

    Returns:
        The text without the descriptions of parameters, and these descriptions by parameter, each
        in one line.
    """
    rest: list[str] = []
    descriptions: dict[str, str] = {}
    fields: dict[str, list[str]] = {}
    lines = _cleaned(docstring or "")
    while lines:
        line, following = lines[0], lines[1] if len(lines) > 1 else ""
        if _GOOGLE.fullmatch(line):
            end = _end(lines, 1, lambda line: bool(line) and not line[0].isspace())
            known, left = _google(lines[1:end])
            descriptions |= known
            rest += [line, *left] if left else []
        elif _NUMPY.fullmatch(line) and _UNDERLINE.fullmatch(following):
            end = next(_headings(lines), len(lines))
            known, left = _numpy(lines[2:end])
            descriptions |= known
            rest += [*lines[:2], *left] if left else []
        elif match := _FIELD.match(line):
            end = _end(lines, 1, lambda line: not line or not line[0].isspace())
            field, typed, name, first = match.groups("")
            text = _joined([first, *lines[1:end]])
            parts = [f"({text})"] if field == "type" else [f"({typed})", text]
            fields.setdefault(name, []).extend(parts)
        else:
            rest.append(line)
            end = 1
        lines = lines[end:]
    descriptions |= {name: _without_type(of) for name, of in fields.items()}
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(rest)).strip()
    return text, {name: description for name, description in descriptions.items() if description}


def _cleaned(docstring: str) -> list[str]:
    """Return the lines of a docstring without the indentation of the function around it.

    `cleandoc` ignores the first line. If that line is a heading, it mistakes the indentation of the
    section for that of the function.
    """
    lines = cleandoc(docstring).split("\n")
    if len(lines) > 1 and _GOOGLE.fullmatch(lines[0]) and not lines[1][:1].isspace():
        lines[1:] = [f"    {line}" if line else "" for line in lines[1:]]
    return lines


def _end(lines: list[str], start: int, ends: Callable[[str], bool]) -> int:
    return next((at for at in range(start, len(lines)) if ends(lines[at])), len(lines))


def _headings(lines: list[str]) -> Iterator[int]:
    """Yield the positions where sections in NumPy format begin."""
    for at in range(2, len(lines) - 1):
        if lines[at] and not lines[at][0].isspace() and _UNDERLINE.fullmatch(lines[at + 1]):
            yield at


def _google(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the descriptions of parameters, and the lines before the first."""
    sections: dict[str, list[str]] = {}
    left: list[str] = []
    indent = name = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        entry = _ENTRY.match(line)
        if entry and ":" not in line and not following.startswith(f"{entry[1]} "):
            entry = None  # a word of the text before
        if entry and (not indent or len(entry[1]) <= len(indent)):
            indent, name = entry[1], entry[2]
            sections.setdefault(name, []).extend(entry.groups("")[2:])
        elif name:
            sections[name].append(line)
        elif line:
            left.append(line)
    return {name: _without_type(lines_of) for name, lines_of in sections.items()}, left


def _without_type(lines: list[str]) -> str:
    """Return a description in one line, without types in parentheses or in a line before it."""
    lines = [line for line in lines if line.strip() and not _IN_PARENTHESES.fullmatch(line.strip())]
    return _joined(lines[len(lines) > 1 and _ONLY_A_TYPE.fullmatch(lines[0].strip()) is not None :])


def _numpy(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the descriptions of parameters, and the lines before the first."""
    sections: dict[str, list[str]] = {}
    left: list[str] = []
    names: list[str] = []
    for line in lines:
        entry = _NAMES.fullmatch(line) if line and not line[0].isspace() else None
        if entry:
            names = re.findall(r"\w+", entry[1])
            sections |= {name: [entry[2] or ""] for name in names}
        elif not names and line:
            left.append(line)
        for name in names if not entry else ():
            sections[name].append(line)
    for name, of in sections.items():
        if text := _without_type(of[1:]):
            sections[name] = [f"({_joined(of[:1])})", text]
    return {name: _without_type(of) for name, of in sections.items()}, left


def _joined(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())

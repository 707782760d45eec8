"""A flow as the text of a file, with small values on one line and steps set apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from flowengine.flow.export.expanded_yaml import fits_literal, literal, scalar

WIDTH = 100
STEPS = frozenset({"steps", "group", "parallel", "finally"})
"""Keys whose lists are always written one entry per line."""
APART = frozenset({"steps", "finally"})
"""Top-level sections whose steps are set apart by empty lines."""
UNSAFE = re.compile(r"[,\[\]{}]")
"""Characters that a text inside braces cannot contain without quotes."""


def flow_text(data: dict[str, Any]) -> str:
    """Return the text of a flow file.

    Args:
        data: Its data.

    Returns:
        YAML, in sections.
    """
    head = {key: value for key, value in data.items() if not isinstance(value, dict | list)}
    sections = ["\n".join(_mapping(head, 0))]
    for key, value in data.items():
        if key in APART:
            steps = ("\n".join(_sequence([step], 2, spread=True)) for step in value)
            sections.append(f"{key}:\n" + "\n\n".join(steps))
        elif key not in head:
            sections.append("\n".join(_entry(f"{key}:", key, value, 0, top=True)))
    return "\n\n".join(sections) + "\n"


def _mapping(data: dict[str, Any], indent: int) -> Iterator[str]:
    for key, value in data.items():
        yield from _entry(f"{'':{indent}}{scalar(key)}:", key, value, indent)


def _sequence(data: list[Any], indent: int, spread: bool = False) -> Iterator[str]:
    for value in data:
        lead = f"{'':{indent}}-"
        line = None if spread else _on_one_line(lead, value)
        if line is None and isinstance(value, dict) and value:
            first, *rest = _mapping(value, indent + 2)
            yield f"{lead} {first[indent + 2 :]}"
            yield from rest
        else:
            yield from _entry(lead, "", value, indent)


def _entry(head: str, key: str, value: Any, indent: int, top: bool = False) -> Iterator[str]:
    line = None if top or (key in STEPS and value) else _on_one_line(head, value)
    if line is not None:
        yield line
    elif isinstance(value, dict) and value:
        yield head
        yield from _mapping(value, indent + 2)
    elif isinstance(value, list) and value:
        yield head
        yield from _sequence(value, indent + 2, spread=key in STEPS)
    elif isinstance(value, str) and fits_literal(value):
        yield from literal(head, value, indent)
    else:
        yield f"{head} {scalar(value)}"


def _on_one_line(head: str, value: Any) -> str | None:
    """Return a key and its value on one line, if they fit and the value is simple enough."""
    if not isinstance(value, dict | list) or not value or _has_lines(value):
        return None
    line = f"{head} {_braced(value)}"
    return line if len(line) <= WIDTH else None


def _has_lines(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_lines, value.values()))
    if isinstance(value, list):
        return any(map(_has_lines, value))
    return isinstance(value, str) and "\n" in value


def _braced(value: Any) -> str:
    if isinstance(value, dict) and value:
        return f"{{{', '.join(f'{_word(key)}: {_braced(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list) and value:
        return f"[{', '.join(map(_braced, value))}]"
    return _word(value)


def _word(value: Any) -> str:
    """Return a scalar inside braces, with expressions in quotes."""
    written = scalar(value)
    if isinstance(value, str) and not written.startswith('"') and UNSAFE.search(value):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return written

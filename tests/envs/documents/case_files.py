"""The files of cases in `cases/`: what cases share is written once.

`all` has the keys that all cases of a file share, and as an item of a group those of the items
after it. A key in capitals is a text that replaces `<KEY>` in the others. None removes a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from flowengine.flow.export.definition import to_yaml
from flowengine.flow.export.yaml_text import inline

Case = dict[str, Any]
WIDTH = 100
SHORT = 72
"""So long is a text of several lines that is written on one."""
RESULT = (
    "format",
    "title",
    "notes",
    "truncated",
    "parts",
    "tables",
    "markdown",
    "error",
    "message",
)


def shared_of(data: dict[str, Any], group: str, number: int) -> Case:
    """Return what an item of a group shares with others."""
    shared: Case = data.get("all", {})
    for item in data[group][:number]:
        if item.keys() == {"all"}:
            shared = _merged(data.get("all", {}), item["all"])
    return shared


def whole(shared: Case, case: Case) -> Case:
    """Return a case with what it shares."""
    made = _merged(shared, case)
    for key in [key for key in reversed(made) if key.isupper()]:
        made = _filled(made, key, made.pop(key))
    return {key: value for key, value in made.items() if value is not None}


def without(shared: Case, case: Case, found: Case) -> Case:
    """Return what a case has to state so that its result is what was found."""
    template = whole({key: shared[key] for key in shared if key != "OUT"}, case)
    before, mark, after = (template.get("markdown") or "").partition("<OUT>")
    pattern = f"{re.escape(before)}.*{re.escape(after)}"
    if mark and re.fullmatch(pattern, found.get("markdown", ""), re.DOTALL):
        text = found["markdown"]
        found = {**found, "OUT": text[len(before) : len(text) - len(after)]}
        template = {**template, "markdown": text, "OUT": shared.get("OUT")}
    found = {**{key: None for key in RESULT if key in template}, **found}
    return {key: value for key, value in found.items() if value != template.get(key)}


def _merged(shared: Case, case: Case) -> Case:
    made = dict(shared)
    for key, value in case.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = _merged(made[key], value) if both else value
    return made


def _filled(value: Any, key: str, text: str) -> Any:
    if isinstance(value, str):
        return value.replace(f"<{key}>", text)
    if isinstance(value, dict):
        return {name: _filled(each, key, text) for name, each in value.items()}
    return [_filled(each, key, text) for each in value] if isinstance(value, list) else value


def written(data: dict[str, Any]) -> str:
    """Return the text of a file of cases. What fits into a line has one."""
    lines: list[str] = []
    for name, value in data.items():
        if isinstance(value, list):
            lines += [f"{inline(name)}:", *_sequence(value, 2)]
        else:
            lines += _entry(f"{inline(name)}:", value, 0)
    return "\n".join(lines) + "\n"


def _mapping(data: Any, indent: int) -> Iterator[str]:
    for key, value in data.items():
        yield from _entry(f"{'':{indent}}{inline(key)}:", value, indent)


def _sequence(data: Any, indent: int) -> Iterator[str]:
    for value in data:
        line = f"{'':{indent}}- {_flow(value)}"
        if isinstance(value, dict) and value and not ("\n" in line or len(line) > WIDTH):
            yield line
        elif isinstance(value, dict) and value:
            first, *rest = _mapping(value, indent + 2)
            yield f"{'':{indent}}- {first[indent + 2 :]}"
            yield from rest
        else:
            yield from _entry(f"{'':{indent}}-", value, indent)


def _entry(head: str, value: Any, indent: int) -> Iterator[str]:
    line = f"{head} {_flow(value)}"
    if isinstance(value, str) and (len(value) > SHORT or "\n" not in value):
        first, *rest = to_yaml({"": value}).rstrip("\n").split("\n")
        yield f"{head} {first.partition(': ')[2]}"
        yield from (f"{'':{indent}}{each}" if each else "" for each in rest)
    elif not ("\n" in line or len(line) > WIDTH) or not isinstance(value, dict | list):
        yield line
    else:
        yield head
        yield from (_mapping if isinstance(value, dict) else _sequence)(value, indent + 2)


def _flow(value: Any) -> str:
    """Return a value on one line, unless it has texts of several ones."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and "\n" in value:
        return _quoted(value) if len(value) <= SHORT else value
    text = inline(value)
    plain = not isinstance(value, str) or text[0] in "\"'"
    return text if plain or not re.search(r"[][{},]|: |:$|^[<>|]", text) else _quoted(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.replace("\n", "").isprintable())

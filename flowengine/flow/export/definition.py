"""A compiled flow as text: in full, or as its definition to compare versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flowengine.flow.export.yaml_text import inline
from flowengine.flow.models import FlowModel, Loc
from flowengine.flow.structural_hash import CONSTANT, DECLARED, OPAQUE, PAIRS, meaning
from flowengine.kernel.graph.specs import CompiledFlow

# A flow with every short form expanded, as `flowengine check --print` shows it.
#
# The text is YAML that reads back as the same flow. It is not written by a library, because
# libraries do not quote by the core schema of YAML 1.2 or add comments on the effect of a line.

UNPRINTABLE = "\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff"
"""Characters that YAML forbids, that break lines in YAML, or that are invisible."""
LITERAL = re.compile(rf"[^\x00-\x08\x0b-\x1f{UNPRINTABLE}]*")
"""Text that can be written as a block."""
Comment = Callable[[Loc], str | None]


def expanded(model: FlowModel) -> str:
    """Return the text of a flow file with all short forms expanded.

    Returns:
        YAML with keys in the order of the language's reference, and after each write to state a
        comment with the effect of its reducer.
    """

    def comment(loc: Loc) -> str | None:
        if len(loc) < 3 or loc[-2] != "set" or not isinstance(loc[-3], int):
            return None
        reducer = model.state.get(str(loc[-1]), {}).get("reducer", "replace")
        return str(reducer["python"] if isinstance(reducer, dict) else reducer)

    data = model.plain()
    return "\n".join(_mapping(data, 0, (), comment)) + "\n"


def to_yaml(data: Any) -> str:
    """Return plain data as YAML in block style, which `yaml_source` reads back.

    Args:
        data: None, bools, numbers, text, lists, and maps with text keys.

    Returns:
        One document.
    """
    if isinstance(data, dict) and data:
        lines = _mapping(data, 0, (), lambda loc: None)
    elif isinstance(data, list) and data:
        lines = _sequence(data, 0, (), lambda loc: None)
    else:
        lines = iter([inline(data)])
    return "\n".join(lines) + "\n"


def _mapping(data: dict[str, Any], indent: int, loc: Loc, comment: Comment) -> Iterator[str]:
    for key, value in data.items():
        head = f"{'':{indent}}{inline(key)}:"
        yield from _entry(head, value, indent, (*loc, key), comment)


def _sequence(data: list[Any], indent: int, loc: Loc, comment: Comment) -> Iterator[str]:
    for index, value in enumerate(data):
        place = (*loc, index)
        if isinstance(value, dict) and value:
            first, *rest = _mapping(value, indent + 2, place, comment)
            yield f"{'':{indent}}- {first[indent + 2 :]}"
            yield from rest
        else:
            yield from _entry(f"{'':{indent}}-", value, indent, place, comment)


def _entry(head: str, value: Any, indent: int, loc: Loc, comment: Comment) -> Iterator[str]:
    note = comment(loc)
    tail = f"  # {note}" if note else ""
    if isinstance(value, dict) and value:
        yield head + tail
        yield from _mapping(value, indent + 2, loc, comment)
    elif isinstance(value, list) and value:
        yield head + tail
        yield from _sequence(value, indent + 2, loc, comment)
    elif isinstance(value, str) and fits_literal(value):
        first, *lines = literal(head, value, indent)
        yield first + tail
        yield from lines
    else:
        yield f"{head} {inline(value)}{tail}"


def literal(head: str, text: str, indent: int) -> Iterator[str]:
    """Yield the lines of a text as a block.

    Args:
        head: The text before it: its key.
        text: One of `fits_literal`.
        indent: Blanks before `head`.
    """
    body = text.rstrip("\n")
    chomp = {0: "-", 1: ""}.get(len(text) - len(body), "+")
    yield f"{head} |{chomp}"
    lines = text[: -1 if text.endswith("\n") else None].split("\n")
    yield from (f"{'':{indent + 2}}{line}" if line else "" for line in lines)


def fits_literal(text: str) -> bool:
    """Return whether a text can be written as a block."""
    first = text.lstrip("\n")[:1]
    return "\n" in text and first not in {"", " ", "\t"} and bool(LITERAL.fullmatch(text))


# The definition of a compiled flow as text, to compare versions of it.
#
# The text shows the meaning of a flow. It is not a flow file: short forms are expanded, and
# defaults are filled in.

_NUMBERS = frozenset({"bodies", "body", "expressions", "format"})
"""Keys that only number the parts of a flow."""
_TARGETS = frozenset({"to", "sources"})
"""Keys whose numbers are steps."""


def definition(compiled: CompiledFlow) -> str:
    """Return the definition of a flow as YAML, with the names of steps and the text of expressions.

    Args:
        compiled: The flow in plain form.
    """
    expressions = [f"${{{{ {one['at'][2]} }}}}" for one in compiled["expressions"]]
    steps = [step["id"] for step in compiled["steps"]]
    whole = _readable(meaning(compiled, expressions), steps)
    return to_yaml(
        {**{key: whole[key] for key in whole if key != "steps"}, "steps": whole["steps"]}
    )


def _readable(node: Any, steps: Sequence[str], key: str = "") -> Any:
    """Return a part of a flow with values in their file notation."""
    if key in _TARGETS:
        return _named(node, steps)
    if key in OPAQUE or key in CONSTANT:
        return node
    match node:
        case dict() if key in DECLARED:
            return {name: {k: _readable(v, steps) if k in ("value", "key") else v
                           for k, v in spec.items()} for name, spec in node.items()}  # fmt: skip
        case dict() if key == "with":
            return {name: _readable(value, steps) for name, value in node.items()}
        case dict():
            ordered = [inner for inner in ("id", *node) if inner in node and inner not in _NUMBERS]
            return {inner: _readable(node[inner], steps, inner) for inner in ordered}
        case list() if key in PAIRS:
            return [[name, _readable(value, steps)] for name, value in node]
        case ["const" | "given" | "expr", value]:
            return value
        case ["text" | "secret", list(parts)]:
            return "".join(part if isinstance(part, str) else str(part[0]) for part in parts)
        case ["list", list(items)]:
            return [_readable(item, steps) for item in items]
        case ["map", dict(entries)]:
            return {name: _readable(entry, steps) for name, entry in entries.items()}
        case list():
            return [_readable(item, steps) for item in node]
    return node


def _named(target: Any, steps: Sequence[str]) -> Any:
    """Return the ids of steps instead of their numbers."""
    if isinstance(target, list):
        return [_named(one, steps) for one in target]
    if isinstance(target, int):
        return steps[target] if target >= 0 else "none"
    return _readable(target, steps)

"""A flow as the text of a Python program that builds it."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from typing import Any

from flowengine.flow.building.steps import Words

WIDTH = 88
SCOPES = ("group", "parallel")
DECLARED = {"inputs": "input", "state": "state", "secrets": "secret", "tools": "tool"}
"""Sections with a method for each entry."""
LATER = frozenset({*DECLARED, "outputs", "signals", "flows"})
WORDS = frozenset(Words.__annotations__) - {"action"}
"""Keys of a step that are keyword arguments. Others are actions of packages."""


def program(data: dict[str, Any]) -> str:
    """Return a program that builds a flow in the variable `flow`.

    Args:
        data: The data of the flow file.

    Returns:
        The text of a module.
    """
    head, sections = _divided(data)
    flows = sections.pop("flows", {})
    lines = ["from flowengine import Flow", "", *_call("flow = Flow", [data["id"]], head, 0)]
    lines += _declarations("flow", sections)
    for id, body in flows.items():
        name = _variable(id)
        inner, declared = _divided(body)
        lines += ["", *_call(f"{name} = flow.subflow", [id], inner, 0)]
        lines += [*_declarations(name, declared), *_steps(name, body, declared)]
    return "\n".join([*lines, *_steps("flow", data, sections)]) + "\n"


def _divided(data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments for the creation of a flow, and the sections that are declared later."""
    head: dict[str, Any] = {}
    sections: dict[str, Any] = {}
    for key, value in data.items():
        later = value and isinstance(value, dict) and key in LATER
        if key not in {"flowengine", "id", "steps", "finally"}:
            (sections if later else head)[key] = value
    return head, sections


def _declarations(flow: str, sections: dict[str, Any]) -> list[str]:
    lines = []
    for section, entries in sections.items():
        if section != "outputs":
            lines.append("")
            for name, spec in entries.items():
                lines += _declaration(flow, section, name, spec)
    return lines


def _steps(flow: str, data: dict[str, Any], sections: dict[str, Any]) -> list[str]:
    """Return the lines of the steps, and of the outputs that refer to them."""
    lines = [line for step in data.get("steps", []) for line in ("", *_step(flow, step, 0))]
    if "finally" in data:
        lines += ["", f"with {flow}.finally_():", *_inside(flow, data["finally"], 0)]
    outputs = sections.get("outputs", {})
    written = [line for name, value in outputs.items() for line in _output(flow, name, value)]
    return [*lines, *([""] if written else []), *written]


def _declaration(flow: str, section: str, name: str, spec: Any) -> list[str]:
    if section in {"inputs", "state"}:
        given = ("default", *(("reducer", "signal") if section == "state" else ()))
        schema = {key: value for key, value in spec.items() if key not in given}
        more = {key: spec[key] for key in given if key in spec}
        if isinstance(more.get("reducer"), dict):
            schema["reducer"] = more.pop("reducer")
        return _call(f"{flow}.{DECLARED[section]}", [name, schema], more, 0)
    if section == "signals":
        data = [spec["data"]] if "data" in spec else []
        more = {"key": spec["key"]} if "key" in spec else {}
        return _call(f"{flow}.signal", [name, *data], more, 0)
    words = {_argument(key): value for key, value in spec.items()}
    return _call(f"{flow}.{DECLARED[section]}", [name], words, 0)


def _output(flow: str, name: str, value: Any) -> list[str]:
    if not isinstance(value, dict):
        return _call(f"{flow}.output", [name, value], {}, 0)
    schema = {key: entry for key, entry in value.items() if key != "value"}
    given = [name, value.get("value"), *([schema] if schema else [])]
    return _call(f"{flow}.output", given, {}, 0)


def _step(flow: str, step: dict[str, Any], indent: int) -> list[str]:
    scope = next((key for key in SCOPES if isinstance(step.get(key), list)), None)
    last = step.get("finally") if scope else None
    words = {key: value for key, value in step.items() if key not in {"id", scope}}
    if last is not None:
        del words["finally"]
    arguments = {_argument(key): word for key, word in words.items() if _argument(key) in WORDS}
    others = {key: word for key, word in words.items() if _argument(key) not in WORDS}
    arguments |= {"action": others} if others else {}
    if scope is None:
        return _call(f"{flow}.step", [step["id"]], arguments, indent)
    head = _call(f"with {flow}.{scope}", [step["id"]], arguments, indent)
    name = _variable(step["id"])
    head[-1] += ":" if last is None else f" as {name}:"
    lines = [*head, *_inside(flow, step[scope], indent)]
    if last is not None:
        lines += [f"{'':{indent}}with {name}.finally_():", *_inside(flow, last, indent)]
    return lines


def _inside(flow: str, steps: list[dict[str, Any]], indent: int) -> list[str]:
    return [line for step in steps for line in _step(flow, step, indent + 4)]


def _variable(id: str) -> str:
    return f"{id}_" if keyword.iskeyword(id) or id == "flow" else id


def _call(function: str, given: list[Any], named: dict[str, Any], indent: int) -> list[str]:
    """Return the lines of a call, with one argument per line if one line is too short."""
    arguments = [("", item) for item in given] + [
        (f"{key}=", value) for key, value in named.items()
    ]
    blank = " " * indent
    line = f"{blank}{function}({', '.join(name + _literal(one) for name, one in arguments)})"
    if len(line) <= WIDTH:
        return [line]
    lines = [f"{blank}{function}("]
    for name, value in arguments:
        lines += _value(f"{blank}    {name}", value, indent + 4)
    return [*lines, f"{blank})"]


def _value(head: str, value: Any, indent: int) -> Iterator[str]:
    """Yield the lines of a value after its name, with a comma."""
    blank = " " * indent
    line = f"{head}{_literal(value)},"
    if len(line) <= WIDTH or not isinstance(value, dict | list) or not value:
        yield line
    elif isinstance(value, dict):
        yield f"{head}{{"
        for key, entry in value.items():
            yield from _value(f"{blank}    {_literal(key)}: ", entry, indent + 4)
        yield f"{blank}}},"
    else:
        yield f"{head}["
        for item in value:
            yield from _value(f"{blank}    ", item, indent + 4)
        yield f"{blank}],"


def _argument(key: str) -> str:
    return f"{key}_" if keyword.iskeyword(key) or key == "with" else key


def _literal(value: Any) -> str:
    """Return a value as Python code on one line, with texts in double quotes where possible."""
    if isinstance(value, dict):
        entries = (f"{_literal(key)}: {_literal(entry)}" for key, entry in value.items())
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    written = repr(value)
    if written[0] == "'" and '"' not in written:  # otherwise the text contains no quote
        return f'"{written[1:-1]}"'
    return written

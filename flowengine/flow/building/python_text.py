"""A flow as the text of a Python program that builds it."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from typing import Any

from flowengine.flow.building.words import Words

WIDTH = 88
SCOPES = ("group", "parallel")
DECLARED = {"inputs": "input", "state": "state", "secrets": "secret", "tools": "tool"}
"""Sections whose entries have a method of their own."""
WORDS = frozenset(Words.__annotations__) - {"action"}
"""Words of a step that are arguments; others are actions of packages."""


def program(data: dict[str, Any]) -> str:
    """Return a program that builds a flow and calls it `flow`.

    Args:
        data: What the flow file would hold.

    Returns:
        The text of a module.
    """
    head: dict[str, Any] = {}
    sections: dict[str, Any] = {}
    for key, value in data.items():
        if key in {"flowengine", "id", "steps", "finally"}:
            continue
        entries = value and isinstance(value, dict) and key in {*DECLARED, "outputs", "signals"}
        (sections if entries else head)[key] = value
    lines = ["from flowengine import Flow", ""]
    lines += _call("flow = Flow", [data["id"]], head, 0)
    outputs = sections.pop("outputs", {})
    for section, entries in sections.items():
        lines.append("")
        for name, spec in entries.items():
            lines += _declaration(section, name, spec)
    for step in data.get("steps", []):
        lines += ["", *_step(step, 0)]
    if "finally" in data:
        lines += ["", "with flow.finally_():", *_inside(data["finally"], 0)]
    if outputs:
        lines.append("")
    for name, value in outputs.items():
        lines += _output(name, value)
    return "\n".join(lines) + "\n"


def _declaration(section: str, name: str, spec: Any) -> list[str]:
    if section in {"inputs", "state"}:
        schema = {key: one for key, one in spec.items() if key not in {"default", "reducer"}}
        more = {key: spec[key] for key in ("default", "reducer") if key in spec}
        if isinstance(more.get("reducer"), dict):
            schema["reducer"] = more.pop("reducer")
        return _call(f"flow.{DECLARED[section]}", [name, schema], more, 0)
    if section == "signals":
        data = [spec["data"]] if "data" in spec else []
        return _call("flow.signal", [name, *data], {k: spec[k] for k in ("key",) if k in spec}, 0)
    return _call(f"flow.{DECLARED[section]}", [name], spec, 0)


def _output(name: str, value: Any) -> list[str]:
    if not isinstance(value, dict):
        return _call("flow.output", [name, value], {}, 0)
    schema = {key: one for key, one in value.items() if key != "value"}
    return _call("flow.output", [name, value.get("value"), *([schema] if schema else [])], {}, 0)


def _step(step: dict[str, Any], indent: int) -> list[str]:
    scope = next((key for key in SCOPES if isinstance(step.get(key), list)), None)
    last = step.get("finally") if scope else None
    words = {key: one for key, one in step.items() if key not in {"id", scope}}
    if last is not None:
        del words["finally"]
    told = {_argument(key): one for key, one in words.items() if _argument(key) in WORDS}
    others = {key: one for key, one in words.items() if _argument(key) not in WORDS}
    told |= {"action": others} if others else {}
    if scope is None:
        return _call("flow.step", [step["id"]], told, indent)
    blank = " " * indent
    head = _call(f"with flow.{scope}", [step["id"]], told, indent)
    name = f"{step['id']}_" if keyword.iskeyword(step["id"]) or step["id"] == "flow" else step["id"]
    head[-1] += ":" if last is None else f" as {name}:"
    lines = [*head, *_inside(step[scope], indent)]
    if last is not None:
        lines += [f"{blank}with {name}.finally_():", *_inside(last, indent)]
    return lines


def _inside(steps: list[dict[str, Any]], indent: int) -> list[str]:
    return [line for step in steps for line in _step(step, indent + 4)]


def _call(function: str, given: list[Any], named: dict[str, Any], indent: int) -> list[str]:
    """Return the lines of a call; arguments stand each on a line where one is too short."""
    arguments = [("", one) for one in given] + [(f"{key}=", one) for key, one in named.items()]
    blank = " " * indent
    line = f"{blank}{function}({', '.join(name + _literal(one) for name, one in arguments)})"
    if len(line) <= WIDTH:
        return [line]
    lines = [f"{blank}{function}("]
    for name, value in arguments:
        lines += _value(f"{blank}    {name}", value, indent + 4)
    return [*lines, f"{blank})"]


def _value(head: str, value: Any, indent: int) -> Iterator[str]:
    """Yield the lines of a value behind its name, with a comma."""
    blank = " " * indent
    line = f"{head}{_literal(value)},"
    if len(line) <= WIDTH or not isinstance(value, dict | list) or not value:
        yield line
    elif isinstance(value, dict):
        yield f"{head}{{"
        for key, one in value.items():
            yield from _value(f"{blank}    {_literal(key)}: ", one, indent + 4)
        yield f"{blank}}},"
    else:
        yield f"{head}["
        for one in value:
            yield from _value(f"{blank}    ", one, indent + 4)
        yield f"{blank}],"


def _argument(key: str) -> str:
    return f"{key}_" if keyword.iskeyword(key) or key == "with" else key


def _literal(value: Any) -> str:
    """Return a value as Python has it on one line, texts in double quotes where they can be."""
    if isinstance(value, dict):
        entries = (f"{_literal(key)}: {_literal(one)}" for key, one in value.items())
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    written = repr(value)
    if isinstance(value, str) and '"' not in value:
        return '"' + written[1:-1].replace("\\'", "'") + '"'
    return written

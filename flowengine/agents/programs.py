"""Programs of models that call the tools of an agent (`code`).

A model is offered `run_program` in place of the tools. The program runs in an environment of kind
`python`. Its calls become calls of the agent, made by the same steps as those of a reply. Only what
it returns enters the conversation.
"""

from __future__ import annotations

import builtins
import json
import keyword
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from flowengine.agents.models.provider_schemas import wire_name
from flowengine.agents.text_calls.marked_form import ToolOffer
from flowengine.sdk import Plain
from flowengine.sdk.tools.schemas import record

RUN = "run_program"
"""Name of the tool by which a model runs a program."""
PLACE = "python"
"""Name under which the step finds its environment."""
MOST_CALLS = 1_000
"""Maximum number of calls of one program."""
_LONGEST_NAME = 64
_TYPES = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None",
    "array": "list", "object": "dict",
}  # fmt: skip


def step_of(agent: str) -> str:
    """Return the id of the step that runs an agent's programs.

    Args:
        agent: The agent.
    """
    return f"{agent}.program"


def functions(tools: Iterable[ToolOffer]) -> dict[str, ToolOffer]:
    """Return tools by the names of their functions in programs.

    Args:
        tools: The tools.
    """
    offers = [*tools]
    names = _names([wire_name(tool.name) for tool in offers], {*dir(builtins), "ToolError"})
    return dict(zip(names, offers, strict=True))


def parameters(tool: ToolOffer) -> dict[str, str]:
    """Return the properties of a tool by the names of its function's parameters.

    Those that are required come first, as in any function.

    Args:
        tool: The tool.
    """
    required = tool.schema.get("required", ())
    names = sorted(tool.schema["properties"], key=lambda name: name not in required)
    return dict(zip(_names(names, set()), names, strict=True))


def _names(wanted: Sequence[str], taken: Collection[str]) -> list[str]:
    """Return names of Python close to the wanted ones. Each is different, and none is taken."""
    kept = {one for one in wanted if one not in taken and _is_name(one)}
    used = {*taken, *kept}
    names = []
    for one in wanted:
        name = one
        if one not in kept:
            signs = unicodedata.normalize("NFKC", one)[:_LONGEST_NAME]
            name = "".join(sign if f"_{sign}".isidentifier() else "_" for sign in signs)
            name = name if name.isidentifier() else f"_{name}"
            while keyword.iskeyword(name) or name in used:
                name += "_"
            used.add(name)
        names.append(name)
    return names


def _is_name(text: str) -> bool:
    """Return whether Python reads a text as a name, and as this one."""
    is_plain = len(text) <= _LONGEST_NAME and unicodedata.normalize("NFKC", text) == text
    return is_plain and text.isidentifier() and not keyword.iskeyword(text)


def offer(tools: Mapping[str, ToolOffer], step: str = "") -> ToolOffer:
    """Return the tool that runs programs.

    Args:
        tools: The tools that programs can call, by the names of their functions.
        step: The step that runs programs.
    """
    written = "\n\n".join(_signature(name, tool) for name, tool in tools.items())
    code: Plain = {"type": "string", "description": "The program."}
    return ToolOffer(
        RUN,
        "Runs a Python program that calls tools, and returns its last expression or what it "
        "returns with 'return'. You see only that and what it prints, so return little. Tools are "
        "coroutines: 'await' each, or several at once with asyncio.gather. A failed call raises "
        f"ToolError. The same answers must lead to the same calls. The tools:\n\n{written}",
        record({"code": code}),
        step,
    )


def _signature(name: str, tool: ToolOffer) -> str:
    """Return the head of a tool's function, with its description."""
    required = tool.schema.get("required", ())
    heads = []
    notes = [tool.description] if tool.description else []
    for called, given in parameters(tool).items():
        schema = tool.schema["properties"][given]
        about = schema if isinstance(schema, Mapping) else {}
        default = repr(about["default"]) if "default" in about else "..."
        more = "" if given in required else f" = {default}"
        heads.append(f"{called}: {_type(schema)}{more}")
        renamed = [] if called == given else [f"the parameter {json.dumps(given)}"]
        described = [str(about["description"])] if about.get("description") else []
        if renamed or described:
            notes.append(f"{called}: {'. '.join([*renamed, *described])}")
    about_it = "".join(f"\n    # {line}" for note in notes for line in note.splitlines())
    return f"async def {name}({', '.join(heads)}){about_it}"


def _type(schema: Any) -> str:
    """Return a JSON Schema as a type of Python, as exact as one line allows."""
    if not isinstance(schema, Mapping):
        return "Any"
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"Literal[{', '.join(map(repr, values))}]"
    parts = schema.get("anyOf") or schema.get("oneOf")
    if parts:
        return " | ".join(dict.fromkeys(map(_type, parts)))
    kinds = schema.get("type", "Any")
    if isinstance(kinds, list):
        return " | ".join(_TYPES.get(str(kind), "Any") for kind in kinds)
    if kinds == "array" and "items" in schema:
        return f"list[{_type(schema['items'])}]"
    fields = schema.get("properties")
    if kinds == "object" and fields:
        return f"{{{', '.join(f'{key!r}: {_type(one)}' for key, one in fields.items())}}}"
    return _TYPES.get(str(kinds), "Any")

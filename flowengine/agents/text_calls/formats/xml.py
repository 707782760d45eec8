"""The XML of this project, `<function=add><parameter=a>1</parameter></function>`, and its variants.

Qwen3-Coder writes the same with `<tool_call>` around it; others write `<invoke name="add">`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from json import dumps
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, Mark, literal
from flowengine.agents.text_calls.formats.hermes import TOOL_CALL
from flowengine.agents.text_calls.formats.tags import Tags, as_value, read_block
from flowengine.agents.text_calls.source import Source

_PARAMETER = r"""<parameter\s*=\s*["']?(?P<name>[\w.-]{1,128})["']?\s*>"""
_XML = Tags(
    head=re.compile(r"""<function\s*=\s*["']?(?P<name>[\w.-]{1,128})["']?\s*>"""),
    half=re.compile(r"""<function\s*+=\s*+["']?(?P<name>[\w.-]{0,128})["']?\s*+\Z"""),
    parameter=re.compile(_PARAMETER),
    value_end=re.compile(
        r"</parameter>(?=\s*(?:<parameter\s*=|</function>|</tool_call>|<function\s*=|\Z))"
    ),
    end=re.compile(r"</function>"),
    outer=re.compile(r"</tool_call>|</function_calls>"),
)
_NAMED = r"""<(?:\w{1,20}:)?parameter\s+name\s*=\s*["'](?P<name>[\w.-]{1,128})["']\s*>"""
_INVOKE = Tags(
    head=re.compile(r"""<(?:\w{1,20}:)?invoke\s+name\s*=\s*["'](?P<name>[\w.-]{1,128})["']\s*>"""),
    half=re.compile(
        r"""<(?:\w{1,20}:)?invoke(?:\s++name\s*+=?\s*+["']?(?P<name>[\w.-]{0,128})["']?\s*+)?+\Z"""
    ),
    parameter=re.compile(_NAMED),
    value_end=re.compile(
        r"</(?:\w{1,20}:)?parameter>(?=\s*(?:<(?:\w{1,20}:)?parameter\s+name|"
        r"</(?:\w{1,20}:)?invoke>|</(?:\w{1,20}:)?(?:function_calls|tool_calls?)>|\Z))"
    ),
    end=re.compile(r"</(?:\w{1,20}:)?invoke>"),
    outer=re.compile(r"</(?:\w{1,20}:)?(?:function_calls|tool_calls?)>"),
)
_OUTER = re.compile(r"<(?:\w{1,20}:)?(?:function_calls|tool_calls?)>")
_BLOCK_OF_INVOKES = re.compile(
    r"<(?:\w{1,20}:)?(?:function_calls|tool_calls?)>\s*(?=<(?:\w{1,20}:)?invoke\s)"
)


def _read_xml(source: Source, start: int) -> Found | None:
    if not source.text.startswith("<tool_call>", start):
        return read_block(source, start, start, _XML)
    inside = source.skip(start + len("<tool_call>"))
    if not source.text.startswith("<function", inside):
        return None
    return read_block(source, start, inside, _XML)


def _read_invoke(source: Source, start: int) -> Found | None:
    if block := _BLOCK_OF_INVOKES.match(source.text, start):
        return read_block(source, start, block.end(), _INVOKE)
    if _OUTER.match(source.text, start):
        return None
    return read_block(source, start, start, _INVOKE)


def _write_xml(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    return "\n".join(_written(name, arguments) for name, arguments in calls)


def _written(name: str, arguments: dict[str, Any]) -> str:
    values = {key: as_text(value) for key, value in arguments.items()}
    if any("</parameter>" in value for value in values.values()):
        return f"<function={name}>{dumps(arguments, ensure_ascii=False)}</function>"
    lines = [f"<parameter={key}>{as_value(value)}</parameter>" for key, value in values.items()]
    return "\n".join([f"<function={name}>", *lines, "</function>"])


def _write_invoke(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    lines = ["<function_calls>"]
    for name, arguments in calls:
        lines.append(f'<invoke name="{name}">')
        for key, value in arguments.items():
            lines.append(f'<parameter name="{key}">{as_value(as_text(value))}</parameter>')
        lines.append("</invoke>")
    return "\n".join([*lines, "</function_calls>"])


def as_text(value: Any) -> str:
    """Write an argument as text without a type.

    Args:
        value: Plain data.
    """
    return value if isinstance(value, str) else dumps(value, ensure_ascii=False)


_FUNCTION = literal("<function=")
XML = Format(
    "xml",
    (Mark(r"<function\s?=", _FUNCTION.begun), TOOL_CALL),
    _read_xml,
    _write_xml,
)
_INVOKE_MARK = Mark(
    r"<(?:\w{1,20}:)?(?:invoke\s|function_calls>|tool_calls?>(?=\s*<(?:\w{1,20}:)?invoke))",
    r"<(?:\w{1,20}:)?(?:\w{0,20}|tool_calls?>\s{0,40}(?:<[\w:]{0,30})?)",
)
INVOKE = Format("invoke", (_INVOKE_MARK,), _read_invoke, _write_invoke)

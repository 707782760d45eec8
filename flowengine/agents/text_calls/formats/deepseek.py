"""DeepSeek, in three forms: of R1 and V3 with fenced JSON, of V3.1 with bare JSON, and DSML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from json import dumps
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, Mark, fault, literal
from flowengine.agents.text_calls.formats.json_calls import read_named
from flowengine.agents.text_calls.formats.tags import Tags, read_block
from flowengine.agents.text_calls.formats.xml import as_text
from flowengine.agents.text_calls.records import Fault
from flowengine.agents.text_calls.source import Source

_BAR, _GAP = "\uff5c", "\u2581"


def _token(*words: str) -> str:
    """Return one of their special tokens, which have bars and gaps of their own."""
    return f"<{_BAR}{_GAP.join(words)}{_BAR}>"


_BEGIN, _END = _token("tool", "calls", "begin"), _token("tool", "calls", "end")
_CALL, _CALL_END = _token("tool", "call", "begin"), _token("tool", "call", "end")
_SEPARATOR = _token("tool", "sep")

_HEAD = re.compile(
    rf"{_CALL}\s*(?:function\s*{_SEPARATOR}\s*(?P<typed>[\w.-]{{1,128}})\s*(?=```|\{{)"
    rf"|(?P<name>[\w.-]{{1,128}})\s*{_SEPARATOR}\s*)(?:```\w{{0,10}}\s*)?"
)
_CLOSING = re.compile(rf"(?:```\s*)?(?:{_CALL_END})|```(?=\s*(?:{_END}|{_CALL}|\Z))")
_LAST = re.compile(rf"\s*{_END}")


def _read(source: Source, start: int) -> Found | None:
    at = start + len(_BEGIN) if source.text.startswith(_BEGIN, start) else start
    block = Found(at)
    at = source.skip(at)
    while head := _HEAD.match(source.text, at):
        name = head["typed"] or head["name"]
        found = read_named(source, at, head.end(), name, closing=_CLOSING)
        block.items += found.items
        block.repairs += found.repairs
        block.end = found.end
        at = source.skip(found.end)
    if not block.items:
        end = min(len(source.text), at + 200)
        reason = "no call follows its first token"
        block.items.append(_no_call(source, start, end, reason))
        block.end = max(block.end, at)
    if last := _LAST.match(source.text, block.end):
        block.end = last.end()
    return block


def _no_call(source: Source, start: int, end: int, reason: str) -> Fault:
    cut = _SEPARATOR not in source.text[start:end]
    return fault(source, start, end, reason, cut=cut and end >= len(source.text))


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    each = (
        f"{_CALL}{name}{_SEPARATOR}{dumps(arguments, ensure_ascii=False)}{_CALL_END}"
        for name, arguments in calls
    )
    return f"{_BEGIN}{''.join(each)}{_END}"


def _write_r1(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    each = (
        f"{_CALL}function{_SEPARATOR}{name}\n```json\n"
        f"{dumps(arguments, ensure_ascii=False)}\n```{_CALL_END}"
        for name, arguments in calls
    )
    return "".join([_BEGIN, "\n".join(each), _END])


_MARKS = (literal(_BEGIN), literal(_CALL))
DEEPSEEK = Format("deepseek", _MARKS, _read, _write)
DEEPSEEK_R1 = Format("deepseek_r1", _MARKS, _read, _write_r1)


# DSML, since V3.2

_DSML = rf"[|{_BAR}]DSML[|{_BAR}]"
_WRAPPER = r"(?:function_calls|tool_calls)"
_TAGS = Tags(
    head=re.compile(rf'<{_DSML}invoke\s+name="(?P<name>[\w.-]{{1,128}})"\s*>'),
    half=re.compile(rf'<{_DSML}invoke(?:\s++name="?(?P<name>[\w.-]{{0,128}})"?\s*+)?+\Z'),
    parameter=re.compile(
        rf'<{_DSML}parameter\s+name="(?P<name>[\w.-]{{1,128}})"'
        r'(?:\s+string="(?P<string>true|false)")?\s*>'
    ),
    value_end=re.compile(
        rf"</{_DSML}parameter>(?=\s*(?:<{_DSML}parameter\s|</{_DSML}invoke>|</{_DSML}{_WRAPPER}>|\Z))"
    ),
    end=re.compile(rf"</{_DSML}invoke>"),
    outer=re.compile(rf"</{_DSML}{_WRAPPER}>"),
)
_OPENING = re.compile(rf"<{_DSML}{_WRAPPER}>\s*")


def _read_dsml(source: Source, start: int) -> Found | None:
    opening = _OPENING.match(source.text, start)
    found = read_block(source, start, opening.end() if opening else start, _TAGS)
    if found is None and opening:
        end = opening.end()
        reason = "no call follows its first tag"
        return Found(end, [fault(source, start, end, reason, cut=source.is_over(end))])
    return found


def _write_dsml(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    sign = f"{_BAR}DSML{_BAR}"
    lines = [f"<{sign}tool_calls>"]
    for name, arguments in calls:
        lines.append(f'<{sign}invoke name="{name}">')
        for key, value in arguments.items():
            string = str(isinstance(value, str)).lower()
            text = as_text(value)
            lines.append(
                f'<{sign}parameter name="{key}" string="{string}">{text}</{sign}parameter>'
            )
        lines.append(f"</{sign}invoke>")
    return "\n".join([*lines, f"</{sign}tool_calls>"])


DSML = Format(
    "dsml",
    (
        Mark(
            rf"<{_DSML}(?:{_WRAPPER}>|invoke)",
            rf"<(?:[|{_BAR}](?:D(?:S(?:M(?:L(?:[|{_BAR}]\w{{0,20}}>?)?)?)?)?)?)?",
        ),
    ),
    _read_dsml,
    _write_dsml,
)

"""Harmony, of the gpt-oss models: messages on channels, of which some go to a function."""

from __future__ import annotations

import re
from collections.abc import Sequence
from json import dumps
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, fault, literal
from flowengine.agents.text_calls.formats.json_calls import read_named
from flowengine.agents.text_calls.source import Source

_HEADER = re.compile(
    r"(?:<\|start\|>(?P<author>[^<]{0,200}))?<\|channel\|>\s*(?P<channel>analysis|commentary|final)"
    r"(?P<rest>[^<]{0,200})(?:<\|constrain\|>\s*\w{0,20}\s*)?<\|message\|>"
)
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.-]{1,128})")
_CLOSING = re.compile(r"<\|(?:call|end|return)\|>")
_MESSAGE_END = re.compile(r"<\|(?:call|end|return)\|>|(?=<\|(?:start|channel)\|>)|\Z")


def _read(source: Source, start: int) -> Found | None:
    header = _HEADER.match(source.text, start)
    if header is None:
        if len(source.text) - start > 400:
            return None
        reason = "its first line is not the header of a message"
        to = _RECIPIENT.search(source.text, start)
        if to is None:
            return None
        end = len(source.text)
        return Found(end, [fault(source, start, end, reason, to[1], cut=True)])
    recipient = _RECIPIENT.search(f"{header['author'] or ''} {header['rest']}")
    if recipient:
        return read_named(source, start, header.end(), recipient[1], closing=_CLOSING)
    close = source.search(_MESSAGE_END, header.end())
    end = close.start() if close else len(source.text)
    body = source.text[header.end() : end]
    found = Found(close.end() if close else end)
    if header["channel"] == "analysis":
        found.reasoning = body
    else:
        found.content = body
    return found


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    each = (
        f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
        f"{dumps(arguments, ensure_ascii=False)}<|call|>"
        for name, arguments in calls
    )
    return "".join(each)


HARMONY = Format("harmony", (literal("<|start|>"), literal("<|channel|>")), _read, _write)

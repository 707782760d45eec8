"""The syntax of calls in the forms that models were trained on."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_BAR = "\uff5c"
_BEGINS = re.compile(
    rf"(?P<tag><(?!/)[\w:.|\u2581{_BAR}]{{0,30}}?"
    r"(?:tool|call|func|invoke|action|plugin|python|channel|start|open\||param|arg)"
    r"|\bto=functions\.)"
    r"|(?P<word>\[TOOL_CALLS\]|functools(?=\[)|\u273fFUNCTION\u273f|\u273fARGS\u273f"
    r"|\bcall(?:-\w{1,20})?\s+(?=tool\s*=))",
    re.IGNORECASE,
)
"""Starts of calls: a tag, a word."""
_KEYS = "(?i:name|tool|tool_?name|function|function_?name|recipient_?name|action)"
_FUNCTIONS = r"(?:functions?\.)?"
_PYTHON = r"(?:\w{1,40}\s*=\s*)?(?:await\s+)?(?:print\()?(?:\w{1,40}\.)?NAME(?:\.call)?\s*\("
_NAME = (
    rf"<[^<>\n\"'=]{{0,60}}=\s*[\"']?{_FUNCTIONS}NAME",
    rf"<[^<>\n\"'=]{{1,60}}(?:=\s*[\"'][^<>\n\"']{{0,80}}[\"']\s*[\w:-]{{1,40}}){{1,9}}"
    rf"(?<=\s(?:tool|name))=\s*[\"']?{_FUNCTIONS}NAME",
    rf"[\"']?(?<!\w)(?:{_KEYS})[\"']?\s*[:=]\s*[\"']?{_FUNCTIONS}NAME",
    r"\{\s*[\"']NAME[\"']\s*:\s*[\[{]",
    _PYTHON,
    rf"{_FUNCTIONS}NAME(?::\d+)?\s*?(?=\n|<|\[ARGS|\[CALL|\{{|\Z)",
    rf"to={_FUNCTIONS}NAME",
)
"""Ways in which a call names its tool."""
_TOKEN = re.compile(
    r"<(?P<tag>[^<>\s=/\"']{1,60})[^<>\n]{0,200}>|</?[^<>\n]{1,200}>|\s+"
    r"|\"(?:[^\"\\]|\\.){0,20000}+\"|'(?:[^'\\\n]|\\.){0,2000}+'"
    r"|[\[\]{}(),:;=|]|-?\d[\d.eE+-]*|(?:```|~~~)\w{0,12}(?=\s)"
    r"|(?:true|false|null|True|False|None|functions?|json|commentary|assistant|analysis|calls?"
    r"|tools?|ARGS)\b|\w{1,40}(?=\s*[:=])",
    re.DOTALL,
)
"""A part of a call that is not the name of its tool."""
_OF_ARGUMENT = re.compile("param|arg|input|value|key", re.IGNORECASE)
_LONGEST_ARGUMENT = 20_000
_LABEL = r"[*_]{0,2}(?:(?:tool|function)(?:[ _]name)?|action|call|name)[*_]{0,2}\s*:[*_]{0,2}"
_INPUT_LABEL = (
    r"[*_]{0,2}(?:(?:action|tool|function)[ _])?(?:input|arguments|parameters|args|params)"
    r"[*_]{0,2}\s*:[*_]{0,2}"
)
LABELED_INPUT = re.compile(rf"(?<![^\n])[ \t]*{_INPUT_LABEL}", re.IGNORECASE)
"""The label of the arguments, at the beginning of a line."""
BEFORE_FENCE = re.compile(
    rf"(?<![^\n])[ \t]*(?:{_INPUT_LABEL}|[*_]{{0,2}}action:[*_]{{0,2}})\s*\Z", re.IGNORECASE
)
"""A label right before the code fence of a call."""
OF_CALLS = re.compile(
    r"[ \t]*(?:tool_code|tool_calls?|tool_use|function_calls?)[ \t]*", re.IGNORECASE
)
"""Info string of a code fence around a call."""
PLAIN_FENCE = re.compile(r"[ \t]*(?:json|xml|text|plaintext)?[ \t]*", re.IGNORECASE)
_BRACKET = re.compile(r"[\"'()\[\]{}\\]")


class CallPatterns(NamedTuple):
    """Patterns for calls of certain tools. The last group of each is the name."""

    begins: re.Pattern[str]
    """The start of a call, without a name."""
    name: re.Pattern[str]
    """The name, after the start of a call."""
    labeled: re.Pattern[str]
    """A line such as `Action: NAME`."""
    line: re.Pattern[str]
    """A line with only the name, or up to the brace of the arguments."""
    element: re.Pattern[str]
    """`<NAME><argument>`."""
    python: re.Pattern[str]
    """`NAME(`."""
    python_line: re.Pattern[str]
    """`NAME(a=`, at the beginning of a line."""
    bracket: re.Pattern[str]
    """`[NAME(`."""
    naming: re.Pattern[str]
    """`"name": "NAME"`."""
    key: re.Pattern[str]
    """`{"NAME": {`."""


@lru_cache(maxsize=64)
def patterns_of(names: tuple[str, ...]) -> CallPatterns:
    """Return the patterns for calls of tools with these names."""
    longest_first = sorted(names, key=len, reverse=True)
    name = rf"({'|'.join(map(re.escape, longest_first))})(?![\w-]|\.(?!call\()\w)"
    python = _PYTHON.replace("NAME", name)
    line = r"(?<![^\n])[ \t]*"

    def pattern(text: str) -> re.Pattern[str]:
        return re.compile(text, re.IGNORECASE)

    quoted = rf"[\"']{_FUNCTIONS}{name}[\"']"
    return CallPatterns(
        begins=_BEGINS,
        name=re.compile("|".join(form.replace("NAME", name) for form in _NAME)),
        labeled=pattern(rf"{line}{_LABEL}\s*(?-i:{name})"),
        line=pattern(
            rf"{line}(?:{_LABEL}\s*)?[*_]{{0,2}}{_FUNCTIONS}(?-i:{name})(?::\d+)?[*_]{{0,2}}"
            rf"[ \t]*:?(?:\s*(?:{_INPUT_LABEL})?\s*(?=\{{)|[ \t]*(?=\n|\Z))"
        ),
        element=re.compile(rf"{line}<(?=[^<>\n]{{1,80}}>\s*<(?P<argument>[\w.-]{{1,80}})>){name}>"),
        python=re.compile(rf"\s*{python}"),
        python_line=re.compile(rf"{line}{python}(?=\s*(?:\w+\s*=(?!=)|\{{|\)))"),
        bracket=re.compile(rf"\[\s*(?=[^\n]{{1,200}}\((?P<keyword>\s*(?:\w+\s*=|\)))?){python}"),
        naming=re.compile(rf"(?:[\"']|(?<=[{{,\s])){_KEYS}[\"']?\s*:\s*{quoted}"),
        key=re.compile(rf"\{{\s*{quoted}\s*:\s*\{{"),
    )


def skipped_token(text: str, at: int) -> int:
    """Return the end of the part of a call that begins at a place, or the place itself.

    Args:
        text: The reply.
        at: The place.
    """
    token = _TOKEN.match(text, at)
    if token is None:
        return at
    end = token.end()
    if token["tag"] and _OF_ARGUMENT.search(token["tag"]):
        closing = text.find(f"</{token['tag']}>", end, end + _LONGEST_ARGUMENT)
        return closing if closing >= 0 else end
    return end


def closing_bracket(text: str, at: int, most: int) -> int | None:
    """Return the end of the brackets that open at a place, or None if they do not close.

    Args:
        text: The reply.
        at: The opening bracket.
        most: Maximum characters to read.
    """
    depth, quote, place = 0, "", at
    while match := _BRACKET.search(text, place, at + most):
        character, place = match[0], match.end()
        if character == "\\":
            place += 1
        elif quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return place
    return None

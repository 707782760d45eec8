"""The form in which a model writes calls as text: tags with a secret mark.

The content of mails, pages and tool results cannot contain the mark. Text that the model quotes is
therefore never a call, and no result can close the tag that encloses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2s
from itertools import count
from json import dumps
from secrets import token_bytes
from typing import Any

from flowengine.agents.text_calls.records import text_of

_SECRET = token_bytes(32)
"""Key of this process. Another process uses different marks for the whole of a conversation."""
_DIGITS = 8
_END = "</parameter>"
_NAME = r"""["']?(?P<name>[\w.-]{1,128})["']?\s*>"""
PARAMETER = re.compile(rf"<parameter(?:\s+name)?\s*=\s*{_NAME}")
VALUE_END = re.compile(rf"{_END}(?=\s*(?:<parameter[\s=]|\Z))")


def mark_of(conversation: str, messages: Iterable[Mapping[str, Any]] = ()) -> str:
    """Return the mark of a conversation, which stays the same from turn to turn.

    If the model passed the mark to a tool, or a tool returned it, the mark is replaced.

    Args:
        conversation: Name of the conversation in this process.
        messages: All messages of the conversation.
    """
    texts = [text for message in messages for text in _texts(message)]
    for attempt in count():
        seed = f"{attempt} {conversation}".encode(errors="surrogatepass")
        mark = blake2s(seed, key=_SECRET).hexdigest()[:_DIGITS]
        if not any(mark in text for text in texts):
            return mark
    raise AssertionError("there is always another mark")


def _texts(message: Mapping[str, Any]) -> list[str]:
    texts = [text_of(message.get("content"))] if message.get("role") == "tool" else []
    for call in message.get("tool_calls") or ():
        arguments = call["function"].get("arguments")
        texts.append(arguments if isinstance(arguments, str) else dumps(arguments))
    return texts


class MarkedForm:
    """The form with one mark.

    Args:
        mark: Letters and digits.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.opening = f"<call-{mark}"
        self.closing = f"</call-{mark}>"
        self.result = f"<result-{mark}"
        self.head = re.compile(rf"{self.opening}\s+(?:tool|name)\s*=\s*{_NAME}")

    def write(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        """Return calls in this form."""
        return "\n".join(self._call(name, arguments) for name, arguments in calls)

    def write_result(self, name: str, text: str) -> str:
        """Return the result of a call in this form, with the name of the tool."""
        return f'{self.result} tool="{name}">\n{text}\n</result-{self.mark}>'

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        values = {key: _written(value) for key, value in arguments.items()}
        lines = [f'<parameter name="{key}">{value}{_END}' for key, value in values.items()]
        if any(_END in value for value in values.values()):
            lines = [dumps(arguments, ensure_ascii=False)]
        return "\n".join([f'{self.opening} tool="{name}">', *lines, self.closing])


@lru_cache(maxsize=64)
def marked(mark: str) -> MarkedForm:
    """Return the form with a mark."""
    return MarkedForm(mark)


def _written(value: Any) -> str:
    """Return an argument as text that parses to the same value."""
    text = value if isinstance(value, str) else dumps(value, ensure_ascii=False)
    return f"\n{text}\n" if "\n" in text else text


def without_line_ends(value: str) -> str:
    """Remove the line feeds after an opening tag and before a closing one."""
    return value.removeprefix("\n").removesuffix("\n")

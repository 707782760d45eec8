"""The parts of a reply: calls, faults, and the reply as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from json import loads
from typing import Any, Literal

Ended = Literal["stop", "length"]
"""Why a reply ended: the model stopped by itself, or reached the length limit."""


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool as offered to a model."""

    name: str
    """Flow name of the tool."""
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the arguments, which are an object. Empty: it takes any."""

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments, with at least a type and properties."""
        return {"type": "object", "properties": {}} | dict(self.parameters)


@dataclass(frozen=True, slots=True)
class TextCall:
    """A call, as written or, once bound, with arguments that fit the schema."""

    name: str
    arguments: Any
    """A dict once bound. Before that, some models write it as JSON text."""


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """An invalid call, which is reported to the model."""

    message: str
    tool: str | None = None
    """The intended tool, if it is on offer."""
    written: str = ""
    """The beginning of the model's text."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A reply, split into its parts."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[TextCall, ...] = ()
    faults: tuple[InvalidCall, ...] = ()
    repairs: tuple[str, ...] = ()
    """Descriptions of the repairs, in the order of the reply."""


@dataclass(frozen=True, slots=True)
class Untyped:
    """An argument written as text without a type, which the schema determines."""

    text: str


def text_of(content: Any, between: str = "\n") -> str:
    """Return the text of a message's content, which can consist of parts.

    Args:
        content: Text, parts or None. Parts without text are left out.
        between: Separator between parts.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = [part.get("text", "") for part in content if isinstance(part, Mapping)]
    return between.join(filter(None, texts))


def object_in(text: str) -> dict[str, Any] | None:
    """Return the object that a text is as JSON, such as the arguments of a call, or None."""
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

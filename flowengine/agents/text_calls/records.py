"""What is read from a reply: calls, faults, and the reply as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Ended = Literal["stop", "length"]
"""Why a reply ended: the model stopped by itself, or it ran into the limit of length."""


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool as a model is told of it."""

    name: str
    """As the flow knows it."""
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the arguments, an object; empty: it takes none."""

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments, with at least a type and properties."""
        return {"type": "object", "properties": {}} | dict(self.parameters)


@dataclass(frozen=True, slots=True)
class Call:
    """A call, as it was written or, once it is bound, with arguments that fit the schema."""

    name: str
    arguments: Any
    """A dict once it is bound; before, some models write the JSON of it, as a string."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What stood for a call and cannot be one; the model is told."""

    message: str
    tool: str | None = None
    """The tool that was meant, where it is on offer."""
    written: str = ""
    """The beginning of what the model wrote."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reply, taken apart."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    faults: tuple[Fault, ...] = ()
    repairs: tuple[str, ...] = ()
    """What was mended, in words, in the order of the reply."""


@dataclass(frozen=True, slots=True)
class Untyped:
    """An argument that was written as text without a type; the schema says what it is."""

    text: str


def text_of(content: Any, between: str = "\n") -> str:
    """Return the text of a message's content, which may be in parts.

    Args:
        content: Text, parts of which those that are no text are left out, or nothing.
        between: Put between parts.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = [part.get("text", "") for part in content if isinstance(part, Mapping)]
    return between.join(filter(None, texts))

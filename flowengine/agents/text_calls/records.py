"""What is read from a reply: calls, faults, and the reply as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Ended = Literal["stop", "length"]
"""Why a reply ended: the model stopped by itself, or it ran into the limit of length."""

FaultCode = Literal["unreadable", "cut", "unknown_tool", "arguments", "misplaced", "form", "none"]
"""`misplaced`: inside of a line or a code fence; `form`: as no model is shown to write calls here;
`none`: there had to be a call."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool on offer."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    """JSON Schema of its arguments, an object; None: it takes none."""

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments, with at least a type and properties."""
        return {"type": "object", "properties": {}} | dict(self.parameters or {})


@dataclass(frozen=True, slots=True)
class Call:
    """A call that can be made: its tool is on offer and its arguments fit the schema."""

    name: str
    arguments: dict[str, Any]
    place: int = 0
    """Counted from 0 among the calls and faults of the reply."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What stood for a call and cannot be one; the model is told."""

    code: FaultCode
    message: str
    tool: str | None = None
    """The tool that was meant, where it is on offer."""
    written: str = ""
    """The beginning of what the model wrote."""
    place: int = 0


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


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call as it was written: nobody has looked yet whether such a tool is on offer."""

    name: str
    arguments: Any
    """Usually a dict; some models write the JSON of it, as a string."""

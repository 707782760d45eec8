"""Helpers for the tests of models: a tool, requests, and a recording listener."""

from __future__ import annotations

from typing import Any

from flowengine.agents.models import ModelRequest, ReplyPart, ToolOffer
from flowengine.agents.models.replies import form_of

ADD = ToolOffer(
    "math.add",
    "Add two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)


def request(text: str = "What is 1 + 2?", **more: Any) -> ModelRequest:
    messages = more.pop("messages", [{"role": "user", "content": text}])
    more.setdefault("model", "scripted/test")
    more.setdefault("tools", (ADD,))
    return ModelRequest(messages=messages, **more)


def written(asked: ModelRequest, tool: str, **arguments: Any) -> str:
    """Return a call as text, in the form that the request asks the model to use."""
    return form_of(asked).write([(tool, arguments)])


class Heard:
    """Records the parts of a reply."""

    def __init__(self) -> None:
        self.parts: list[ReplyPart] = []

    def __call__(self, part: ReplyPart) -> None:
        self.parts.append(part)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if part.kind == "text")

    @property
    def last(self) -> str:
        """Return the text since the reply last started."""
        begun = max(at for at, part in enumerate(self.parts) if part.kind == "start")
        return "".join(part.text for part in self.parts[begun:] if part.kind == "text")

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of parts in order, without consecutive duplicates."""
        kinds = [part.kind for part in self.parts]
        return [kind for place, kind in enumerate(kinds) if kinds[place - 1 : place] != [kind]]

"""What the tests of models share: a tool, requests, and a listener that keeps what it is told."""

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
    },
)


def request(text: str = "What is 1 + 2?", **more: Any) -> ModelRequest:
    messages = more.pop("messages", [{"role": "user", "content": text}])
    more.setdefault("model", "scripted/test")
    more.setdefault("tools", (ADD,))
    return ModelRequest(messages=messages, **more)


def written(asked: ModelRequest, tool: str, **arguments: Any) -> str:
    """A call as text, as the model of a request is shown to write it."""
    return form_of(asked).write([(tool, arguments)])


class Heard:
    """Keeps the parts of a reply."""

    def __init__(self) -> None:
        self.parts: list[ReplyPart] = []

    def __call__(self, part: ReplyPart) -> None:
        self.parts.append(part)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if part.kind == "text")

    @property
    def last(self) -> str:
        """The text since the reply began, or began anew."""
        begun = max(at for at, part in enumerate(self.parts) if part.kind == "start")
        return "".join(part.text for part in self.parts[begun:] if part.kind == "text")

    @property
    def kinds(self) -> list[str]:
        """The kinds in order, each run of one kind once."""
        kinds = [part.kind for part in self.parts]
        return [kind for place, kind in enumerate(kinds) if kinds[place - 1 : place] != [kind]]

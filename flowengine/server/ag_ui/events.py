"""The work of agents as events of AG-UI (`ag-ui-protocol` 1.0)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    Interrupt,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

from flowengine.metachain.agent_events import StreamPart

_SHOWN = ("kind", "tool", "subject", "body", "preview", "difference", "found", "note", "about")


class ReplyEvents:
    """The events for what agents do. Replies are sent as they arrive."""

    def __init__(self) -> None:
        self._open: dict[str, _Sent] = {}
        """Address of a step → what was sent of its reply."""
        self._broken = 0

    def arriving(self, part: Mapping[str, Any]) -> Iterator[BaseEvent]:
        """Yield the events for a part of a reply that a model is writing."""
        kind, address = part["part"], part["address"]
        if kind == "restart":
            yield from self._break_off(address)
        elif kind in ("text", "reasoning") and part["text"]:
            if address not in self._open:
                self._open[address] = self._new(address, part.get("agent", ""))
            yield from self._open[address].add(kind, part["text"])

    def of(self, part: StreamPart) -> Iterator[BaseEvent]:
        """Yield the events for a part of the journal."""
        if part.kind == "reply":
            yield from self._reply(part)
        elif part.kind == "tool_result" and part.call:
            yield ToolCallResultEvent(
                message_id=part.step, tool_call_id=part.call, content=part.shown, role="tool"
            )
        elif part.kind == "handoff":
            yield CustomEvent(name="handoff", value={"from": part.agent, "to": part.to})

    def end(self) -> Iterator[BaseEvent]:
        """Yield the ends of all messages that are open."""
        for address in list(self._open):
            yield from self._break_off(address)

    def _break_off(self, address: str) -> Iterator[BaseEvent]:
        """End a message that will not be completed. The next one of the step has another id."""
        if (sent := self._open.pop(address, None)) is not None:
            self._broken += 1
            yield from sent.close()

    def _reply(self, part: StreamPart) -> Iterator[BaseEvent]:
        """Yield what is left of a reply, and its calls."""
        message = (part.output or {})["message"]
        whole = {"reasoning": text_of(message.get("reasoning"))}
        whole["text"] = text_of(message.get("content"))
        sent = self._open.get(part.step)
        if sent is not None and not sent.begins(whole):
            yield from self._break_off(part.step)  # it is another one than what has arrived
        sent = self._open.pop(part.step, None) or self._new(part.step, part.agent)
        for kind, text in whole.items():
            if rest := text[len(sent.texts[kind]) :]:
                yield from sent.add(kind, rest)
        yield from sent.close()
        for call in message.get("tool_calls") or ():
            made = call["function"]
            yield ToolCallStartEvent(
                tool_call_id=str(call["id"]), tool_call_name=made["name"], parent_message_id=sent.id
            )
            if made.get("arguments"):
                yield ToolCallArgsEvent(tool_call_id=str(call["id"]), delta=str(made["arguments"]))
            yield ToolCallEndEvent(tool_call_id=str(call["id"]))

    def _new(self, address: str, agent: str) -> _Sent:
        id = f"{address}/{self._broken}" if self._broken else address
        return _Sent(id, agent or None)


class _Sent:
    """What was sent of one reply.

    Args:
        id: Of its message.
        agent: Name of the agent.
    """

    def __init__(self, id: str, agent: str | None) -> None:
        self.id = id
        self.texts = {"reasoning": "", "text": ""}
        self._agent = agent
        self._open = ""

    def begins(self, whole: Mapping[str, str]) -> bool:
        """Return whether it is the beginning of a reply."""
        return all(whole[kind].startswith(text) for kind, text in self.texts.items())

    def add(self, kind: str, text: str) -> Iterator[BaseEvent]:
        """Yield the events for the next piece of its text or its reasoning."""
        if self._open != kind:
            yield from self.close()
            self._open = kind
            if kind == "reasoning":
                yield ReasoningStartEvent(message_id=self._thought)
                yield ReasoningMessageStartEvent(message_id=self._thought)
            else:
                yield TextMessageStartEvent(message_id=self.id, role="assistant", name=self._agent)
        self.texts[kind] += text
        if kind == "reasoning":
            yield ReasoningMessageContentEvent(message_id=self._thought, delta=text)
        else:
            yield TextMessageContentEvent(message_id=self.id, delta=text)

    def close(self) -> Iterator[BaseEvent]:
        """Yield the end of what is open."""
        if self._open == "reasoning":
            yield ReasoningMessageEndEvent(message_id=self._thought)
            yield ReasoningEndEvent(message_id=self._thought)
        elif self._open:
            yield TextMessageEndEvent(message_id=self.id)
        self._open = ""

    @property
    def _thought(self) -> str:
        return f"{self.id}/reasoning"


def interrupt_of(part: StreamPart) -> Interrupt:
    """Return an open wait as an interrupt. Its answer is the body of a decision.

    Args:
        part: Of kind `question`.
    """
    wait: Mapping[str, Any] = part.wait or {}
    choices = [choice["id"] for choice in wait.get("choices") or ()]
    properties: dict[str, Any] = {"choice": {"enum": choices}, "comment": {"type": "string"}}
    if wait.get("form"):
        properties["form"] = wait["form"]
    if wait.get("edit"):
        properties["edit"] = wait.get("edit_schema") or {"type": "object"}
    return Interrupt(
        id=wait["id"],
        reason=wait["kind"],
        message=wait.get("title"),
        tool_call_id=part.call or None,
        response_schema={"type": "object", "properties": properties, "required": ["choice"]},
        expires_at=wait.get("due"),
        metadata={"flowengine": {key: wait[key] for key in _SHOWN if key in wait}},
    )


def text_of(content: Any) -> str:
    """Return the text of a message, without its other parts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content if isinstance(part, Mapping))

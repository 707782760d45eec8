"""The parts of a streamed run of agents, one class for each kind, for `match`.

match part:
    case TextPart(text):
        print(text, end="")
    case ToolResultPart(tool, value):
        print(tool, value)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flowengine.agents.actions import Reply
from flowengine.agents.agent import Response


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The fields of all parts."""

    agent: str = ""
    """Name of the agent that replies, calls, or hands off."""
    execution: str = ""
    """Id of the execution."""
    step: str = ""
    """Address of the activation."""

    @property
    def response(self) -> Response | None:
        """The response of the run. None in all parts but the last."""
        return None


@dataclass(frozen=True, slots=True)
class StartPart(_Part):
    """A reply begins."""

    kind: Literal["start"] = field(default="start", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class TextPart(_Part):
    """The next piece of the text of a reply."""

    text: str = ""
    value: Any = None
    """For an agent that returns data: the object or list so far, if the piece has changed it."""
    kind: Literal["text"] = field(default="text", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class ReasoningPart(_Part):
    """The next piece of the reasoning of a reply."""

    text: str = ""
    kind: Literal["reasoning"] = field(default="reasoning", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class CallPart(_Part):
    """The next piece of the arguments of a call, while the model writes it."""

    tool: str = ""
    text: str = ""
    call: str = ""
    """Id of the call, as assigned by the model."""
    kind: Literal["call"] = field(default="call", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class RestartPart(_Part):
    """Discard the reply so far. It broke off, or text turned out to be reasoning."""

    kind: Literal["restart"] = field(default="restart", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class EndPart(_Part):
    """A reply ends."""

    value: Any = None
    """For an agent that returns data: the whole object or list, if the end has changed it."""
    kind: Literal["end"] = field(default="end", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class MissedPart(_Part):
    """The loop was too slow to receive all pieces. Parts of the kinds below are never missed."""

    missed: int = 0
    """Number of parts missed here."""
    kind: Literal["missed"] = field(default="missed", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class ToolCallPart(_Part):
    """A tool is called, once per attempt."""

    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call: str = ""
    """Id of the call, as assigned by the model."""
    kind: Literal["tool_call"] = field(default="tool_call", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class ToolResultPart(_Part):
    """A call has ended, or was not made."""

    __match_args__ = ("tool", "value", "text", "error")

    tool: str = ""
    value: Any = None
    """The value that the tool returned, as plain data. A value of more than 64 KiB is a file:
    `{path, name, size, sha256}`. None if the call failed or was not made."""
    error: str = ""
    """Type and message of the error. Empty: the call succeeded."""
    call: str = ""
    """Id of the call, as assigned by the model."""
    result: str = ""
    """The text of the result, within the limits of the tool. The model receives the same text, with
    untrusted parts in a marked block."""
    kind: Literal["tool_result"] = field(default="tool_result", init=False, repr=False)

    @property
    def text(self) -> str:
        """The result for clients: a text, or data as JSON."""
        if self.value is None or self.error:
            return self.result or ("" if self.error else "null")
        return self.value if isinstance(self.value, str) else json.dumps(self.value)


@dataclass(frozen=True, slots=True)
class HandoffPart(_Part):
    """Another agent takes over."""

    to: str = ""
    """Its name."""
    kind: Literal["handoff"] = field(default="handoff", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class QuestionPart(_Part):
    """The run needs a decision. It is repeated when its data changes."""

    wait: Mapping[str, Any] = field(default_factory=dict)
    """The wait, as in `Response.waits`."""
    tool: str = ""
    call: str = ""
    """Id of the call that it is about. Empty: it is not about a call of a model."""
    kind: Literal["question"] = field(default="question", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class ResponsePart(_Part):
    """The last part: the run has ended, or waits."""

    response: Response = field(default_factory=Response)
    kind: Literal["response"] = field(default="response", init=False, repr=False)


StreamPart = (
    StartPart | TextPart | ReasoningPart | CallPart | RestartPart | EndPart | MissedPart
    | ToolCallPart | ToolResultPart | HandoffPart | QuestionPart | ResponsePart
)  # fmt: skip
"""A part of a run. `part.kind` is the name of its kind, such as `tool_result`."""


# Further actions of agents, for logs, pages and other protocols.


@dataclass(frozen=True, slots=True)
class ModelReplied(_Part):
    """A model replied."""

    output: Mapping[str, Any] | None = None
    """The output of the step."""
    kind: Literal["reply"] = field(default="reply", init=False, repr=False)

    @property
    def reply(self) -> Reply:
        """The reply of the model."""
        return Reply.of(self.output)


@dataclass(frozen=True, slots=True)
class ModelFailed(_Part):
    """A model call failed, and is tried again (`retry`) or not (`failure`)."""

    kind: Literal["retry", "failure"]
    error: str = ""
    """Type and message of the error."""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class ToolEnded(_Part):
    """An attempt at a call ended, including those of checks."""

    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call: str = ""
    status: str = ""
    """The status as in `show`."""
    output: Mapping[str, Any] | None = None
    """The output of the step."""
    kind: Literal["tool_end"] = field(default="tool_end", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class AgentEnded(_Part):
    """The work of the agents at a step ended."""

    status: str = ""
    """The outcome."""
    error: str = ""
    kind: Literal["ended"] = field(default="ended", init=False, repr=False)


AgentPart = StreamPart | ModelReplied | ModelFailed | ToolEnded | AgentEnded
"""An action of an agent."""

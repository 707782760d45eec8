"""The interface to models: one request, its reply, and the parts that arrive in between.

Messages are plain data in the format of chat completions. Tools have their flow names here,
including dots. A model's adapter translates them to names that its provider accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, Protocol

from flowengine.agents.text_calls.records import ToolOffer
from flowengine.sdk import Plain

Message = dict[str, Plain]
"""`{role, content, …}`. An assistant message has `tool_calls` and, if the model reported it,
`reasoning`. A call is `{id, type, function: {name, arguments}}`, with the arguments as JSON text. A
tool message has `tool_call_id` and `name`. Data that only the provider understands, such as signed
reasoning, is in `provider_parts`: provider → data. It is sent back only to that provider."""

FunctionCalling = Literal["native", "text"]
"""How tools are offered: by the provider's function calling, or in the text of the messages."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model."""

    model: str
    """`provider/model`."""
    messages: Sequence[Message]
    """The whole conversation to show to the model, starting with the system text."""
    tools: Sequence[ToolOffer] = ()
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or the name of a tool that must be called. None: unspecified."""
    parallel_tool_calls: bool = True
    function_calling: FunctionCalling | None = None
    """None: the default for the model."""
    returns: dict[str, Plain] | None = None
    """JSON Schema of the answer. It is passed to the provider if supported, and otherwise added to
    the system message."""
    settings: Mapping[str, Plain] = field(default_factory=dict)
    """Passed to the provider unchanged: `temperature`, `max_tokens`, `api_key`, …"""
    longest_reply: int | None = None
    """Maximum tokens of the reply, including reasoning. A setting can lower it. None: only the
    settings limit it."""
    timeout: float | None = None
    """Seconds. None: the adapter's default."""
    agent: str | None = None
    """The calling agent, for logs and for scripts with entries per agent."""
    earlier_replies: int = 0
    """Number of replies left out of the messages, so that scripts find their place in the
    conversation."""
    call_ids: Set[str] | None = None
    """Ids of the calls in the messages, if already collected. A new call receives an unused id."""
    conversation: str = ""
    """Its name in this process, from which the mark for text calls is derived."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of one call. Input tokens include cached ones."""

    input_tokens: int = 0
    cached_tokens: int = 0
    """Tokens read from the provider's cache."""
    cache_write_tokens: int = 0
    """Tokens written to the cache, if the provider reports them."""
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    """None: the prices of the model are unknown."""
    estimated: bool = False
    """Whether the numbers were estimated here, because the provider did not report them."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A valid call: its tool is on offer, and its arguments fit the tool's schema."""

    id: str
    """Id of the call in the message, unique in the conversation."""
    name: str
    arguments: dict[str, Plain]
    """The parsed arguments, converted to the types of the schema."""


@dataclass(frozen=True, slots=True)
class CallFault:
    """An intended call that cannot be run."""

    id: str | None
    """Id of the call in the message, which is answered as a tool message. None: the message does
    not contain the call, so the model receives a user message."""
    name: str | None
    reason: str
    """The error and its correction, for the model."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A model's reply."""

    message: Message
    """The assistant message for the conversation, as plain data."""
    finish: Literal["stop", "calls", "length", "filtered"]
    usage: Usage
    model: str
    """The model that replied, by its name in the request."""
    calls: tuple[ModelCall, ...] = ()
    """In the order of the message, which also contains the faulty calls."""
    faults: tuple[CallFault, ...] = ()
    events: tuple[Mapping[str, Plain], ...] = ()
    """Noteworthy events for logs: `{event: "repaired" | "text_calls", …}`."""
    scripted: bool = False
    """Whether a script replied instead of a model. The message contains this under
    `provider_parts`, too."""


@dataclass(frozen=True, slots=True)
class ReplyPart:
    """A part of an arriving reply, for listeners."""

    kind: Literal["start", "text", "reasoning", "call", "restart", "end"]
    """`restart`: discard everything received so far. Either the reply broke off and another attempt
    follows, or text turned out to be reasoning when its end arrived."""
    text: str = ""
    """For `text` and `reasoning`: the next piece. For `call`: the next piece of its arguments."""
    call: str | None = None
    """Id of the call to which a `call` part belongs."""
    tool: str | None = None
    """Its tool, once known."""


Listener = Callable[[ReplyPart], None]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about a model that are available without calling it."""

    window: int | None = None
    """Maximum tokens of a request and its reply."""
    longest_reply: int | None = None
    """Maximum tokens of one reply."""
    input_price: float | None = None
    """USD per token."""
    output_price: float | None = None
    highest_input_price: float | None = None
    """Highest USD per token, for a cache write or a long prompt. None: the usual price."""
    highest_output_price: float | None = None
    vision: bool | None = None
    """Whether it accepts images. None: unknown, and images are sent."""
    function_calling: FunctionCalling = "native"
    schema_mode: bool | None = False
    """Whether its provider can enforce a JSON Schema for the answer. None: unknown."""


class Model(Protocol):
    """A provider of models. There is one object per process, and calls can overlap."""

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Call a model once, without retries.

        Cancelling the awaiting task ends the request.

        Args:
            request: The request.
            listen: Receives the parts as they arrive. None: the reply is not streamed.

        Raises:
            StepError: `RateLimited` (with `retry_after`), `ContextWindowExceeded` or `ModelError`,
                with the provider's message. `retryable` is set if the fault may be temporary.
        """

    async def facts(self, model: str) -> ModelFacts:
        """Return the facts about a model, without a request to its provider.

        The first call can take seconds, because it loads the underlying library.

        Args:
            model: `provider/model`.
        """

"""The interface to models: one request, its reply, and the parts that arrive in between.

Messages are plain data in the format of chat completions. Tools have their flow names here,
including dots. A model's adapter translates them to names that its provider accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from json import dumps
from math import isfinite
from typing import Any, Literal, Protocol

from flowengine.agents.text_calls.marked_form import CallFault, ModelCall, ToolOffer
from flowengine.sdk import Plain
from flowengine.sdk.values.read_only import plain

MODEL_VARIABLE = "FLOWENGINE_MODEL"
"""Environment variable with the model of agents that name none."""

Message = dict[str, Plain]
"""`{role, content, …}`. An assistant message has `tool_calls` and, if the model reported it,
`reasoning`. A call is `{id, type, function: {name, arguments}}`, with the arguments as JSON text. A
tool message has `tool_call_id` and `name`. Data that only the provider understands, such as signed
reasoning, is in `provider_parts`: provider → data. It is sent back only to that provider."""

_ALWAYS = ("input_tokens", "output_tokens", "cost_usd")
"""Usage that is reported even if it is zero."""
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
    conversation: str = ""
    """Its name in this process, from which the mark for text calls is derived."""

    def as_data(self) -> dict[str, Plain]:
        """Return the request for users, before it takes the form of its provider."""
        tools: list[Plain] = [
            {"name": tool.name, "description": tool.description, "parameters": plain(tool.schema)}
            for tool in self.tools
        ]
        data: dict[str, Plain] = {
            "model": self.model,
            "messages": [plain(message) for message in self.messages],
            "tools": tools,
            "tool_choice": self.tool_choice,
            "returns": plain(self.returns),
            "settings": plain(self.settings),
        }
        return {name: value for name, value in data.items() if value}


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

    def data(self) -> dict[str, Plain]:
        """Return the usage as plain data. Other numbers than tokens and cost are left out if 0."""
        return {name: n for name, n in asdict(self).items() if n or name in _ALWAYS}


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
    """Noteworthy events: `{event: "repaired" | "text_calls" | "scripted", …}`."""


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


# The usage of a model call: reported by the provider, or estimated and marked as such.

_CHARACTERS_A_TOKEN = 4
_TOKENS_AN_IMAGE = 1_000
_MOST = 2**53
"""Maximum of a credible count of tokens or amount of dollars."""


def reported_usage(objects: Iterable[Any]) -> Usage | None:
    """Return the usage that a provider reported in one or several pieces, if any.

    Each piece contains the numbers so far, and some contain only a part of them. The maximum of
    each number is used. A piece with an impossible number is ignored.

    Args:
        objects: The usage objects of the library, unchanged.
    """
    total: dict[str, int] = {}
    cost = None
    for usage in objects:
        cost = _cost(getattr(usage, "cost", None)) or cost
        numbers = [*_numbers(usage)]
        if any(not 0 <= number <= _MOST for _, number in numbers):
            continue
        for name, number in numbers:
            total[name] = max(total.get(name, 0), number)
    if not total.get("input_tokens") and not total.get("output_tokens"):
        return None
    return Usage(cost_usd=cost, **total)  # type: ignore[arg-type]


def estimated_usage(messages: Sequence[dict[str, Any]], tools: Any, reply: str) -> Usage:
    """Estimate the tokens of a call, with four characters per token.

    Args:
        messages: Messages of the request.
        tools: Tools of the request.
        reply: Text of the reply.
    """
    sent = _text_tokens(tools) if tools else 0
    sent += sum(map(message_tokens, messages))
    return Usage(sent, output_tokens=-(-len(reply) // _CHARACTERS_A_TOKEN), estimated=True)


def message_tokens(message: dict[str, Any]) -> int:
    """Estimate the tokens of a message.

    Args:
        message: The message, as stored or as sent.
    """
    content = dict.get(message, "content")  # bypasses a read-only view
    parts: Any = [{"text": content}] if isinstance(content, str) else content or ()
    tokens = 4
    for part in parts:
        text = part.get("text")
        tokens += _TOKENS_AN_IMAGE if text is None else len(text) // _CHARACTERS_A_TOKEN
    for name in ("tool_calls", "provider_parts"):
        if more := dict.get(message, name):
            tokens += _text_tokens(more)
    return tokens


def tools_tokens(tools: Iterable[ToolOffer]) -> int:
    """Estimate the tokens of the tools on offer.

    Args:
        tools: The tools.
    """
    return sum(_text_tokens([tool.name, tool.description, tool.parameters]) for tool in tools)


def _text_tokens(data: Any) -> int:
    return len(dumps(data, ensure_ascii=False)) // _CHARACTERS_A_TOKEN


def _numbers(usage: Any) -> Iterable[tuple[str, int]]:
    sent = getattr(usage, "prompt_tokens_details", None)
    received = getattr(usage, "completion_tokens_details", None)
    written = getattr(usage, "cache_creation_input_tokens", None)
    for name, number in (
        ("input_tokens", getattr(usage, "prompt_tokens", None)),
        ("cached_tokens", getattr(sent, "cached_tokens", None)),
        ("cached_tokens", getattr(usage, "cache_read_input_tokens", None)),
        ("cache_write_tokens", getattr(sent, "cache_creation_tokens", None) or written),
        ("output_tokens", getattr(usage, "completion_tokens", None)),
        ("reasoning_tokens", getattr(received, "reasoning_tokens", None)),
    ):
        if isinstance(number, int):
            yield name, number


def _cost(cost: Any) -> float | None:
    if isinstance(cost, Mapping):
        cost = cost.get("total_cost")
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    # An impossible amount would disable a budget, so the price table is used instead.
    return float(cost) if isfinite(cost) and 0 <= cost <= _MOST else None

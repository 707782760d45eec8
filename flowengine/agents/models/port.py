"""The port: one request to a model, its reply, and what is told while the reply arrives.

Messages are plain data in the shape of chat completions. Tools have their names of the flow
everywhere here, dots included; a model's adapter translates them to names that its provider takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, Protocol

from flowengine.agents.text_calls.records import ToolOffer
from flowengine.sdk import Plain

Message = dict[str, Plain]
"""`{role, content, …}`. An assistant's has `tool_calls`, a list of `{id, type, function: {name,
arguments}}` with the arguments as JSON text, and `reasoning`, where the model told its own. A
tool's has `tool_call_id` and `name`. What only the provider understands, such as signed reasoning,
is under `provider_parts`: provider → data. It goes back to that provider and to no other."""

FunctionCalling = Literal["native", "text"]
"""How a model is offered tools: by the provider's own means, or in the text of the messages."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model."""

    model: str
    """`provider/model`."""
    messages: Sequence[Message]
    """The whole conversation as the model is to see it, system text first."""
    tools: Sequence[ToolOffer] = ()
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or the name of a tool that must be called; None: not said."""
    parallel_tool_calls: bool = True
    function_calling: FunctionCalling | None = None
    """None: as is known of the model."""
    returns: dict[str, Plain] | None = None
    """JSON Schema of the answer, asked for by the provider's own means where it has them, and in
    the system message where it has not."""
    settings: Mapping[str, Plain] = field(default_factory=dict)
    """Passed to the provider as they are: `temperature`, `max_tokens`, `api_key`, …"""
    longest_reply: int | None = None
    """Tokens that the reply may have, what the model thinks included; a setting may say less. None:
    nothing but the settings bounds it."""
    timeout: float | None = None
    """Seconds; None: the adapter's own."""
    agent: str | None = None
    """Who asks: for logs, and for scripts that answer each agent by itself."""
    earlier_replies: int = 0
    """How many replies of the conversation are left out of the messages: for scripts that find
    their place by the conversation."""
    call_ids: Set[str] | None = None
    """Ids of the calls in the messages, if they are known: a call gets one that is not among them.
    """
    conversation: str = ""
    """Its name in this process: calls as text have a mark that no other conversation has."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one call used. Tokens of input include the cached ones."""

    input_tokens: int = 0
    cached_tokens: int = 0
    """Read from the provider's cache."""
    cache_write_tokens: int = 0
    """Written to it, where the provider counts that."""
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    """None: the model's prices are not known."""
    estimated: bool = False
    """The provider did not say it; it was counted here."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call that can be made: its tool is on offer, and its arguments fit the tool's schema."""

    id: str
    """Of the call in the message; unique in the conversation."""
    name: str
    arguments: dict[str, Plain]
    """Read, and converted to the types of the schema."""


@dataclass(frozen=True, slots=True)
class CallFault:
    """Something that was meant as a call and cannot be run."""

    id: str | None
    """Of the call in the message, to be answered as a tool; None: it has no place there, and the
    model is told in a message of the user."""
    name: str | None
    reason: str
    """What is wrong and what would be right, for the model to read."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model answered."""

    message: Message
    """The assistant's message, as it enters the conversation; JSON-like data."""
    finish: Literal["stop", "calls", "length", "filtered"]
    usage: Usage
    model: str
    """The model that answered, as it was asked for."""
    calls: tuple[ModelCall, ...] = ()
    """In the order of the message, which has the faulty ones as well."""
    faults: tuple[CallFault, ...] = ()
    events: tuple[Mapping[str, Plain], ...] = ()
    """What is worth a line in a log: `{event: "repaired" | "text_calls", …}`."""
    scripted: bool = False
    """No model was asked: a script answered. The message says so too, under `provider_parts`."""


@dataclass(frozen=True, slots=True)
class ReplyPart:
    """What listeners are told while a reply arrives."""

    kind: Literal["start", "text", "reasoning", "call", "restart", "end"]
    """`restart`: forget what came so far, the reply starts anew. It broke off, and another attempt
    follows; or what came as text was reasoning, as its end has shown."""
    text: str = ""
    """Of `text`, `reasoning`: the next piece. Of `call`: the next piece of its arguments."""
    call: str | None = None
    """Id of the call that a `call` belongs to."""
    tool: str | None = None
    """Its tool, once it is known."""


Listener = Callable[[ReplyPart], None]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model before it is asked."""

    window: int | None = None
    """Tokens that fit into one request with its reply."""
    longest_reply: int | None = None
    """Tokens that one reply may have."""
    input_price: float | None = None
    """USD a token."""
    output_price: float | None = None
    highest_input_price: float | None = None
    """USD a token, where it is dearest: written to a cache, in a long prompt. None: as usual."""
    highest_output_price: float | None = None
    vision: bool | None = None
    """Whether it takes images; None: nobody knows, and it is sent them."""
    function_calling: FunctionCalling = "native"
    schema_mode: bool | None = False
    """Whether its provider can hold an answer to a JSON Schema; None: nobody knows."""


class Model(Protocol):
    """A way to models. One object per process; calls may overlap."""

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Ask a model once; nothing is retried here.

        Cancelling the awaiting task ends the request.

        Args:
            request: What is asked.
            listen: Is told what arrives; None: the reply is not streamed.

        Raises:
            StepError: `RateLimited` (with `retry_after`), `ContextWindowExceeded`, `ModelError`:
                the provider's own words, `retryable` if the fault may pass.
        """

    async def facts(self, model: str) -> ModelFacts:
        """Return what is known of a model, without asking its provider.

        The first time this may take seconds: that is how long the library behind it takes to load.

        Args:
            model: `provider/model`.
        """

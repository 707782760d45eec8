"""The models of providers, called through litellm. One attempt is one request, without retries."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from json import dumps
from typing import Any

from flowengine.agents.models import library
from flowengine.agents.models.conversations import (
    LONGEST_ID,
    ConversationWriter,
    offered,
    schema_text,
    with_brief_blocks,
    with_cache_marks,
    with_system_text,
)
from flowengine.agents.models.failures import ModelError, as_ours, refuses_schema, refuses_tools
from flowengine.agents.models.library import as_plain
from flowengine.agents.models.model_facts import cost_of, facts_of
from flowengine.agents.models.port import (
    FunctionCalling,
    Listener,
    Message,
    ModelFacts,
    ModelReply,
    ModelRequest,
    ReplyPart,
    Usage,
    estimated_usage,
    reported_usage,
)
from flowengine.agents.models.provider_schemas import (
    AnswerForm,
    WireNames,
    answer_form,
    unwrapped,
    wire_name,
)
from flowengine.agents.models.replies import (
    ArrivingReply,
    Finish,
    GuardedListener,
    PartSender,
    SentReply,
    form_of,
    must_call,
    read_sent,
    text_tools_of,
)
from flowengine.agents.models.strict_schemas import dialect_of
from flowengine.agents.text_calls.marked_form import ModelCall
from flowengine.agents.text_calls.requests import request_messages
from flowengine.sdk import Plain, StepError
from flowengine.sdk.environments.resources import background

_log = logging.getLogger("flowengine.agents")

_TIMEOUT = 600.0
_OURS = frozenset(
    {"model", "messages", "tools", "functions", "tool_choice", "parallel_tool_calls", "stream"}
    | {"stream_options", "n", "num_retries", "max_retries", "fallbacks", "timeout"}
)
"""Settings that are rejected, because the request or the engine determines them."""
_CACHED_BY_MARKS = ("anthropic", "bedrock", "vertex_ai", "azure_ai", "openrouter", "databricks")
"""Providers of Claude, which cache marked prefixes."""
_SCHEMA_BESIDE_TOOLS = ("openai", "azure")
"""Providers that enforce a schema for answers even while tools are on offer."""
_ENDED: Mapping[str | None, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "content_filter": "filtered",
}


@dataclass(slots=True)
class _Asked:
    """A request to send."""

    request: ModelRequest
    provider: str
    names: WireNames
    parts: PartSender
    sent: dict[str, Any]
    """Arguments for the library."""
    form: AnswerForm | None
    """The schema of the answer, if the provider receives one."""

    @property
    def enforces(self) -> bool:
        """Whether the provider is asked to enforce that schema."""
        return self.form is not None and self.form.strict


class ProviderModels:
    """All models supported by litellm, called on the background loop of the process.

    A connection belongs to the loop that opened it. On the background loop, it outlives a single
    execution.
    """

    def __init__(self) -> None:
        self._without_tools: set[str] = set()
        """Models whose provider rejected tools."""
        self._without_schema: set[str] = set()
        """Models whose provider rejected a schema for the answer."""
        self._not_enforced: set[str] = set()
        """Models with schemas of answers, as JSON, that a provider refused to enforce."""

    def begin_loading(self) -> None:
        """Start loading the library on a thread."""
        library.begin_loading()

    async def facts(self, model: str) -> ModelFacts:
        """Return the facts about a model, as declared by `Model`."""
        return self._facts(await library.library(), model)

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Call a model once, as declared by `Model`."""
        litellm = await library.library()
        listener = _Here(listen) if listen else None
        try:
            return await background().wait(self._ask(litellm, request, listener))
        finally:
            if listener:
                listener.close()

    def _facts(self, litellm: Any, model: str) -> ModelFacts:
        """Return the facts from the tables, updated by rejections of the provider."""
        facts = facts_of(litellm, model)
        if model in self._without_tools:
            facts = replace(facts, function_calling="text")
        return replace(facts, schema_mode=False) if model in self._without_schema else facts

    async def _ask(
        self, litellm: Any, request: ModelRequest, listen: Listener | None
    ) -> ModelReply:
        events: list[Mapping[str, Plain]] = []
        while True:
            facts = self._facts(litellm, request.model)
            calling = request.function_calling or facts.function_calling
            strict = dumps([request.model, request.returns]) not in self._not_enforced
            asked = _asked(litellm, request, calling, facts, listen, strict=strict)
            sent = await self._sent(litellm, asked, facts, events)
            if sent is not None:
                if asked.form is not None and asked.form.is_wrapped and request.returns is not None:
                    sent.content = unwrapped(sent.content, request.returns)
                return read_sent(sent, request, calling, events=events)

    async def _sent(
        self, litellm: Any, asked: _Asked, facts: ModelFacts, events: list[Mapping[str, Plain]]
    ) -> SentReply | None:
        """Return the reply, or None if the provider refused the form of the request.

        It is then known, and the next request has another form.
        """
        request, model = asked.request, asked.request.model
        try:
            with as_plain():
                async with asyncio.timeout(request.timeout or _TIMEOUT):
                    return await _received(litellm, asked)
        except StepError:
            asked.parts.broke_off()
            raise
        except Exception as error:
            broke_off = asked.parts.broke_off()
            if request.function_calling is None and "tools" in asked.sent and refuses_tools(error):
                self._without_tools.add(model)
                reason = str(as_ours(error, "it", {}))
                events.append({"event": "text_calls", "model": model, "reason": reason})
                _log.warning("%s takes no tools: it is asked for calls as text", model)
                return None
            if facts.schema_mode and asked.enforces and refuses_schema(error):
                self._not_enforced.add(dumps([model, request.returns]))
                return None
            if facts.schema_mode is None and asked.form is not None and refuses_schema(error):
                self._without_schema.add(model)
                _log.warning(
                    "%s takes no JSON Schema for its answer: it gets it in words only", model
                )
                return None
            ours = as_ours(error, model, request.settings, broke_off=broke_off)
            raise ours from ours.__cause__


class _Here:
    """Passes parts on to a listener in the loop of the caller, until it is closed."""

    def __init__(self, listen: Listener) -> None:
        self._loop = asyncio.get_running_loop()
        self._listen = GuardedListener(listen)
        self._arrived: deque[ReplyPart] = deque()

    def __call__(self, part: ReplyPart) -> None:
        self._arrived.append(part)
        # The loop is woken once for all parts that arrive before it runs.
        if len(self._arrived) == 1 and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._pass_on)

    def close(self) -> None:
        self._pass_on()
        self._listen.listen = None

    def _pass_on(self) -> None:
        while self._arrived:
            self._listen(self._arrived[0])
            self._arrived.popleft()  # last, so that parts arriving during the call wake no one


def _asked(
    litellm: Any,
    request: ModelRequest,
    calling: FunctionCalling,
    facts: ModelFacts,
    listen: Listener | None,
    *,
    strict: bool,
) -> _Asked:
    """Return the request in the form that the library takes.

    Raises:
        StepError: The request cannot be sent, because the provider is unknown or a setting is
            reserved for the engine.
    """
    if taken := sorted(_OURS & set(request.settings)):
        raise ModelError(
            f"the settings of {request.model} cannot say {', '.join(taken)}", retryable=False
        )
    try:
        name, provider, *_ = litellm.get_llm_provider(request.model)
    except Exception as error:
        raise ModelError(
            f"the provider of the model '{request.model}' is unknown: name it, as in "
            "'openai/gpt-4o'",
            retryable=False,
        ) from error
    names = WireNames(tool.name for tool in request.tools)
    known = set(litellm.get_supported_openai_params(name, provider) or ())
    sent: dict[str, Any] = {
        **request.settings,
        "model": request.model,
        "num_retries": 0,
        "max_retries": 0,
        "timeout": request.timeout or _TIMEOUT,
    }
    if request.longest_reply is not None:
        _bound_reply(request.longest_reply, sent)
    conversation = ConversationWriter(provider, vision=facts.vision is not False)
    form = _answer_form(request, provider, facts, known, strict=strict)
    messages = _answer_schema(request, facts, form, sent)
    messages = with_brief_blocks(messages, ruled=bool(request.tools))
    if calling == "text":
        shown = conversation.with_images(messages)
        tools, must = text_tools_of(request), must_call(request)
        sent["messages"] = request_messages(shown, tools, form_of(request), must_call=must)
    else:
        sent["messages"] = conversation.written(messages)
        _offer(request, known, sent)
    if provider in _CACHED_BY_MARKS and "claude" in request.model:
        with_cache_marks(sent["messages"])
    if listen is not None:
        sent["stream"] = True
        sent["stream_options"] = {"include_usage": True}
    is_wrapped = form is not None and form.is_wrapped
    parts = PartSender(listen, request, calling, is_wrapped=is_wrapped)
    return _Asked(request, provider, names, parts, sent, form)


def _bound_reply(tokens: int, sent: dict[str, Any]) -> None:
    """Limit the reply, under the name that the settings use for the limit."""
    name = next((key for key in ("max_completion_tokens", "max_output_tokens") if key in sent), "")
    name = name or "max_tokens"
    bound = sent.get(name)
    sent[name] = min(bound, tokens) if isinstance(bound, int) else tokens


def _answer_form(
    request: ModelRequest, provider: str, facts: ModelFacts, known: set[str], *, strict: bool
) -> AnswerForm | None:
    """Return the schema of the answer that the provider receives, if any."""
    beside_tools = facts.schema_mode and provider in _SCHEMA_BESIDE_TOOLS
    can = facts.schema_mode is not False and "response_format" in known
    if request.returns is None or not can or (request.tools and not beside_tools):
        return None
    return answer_form(request.returns, dialect_of(provider, request.model), strict=strict)


def _answer_schema(
    request: ModelRequest, facts: ModelFacts, form: AnswerForm | None, sent: dict[str, Any]
) -> Sequence[Message]:
    """Request an answer that fits a schema, and return messages that describe it if needed."""
    schema = request.returns
    if schema is None:
        return request.messages
    if form is not None:
        schema = form.schema
        enforced = {"name": "answer", "schema": schema, "strict": form.strict}
        sent["response_format"] = {"type": "json_schema", "json_schema": enforced}
        if facts.schema_mode:  # an unknown server might accept the schema without enforcing it
            return request.messages
    return with_system_text(request.messages, schema_text(schema))


def _offer(request: ModelRequest, known: set[str], sent: dict[str, Any]) -> None:
    choice = request.tool_choice
    if not request.tools or (choice == "none" and "tool_choice" not in known):
        return
    sent["tools"] = offered(request.tools)
    if choice and "tool_choice" in known:
        form = {"type": "function", "function": {"name": wire_name(choice)}}
        sent["tool_choice"] = choice if choice in ("auto", "none", "required") else form
    if not request.parallel_tool_calls and "parallel_tool_calls" in known:
        sent["parallel_tool_calls"] = False


async def _received(litellm: Any, asked: _Asked) -> SentReply:
    """Return the reply of the provider, streamed if there is a listener."""
    response = await litellm.acompletion(**asked.sent)
    parts = asked.parts if "stream" in asked.sent else None
    arriving = ArrivingReply(parts, asked.names)
    if parts is None:
        arriving.feed_whole(response)
        usage = [getattr(response, "usage", None)]
    else:
        usage = await _read_stream(asked.request.model, response, arriving)
    calls = arriving.calls
    data = _provider_parts(arriving, calls)
    reply = SentReply(
        "".join(arriving.content),
        "".join(arriving.reasoning) if arriving.reasoning else None,
        calls,
        _ENDED.get(arriving.finish, "stop"),
        provider_parts={asked.provider: data} if data else None,
    )
    reply.usage = _usage(litellm, asked, reply, usage)
    if parts is not None:
        parts.end(reply.ended)
    return reply


async def _read_stream(model: str, stream: Any, arriving: ArrivingReply) -> list[Any]:
    """Read a stream, and return the usage that its provider reported.

    Raises:
        ModelError: The stream broke off.
    """
    try:
        async for chunk in stream:
            arriving.feed(chunk)
        # If a stream just stops, the library invents a finish reason, which is ignored here.
        arriving.finish = getattr(stream, "received_finish_reason", arriving.finish) or getattr(
            stream, "intermittent_finish_reason", None
        )
        usage = [getattr(chunk, "usage", None) for chunk in getattr(stream, "chunks", ())]
    finally:
        await stream.aclose()
    if arriving.finish is None:
        raise ModelError(f"{model}: the reply broke off", retryable=True, data={"unfinished": True})
    return usage


def _usage(litellm: Any, asked: _Asked, reply: SentReply, chunks: list[Any]) -> Usage:
    """Return the usage of a reply, estimated if the provider reported none, with its cost."""
    usage = reported_usage(chunk for chunk in chunks if chunk is not None)
    if usage is None:
        text = "".join(
            [reply.content, reply.reasoning or "", *(c.arguments or "" for c in reply.calls)]
        )
        usage = estimated_usage(asked.sent["messages"], asked.sent.get("tools"), text)
    if usage.cost_usd is None:
        cost = cost_of(litellm, asked.request.model, asked.provider, usage)
        usage = replace(usage, cost_usd=cost)
    return usage


def _provider_parts(arriving: ArrivingReply, calls: list[ModelCall]) -> dict[str, Any]:
    """Return data that only the provider understands, as plain data. Long ids are shortened."""
    ids = {}
    for place, call in enumerate(calls):
        if len(call.id) > LONGEST_ID:  # other providers would reject it
            shorter = call.id.partition("__")[0][: LONGEST_ID - 8] or f"call_{place}"
            ids[shorter], call.id = call.id, shorter
    short = {id: name for name, id in ids.items()}
    parts = {
        "thinking_blocks": [
            dict(block) for block in arriving.thinking_blocks if {"signature", "data"} & {*block}
        ],
        "calls": {short.get(id, id): data for id, data in arriving.call_parts.items()},
        "reasoning_items": [dict(item) for item in arriving.reasoning_items],
        "ids": ids,
    }
    return {name: part for name, part in parts.items() if part}


PROVIDER_MODELS = ProviderModels()
"""One per process, because it remembers which models reject tools."""

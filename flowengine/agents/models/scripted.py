"""A model that asks nobody: a script has its replies. It says so in each of them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from json import dumps
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flowengine.agents.models.errors import ContextWindowExceeded, ModelError, RateLimited
from flowengine.agents.models.known_messages import total
from flowengine.agents.models.port import (
    Listener,
    Message,
    ModelFacts,
    ModelReply,
    ModelRequest,
    Usage,
)
from flowengine.agents.models.replies import SentCall, SentReply, read_sent
from flowengine.agents.models.reply_parts import PartSender
from flowengine.agents.text_calls.models import function_calling
from flowengine.agents.text_calls.records import text_of
from flowengine.errors import InputError
from flowengine.sdk import StepError, Timeout
from flowengine.sdk.validation_messages import predicate

_PIECE = 8
"""Characters of a text that arrive together."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedUsage(_Data):
    """What a scripted reply is said to have used; a script costs nothing unless it says so."""

    input_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    cache_write_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    cost_usd: float | None = 0.0
    estimated: bool = False


class ScriptedCall(_Data):
    """A call in a scripted reply."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    """Text is sent as it is, be it JSON or not."""
    id: str = ""
    """Empty: one is made up."""


class When(_Data):
    """Which requests an entry answers; all that is said has to be true."""

    agent: str | None = None
    model: str | None = None
    contains: str | None = None
    """Text in the last message."""
    turn: int | None = Field(default=None, ge=0)
    """How many replies of assistants the conversation has."""

    def fits(self, request: ModelRequest, turn: int) -> bool:
        """Return whether a request is meant."""
        return (
            self.agent in (None, request.agent)
            and self.model in (None, request.model)
            and self.turn in (None, turn)
            and (self.contains is None or self.contains in _last_text(request))
        )


class Scripted(_Data):
    """An entry of a script: a reply, or what is raised in place of one."""

    text: str = ""
    """For a model that is asked for calls as text: with the calls in it."""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish: Literal["stop", "length", "filtered"] = "stop"
    provider_parts: dict[str, Any] = Field(default_factory=dict)
    """What only a provider understands: of recorded replies."""
    usage: ScriptedUsage = ScriptedUsage()
    raises: str | None = Field(default=None, alias="raise")
    """Type of an error: `RateLimited`, `Timeout`, `ContextWindowExceeded`, …"""
    message: str = "the script says so"
    retryable: bool | None = None
    retry_after: float | None = Field(default=None, ge=0)
    cut: bool = False
    """The error comes after the text was told to whoever listens."""
    when: When | None = None
    repeat: bool = False
    """Answers every request that fits, not only the first one."""


Answer = str | Mapping[str, Any] | BaseException
"""The text of a reply, an entry as data, or an exception that is raised."""
Answering = Callable[[ModelRequest], Answer | Awaitable[Answer]]
"""Makes up an answer when it is asked for."""

_ERRORS: dict[str, type[StepError]] = {
    "ModelError": ModelError,
    "RateLimited": RateLimited,
    "Timeout": Timeout,
}


class ScriptedModel:
    """Answers requests by a script, in order, and keeps the requests.

    An entry with `when` is asked first: it answers the first request that it fits. The others
    answer in the order in which they stand: each the next request, or `by_turn` the request whose
    conversation has as many replies as stand before it. So another process, or another
    conversation, finds its place in the script by itself.

    Args:
        script: Texts, entries as data, exceptions, or functions that get the request.
        name: What it is called: `scripted/NAME`.
        by_turn: Whether the place in the script is that in the conversation.
        facts: What it says of itself.
    """

    def __init__(
        self,
        script: Iterable[Answer | Answering],
        *,
        name: str = "script",
        by_turn: bool = False,
        facts: ModelFacts | None = None,
    ) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        """What it was asked so far."""
        self._by_turn = by_turn
        self._facts = facts
        self._chosen: list[Scripted] = []
        self._turns: list[list[Any]] = [[]]
        """For each turn what is raised, and the reply as the last one."""
        for place, entry in enumerate(script):
            self._add(entry, place)
        self._turn = 0

    def _add(self, entry: Answer | Answering, place: int) -> None:
        if callable(entry) or isinstance(entry, BaseException):
            self._turns[-1].append(entry)
            raises = isinstance(entry, BaseException)
        else:
            data = _entry(entry, f"{self.name}[{place}]")
            if data.when is not None:
                self._chosen.append(data)
                return
            self._turns[-1].append(data)
            raises = data.raises is not None
        if not raises:
            self._turns.append([])

    @property
    def left(self) -> int:
        """How many entries have not answered yet."""
        return len(self._chosen) + sum(map(len, self._turns[self._turn :]))

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Answer by the next entry that fits.

        Args:
            request: What is asked.
            listen: Is told what arrives.

        Returns:
            The reply; it says that it is scripted.

        Raises:
            StepError: What the script says, or `ModelError`: it has no entry.
        """
        self.requests.append(request)
        answer = self._next(request)
        if callable(answer):
            answer = answer(request)
            if inspect.isawaitable(answer):
                answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        entry = answer if isinstance(answer, Scripted) else _entry(answer, self.name)
        calling = function_calling(request.model, agent=request.function_calling)
        parts = PartSender(listen, request, calling)
        name = _shown_name(self.name, request.model)
        sent = _sent(entry, name)
        if entry.raises is None or entry.cut:
            _pass_on(parts, sent)
        if entry.raises is not None:
            parts.broke_off()
            raise _error(entry)
        note = _note(request, name)
        reply = read_sent(sent, request, calling, events=[note], scripted=True)
        parts.end(sent.ended)
        return reply

    async def facts(self, model: str) -> ModelFacts:
        """Return what the script's author says of it.

        Args:
            model: `scripted/NAME`.

        Returns:
            The facts; without any said, those of a model without limits or prices.
        """
        return self._facts or ModelFacts(function_calling=function_calling(model))

    def _next(self, request: ModelRequest) -> Any:
        turn = request.earlier_replies
        turn += total(request.messages, _replies)
        for place, entry in enumerate(self._chosen):
            assert entry.when is not None
            if entry.when.fits(request, turn):
                return entry if entry.repeat else self._chosen.pop(place)
        if self._by_turn:
            self._turn = turn
        entries = self._turns[self._turn] if self._turn < len(self._turns) else []
        if not entries:
            who = f" by the agent {request.agent}" if request.agent else ""
            raise ModelError(
                f"the script '{self.name}' has no answer to request {len(self.requests)}{who}, "
                f"turn {turn}",
                retryable=False,
            )
        if len(entries) > 1 or isinstance(entries[0], BaseException):
            return entries.pop(0)
        [entry] = entries
        if getattr(entry, "raises", None):
            return entries.pop(0)
        if not self._by_turn and not getattr(entry, "repeat", False):
            self._turn += 1
        return entry


def _replies(message: Message) -> int:
    return int(message.get("role") == "assistant")


def _shown_name(script: str, model: str) -> str:
    """Return the name that replies tell: of a file as the flow names it, in whatever folder."""
    if not os.path.isabs(script):
        return script
    named = model.partition("/")[2]
    return os.path.basename(named) if os.path.isabs(named) else named


def _note(request: ModelRequest, script: str) -> Mapping[str, Any]:
    note = "no model was asked: this reply is from a script"
    return {"event": "scripted", "model": request.model, "script": script, "note": note}


def replied(data: Mapping[str, Any], request: ModelRequest) -> ModelReply:
    """Return a reply that a test case has, as if it came from who gave it then.

    Args:
        data: An entry of a script.
        request: What is asked.

    Raises:
        InputError: It is no entry.
    """
    entry = _entry(data, "reply")
    script = entry.provider_parts.get("scripted", {}).get("script", "")
    sent = replace(_sent(entry, script), provider_parts=entry.provider_parts or None)
    calling = function_calling(request.model, agent=request.function_calling)
    notes = [_note(request, script)] if script else []
    return read_sent(sent, request, calling, events=notes, scripted=bool(script))


def _entry(data: str | Mapping[str, Any], place: str) -> Scripted:
    try:
        return Scripted.model_validate({"text": data} if isinstance(data, str) else data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (place, *first["loc"])))
        if first["type"] == "extra_forbidden":
            what = f"there is no such key; known are {', '.join(_known(first['loc']))}"
        else:
            what = predicate(first)
        raise InputError(f"{where}: {what}", field=where) from None


def _known(loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are known where an unknown one is."""
    inner: dict[str, type[BaseModel]] = {
        "calls": ScriptedCall,
        "usage": ScriptedUsage,
        "when": When,
    }
    fields = inner[str(loc[0])].model_fields if len(loc) > 1 else Scripted.model_fields
    return [field.alias or name for name, field in fields.items()]


def _sent(entry: Scripted, name: str) -> SentReply:
    calls = [
        SentCall(
            call.id,
            call.name,
            call.arguments if isinstance(call.arguments, str) else dumps(call.arguments),
        )
        for call in entry.calls
    ]
    usage = Usage(**entry.usage.model_dump())
    parts = {**entry.provider_parts, "scripted": {"script": name}}
    return SentReply(entry.text, entry.reasoning or None, calls, entry.finish, usage, parts)


def _pass_on(parts: PartSender, sent: SentReply) -> None:
    if sent.reasoning:
        parts.reasoning(sent.reasoning)
    for start in range(0, len(sent.content), _PIECE):
        parts.text(sent.content[start : start + _PIECE])
    for place, call in enumerate(sent.calls):
        parts.call(call.id or str(place), call.name, call.arguments or "")


def _error(entry: Scripted) -> StepError:
    name = entry.raises or ""
    if name == "ContextWindowExceeded":
        return ContextWindowExceeded(entry.message)
    kind = _ERRORS.get(name, StepError)
    more = {"retryable": entry.retryable, "retry_after": entry.retry_after}
    return kind(entry.message, type=name, **more)  # type: ignore[arg-type]


def _last_text(request: ModelRequest) -> str:
    return text_of(request.messages[-1].get("content")) if request.messages else ""

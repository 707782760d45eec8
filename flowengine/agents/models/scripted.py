"""A model that replies from a script, such as a file. Each reply is marked as scripted."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from json import dumps
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flowengine.agents.call_answers import text_of
from flowengine.agents.models.failures import ContextWindowExceeded, ModelError, RateLimited
from flowengine.agents.models.model_facts import function_calling
from flowengine.agents.models.port import (
    Listener,
    ModelFacts,
    ModelReply,
    ModelRequest,
    Usage,
)
from flowengine.agents.models.replies import PartSender, SentReply, read_sent
from flowengine.agents.text_calls.marked_form import ModelCall
from flowengine.errors import InputError
from flowengine.sdk import StepError, Timeout
from flowengine.sdk.texts.validation_messages import predicate
from flowengine.sdk.values.read_only import unwrapped

_PIECE = 8
"""Number of characters of a text that arrive together."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedUsage(_Data):
    """The declared usage of a scripted reply, zero by default."""

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
    """Text is sent unchanged, even if it is not JSON."""
    id: str = ""
    """Empty: an id is generated."""


class When(_Data):
    """Conditions on the requests that an entry replies to. All of them must hold."""

    agent: str | None = None
    model: str | None = None
    instructions: str | None = None
    """Text contained in the instructions."""
    contains: str | None = None
    """Text contained in the last message."""
    turn: int | None = Field(default=None, ge=0)
    """Number of assistant replies in the conversation."""

    def fits(self, request: ModelRequest, turn: int) -> bool:
        """Return whether a request fulfills the conditions."""
        return (
            self.agent in (None, request.agent)
            and self.model in (None, request.model)
            and self.turn in (None, turn)
            and (self.instructions is None or self.instructions in _instructions(request))
            and (self.contains is None or self.contains in _last_text(request))
        )


class Scripted(_Data):
    """An entry of a script: a reply or an error."""

    text: str = ""
    """The text. For a model with text calls, it includes the calls."""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish: Literal["stop", "length", "filtered"] = "stop"
    provider_parts: dict[str, Any] = Field(default_factory=dict)
    """Data that only a provider understands, from recorded replies."""
    usage: ScriptedUsage = ScriptedUsage()
    raises: str | None = Field(default=None, alias="raise")
    """Type of an error: `RateLimited`, `Timeout`, `ContextWindowExceeded`, …"""
    message: str = "the script raises this error"
    retryable: bool | None = None
    retry_after: float | None = Field(default=None, ge=0)
    cut: bool = False
    """Whether the error follows after listeners received the text."""
    when: When | None = None
    repeat: bool = False
    """Whether the entry replies to every matching request, not only to the first one."""


ScriptedReply = str | Mapping[str, Any] | BaseException
"""The text of a reply, an entry as data, or an exception that is raised."""
Answering = Callable[[ModelRequest], ScriptedReply | Awaitable[ScriptedReply]]
"""Creates an entry for a request."""

_ERRORS: dict[str, type[StepError]] = {
    "ModelError": ModelError,
    "RateLimited": RateLimited,
    "Timeout": Timeout,
}


class ScriptedModel:
    """Replies to requests from a script, in order, and records the requests.

    Entries with `when` take precedence, and reply to the first matching request. The other entries
    reply in script order. Each takes the next request or, with `by_turn`, the request whose
    conversation contains as many replies as precede the entry. Another process or conversation thus
    finds its own place in the script.

    Args:
        script: Texts, entries as data, exceptions, or functions that get the request.
        name: The model's name: `scripted/NAME`.
        by_turn: Whether the place in the script is that in the conversation.
        facts: The facts that the model reports, such as its context window.
        recording: Whether `requests` keeps the requests, each with its whole conversation.
    """

    def __init__(
        self,
        script: Iterable[ScriptedReply | Answering],
        *,
        name: str = "script",
        by_turn: bool = False,
        facts: ModelFacts | None = None,
        recording: bool = True,
    ) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        """All requests so far."""
        self._count = 0
        self._recording = recording
        self._by_turn = by_turn
        self._facts = facts
        self._chosen: list[Scripted] = []
        self._turns: list[list[Any]] = [[]]
        """By turn: errors to raise, followed by the reply."""
        for place, entry in enumerate(script):
            self._add(entry, place)
        self._turn = 0
        self._repeated: list[Scripted] = []
        """Entries with `repeat` that have replied. They stay in their place."""
        self.fault: Exception | None = None
        """The first exception that a function of the script has raised by mistake."""

    def _add(self, entry: ScriptedReply | Answering, place: int) -> None:
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
        """Number of entries that have not been used yet."""
        rest = [*self._chosen, *chain.from_iterable(self._turns[self._turn :])]
        return sum(not any(entry is used for used in self._repeated) for entry in rest)

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Reply with the next matching entry.

        Args:
            request: The request.
            listen: Receives the parts.

        Returns:
            The reply, marked as scripted.

        Raises:
            StepError: The error of the entry, or a `ModelError` if no entry is left.
            Exception: A function of the script raised it. Unless it is a `StepError`, such as
                `RateLimited`, no attempt is made again: it is a fault of the function.
        """
        self._count += 1
        if self._recording:
            self.requests.append(request)
        answer = self._next(request)
        if callable(answer):
            answer = await self._called(answer, request)
        if isinstance(answer, BaseException):
            raise answer
        entry = answer if isinstance(answer, Scripted) else _entry(answer, self.name)
        calling = function_calling(request.model, agent=request.function_calling)
        parts = PartSender(listen, request, calling)
        name = _shown_name(self.name, request.model)
        sent = _sent(entry, name)
        if entry.raises is None or entry.cut:
            if sent.reasoning:
                parts.reasoning(sent.reasoning)
            for start in range(0, len(sent.content), _PIECE):
                parts.text(sent.content[start : start + _PIECE])
            for place, call in enumerate(sent.calls):
                parts.call(call.id or str(place), call.name, call.arguments or "")
        if entry.raises is not None:
            parts.broke_off()
            raise _error(entry)
        note = _note(request, name)
        reply = read_sent(sent, request, calling, events=[note])
        parts.end(sent.ended)
        return reply

    async def _called(self, answer: Answering, request: ModelRequest) -> ScriptedReply:
        try:
            made = answer(request)
            return await made if inspect.isawaitable(made) else made
        except StepError:
            raise
        except Exception as error:
            self.fault = self.fault or error
            error.retryable = False  # type: ignore[attr-defined]
            raise

    async def facts(self, model: str) -> ModelFacts:
        """Return the declared facts about the model.

        Args:
            model: `scripted/NAME`.

        Returns:
            The facts. By default, the model has no limits and no prices.
        """
        return self._facts or ModelFacts(function_calling=function_calling(model))

    def _next(self, request: ModelRequest) -> Any:
        turn = request.earlier_replies
        turn += sum(message.get("role") == "assistant" for message in unwrapped(request.messages))
        for place, entry in enumerate(self._chosen):
            assert entry.when is not None
            if entry.when.fits(request, turn):
                return self._again(entry) if entry.repeat else self._chosen.pop(place)
        if self._by_turn:
            self._turn = turn
        entries = self._turns[self._turn] if self._turn < len(self._turns) else []
        if not entries:
            who = f" by the agent {request.agent}" if request.agent else ""
            raise ModelError(
                f"the script '{self.name}' has no answer to request {self._count}{who}, "
                f"turn {turn}",
                retryable=False,
            )
        if len(entries) > 1 or isinstance(entries[0], BaseException):
            return entries.pop(0)
        [entry] = entries
        if getattr(entry, "raises", None):
            return entries.pop(0)
        if getattr(entry, "repeat", False):
            return self._again(entry)
        if not self._by_turn:
            self._turn += 1
        return entry

    def _again(self, entry: Scripted) -> Scripted:
        """Return an entry that repeats, and record that it was used."""
        if not any(entry is used for used in self._repeated):
            self._repeated.append(entry)
        return entry


def _shown_name(script: str, model: str) -> str:
    """Return the displayed name of a script. For a file, omit the absolute directory."""
    if not os.path.isabs(script):
        return script
    named = model.partition("/")[2]
    return os.path.basename(named) if os.path.isabs(named) else named


def _note(request: ModelRequest, script: str) -> Mapping[str, Any]:
    note = "no model was asked: this reply is from a script"
    return {"event": "scripted", "model": request.model, "script": script, "note": note}


def replied(data: Mapping[str, Any], request: ModelRequest) -> ModelReply:
    """Return a reply from a test case, as if it came from its original source.

    Args:
        data: An entry of a script.
        request: The request.

    Raises:
        InputError: The data is not a valid entry.
    """
    entry = _entry(data, "reply")
    script = entry.provider_parts.get("scripted", {}).get("script", "")
    sent = replace(_sent(entry, script), provider_parts=entry.provider_parts or None)
    calling = function_calling(request.model, agent=request.function_calling)
    notes = [_note(request, script)] if script else []
    return read_sent(sent, request, calling, events=notes)


def _entry(data: str | Mapping[str, Any], place: str) -> Scripted:
    try:
        return Scripted.model_validate({"text": data} if isinstance(data, str) else data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (place, *first["loc"])))
        if first["type"] == "extra_forbidden":
            what = f"unknown key: known are {', '.join(_known(first['loc']))}"
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
        ModelCall(
            call.name,
            call.arguments if isinstance(call.arguments, str) else dumps(call.arguments),
            call.id,
        )
        for call in entry.calls
    ]
    usage = Usage(**entry.usage.model_dump())
    parts = {**entry.provider_parts, "scripted": {"script": name}}
    return SentReply(entry.text, entry.reasoning or None, calls, entry.finish, usage, parts)


def _error(entry: Scripted) -> StepError:
    name = entry.raises or ""
    if name == "ContextWindowExceeded":
        return ContextWindowExceeded(entry.message)
    kind = _ERRORS.get(name, StepError)
    more = {"retryable": entry.retryable, "retry_after": entry.retry_after}
    return kind(entry.message, type=name, **more)  # type: ignore[arg-type]


def _last_text(request: ModelRequest) -> str:
    return text_of(request.messages[-1].get("content")) if request.messages else ""


def _instructions(request: ModelRequest) -> str:
    first = request.messages[0] if request.messages else {}
    return text_of(first.get("content")) if first.get("role") == "system" else ""


# Files


def read_script(path: str) -> ScriptedModel:
    """Read a script whose entries are chosen by the place in the conversation, in any process.

    Args:
        path: Path of the file.

    Returns:
        The model.

    Raises:
        ModelError: The file does not exist, or does not contain a script.
    """
    try:
        with open(path, encoding="utf-8") as file:
            entries = _entries_of(file.read())
        return ScriptedModel(entries, name=path, by_turn=True, recording=False)
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, InputError) as error:
        reason = str(error)
    raise ModelError(f"the script {path} cannot be read: {reason}", retryable=False)


def _entries_of(text: str) -> list[Any]:
    import yaml

    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise ValueError(f"it is not YAML{place}: {getattr(error, 'problem', error)}") from None
    if not isinstance(data, list) or not all(isinstance(item, dict | str) for item in data):
        raise ValueError("it must be a list of replies, such as '- text: Hello.'")
    return data

"""The models of an agent, and the first messages of its conversation."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from flowengine.agents.models.failures import ModelError
from flowengine.agents.models.port import MODEL_VARIABLE, Message
from flowengine.agents.models.registry import resolve
from flowengine.sdk import Plain, StepError
from flowengine.sdk.texts.untrusted import marked, source_of, unmarked

NO_MODEL = (
    "no model is named: set 'model' of the agent, 'defaults.model', the variable "
    f"{MODEL_VARIABLE}, or --model"
)

ASKED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "prompt": {
            "description": "The request to the agent: text, or a list of parts.",
            "type": ["string", "array"],
        },
        "context": {"description": "Shown to the model as data.", "type": "object"},
        "files": {"description": "Files to mention to it.", "type": "array"},
    },
    "additionalProperties": False,
}
"""JSON Schema of the input of an agent that a step or another agent calls."""

_ANSWERS: ContextVar[str | None] = ContextVar("answers", default=None)


@contextmanager
def answered_by(model: str | None) -> Iterator[None]:
    """Check flows as if one model replied for all agents of the execution.

    Args:
        model: The model, or None. The execution itself carries it as a label.
    """
    token = _ANSWERS.set(model)
    try:
        yield
    finally:
        _ANSWERS.reset(token)


def is_model_named() -> bool:
    """Return whether a default model exists for agents whose file names none."""
    return bool(_ANSWERS.get() or os.environ.get(MODEL_VARIABLE))


def asked(input: Mapping[str, Any]) -> tuple[str, Mapping[str, Plain]]:
    """Return the model that replies for all agents, or the empty text, and the arguments.

    Args:
        input: The `args` of the first agent, the `variables` of the agent that calls it, and the
            `labels` of the execution.
    """
    args = {**(input.get("args") or {})}
    if input.get("variables"):
        args["context_variables"] = input["variables"]
    return str((input.get("labels") or {}).get("model", "")), args


async def opened(
    models: Mapping[str, Any],
    instead: str,
    args: Mapping[str, Plain],
    served: Mapping[str, Plain] = MappingProxyType({}),
) -> dict[str, Plain]:
    """Return the models and tools on offer, and the first messages of the conversation.

    Args:
        models: By agent: its `model`, if declared, its `fallbacks`, and in `windows` whether the
            context windows of these models are needed.
        instead: Overrides the models of all agents, unless empty.
        args: Input of the step: `prompt`, `context` and `files`, or the `messages` so far. It can
            contain `context_variables`, which are not shown to models.
        served: Tools offered by servers.
    """
    made = opened_with(models_on_offer(models, instead), args, served)
    asked = made["offer"]["models"]
    named = [model for name in models if models[name].get("windows") for model in asked[name]]
    if named:
        made["offer"]["bounds"] = {
            fromkey: await _bound(fromkey) for fromkey in dict.fromkeys(named)
        }
    return made


def opened_with(
    models: Mapping[str, Any],
    args: Mapping[str, Plain],
    served: Mapping[str, Plain] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the same without querying the maximum length of requests.

    Args:
        models: `models`, the models that each agent calls, and `declared_models`.
        args: As for `opened`.
        served: As for `opened`.
    """
    offer: dict[str, Plain] = {**models, **served}
    given = args.get("context") or {}
    messages = [*map(_marked_message, args["messages"])] if "messages" in args else None
    if messages is None:
        messages = _first_messages(args, given)
    return {
        "offer": offer,
        "messages": messages,
        "context": args.get("context_variables") or ({} if "messages" in args else given),
        "asked": max(
            (n for n, message in enumerate(messages) if message["role"] == "user"), default=-1
        ),
    }


async def _bound(model: str) -> int | None:
    """Return the maximum tokens of a request to a model, or None if unknown."""
    try:
        facts = await resolve(model).facts(model)
    except StepError:
        return None  # the call of the model reports it
    if facts.window is None:
        return None
    return facts.window - min(facts.longest_reply or 0, facts.window // 4)


def models_on_offer(models: Mapping[str, Any], instead: str) -> dict[str, Plain]:
    """Return the models that each agent calls, and what they depend on.

    Args:
        models: As for `opened`.
        instead: As for `opened`.
    """
    return {"models": chosen(models, instead), **declared_models(models, instead)}


def declared_models(models: Mapping[str, Any], instead: str) -> dict[str, Plain]:
    """Return what the models depend on, which shows later whether the flow has changed.

    Args:
        models: As for `opened`.
        instead: As for `opened`.
    """
    if instead:
        return {"instead": instead}
    return {"declared": {name: [one["model"], *one["fallbacks"]] for name, one in models.items()}}


def chosen(models: Mapping[str, Any], instead: str) -> dict[str, Any]:
    """Return the models of each agent: its own, followed by its fallbacks.

    Args:
        models: As for `opened`.
        instead: As for `opened`.
    """
    return {
        name: [instead] if instead else named_models(model["model"], *model["fallbacks"])
        for name, model in models.items()
    }


def named_models(first: str | None, *fallbacks: str) -> list[str]:
    """Return the models of an agent, the first one by the environment if it names none.

    Raises:
        ModelError: No model is named.
    """
    first = first or os.environ.get(MODEL_VARIABLE)
    if not first:
        raise ModelError(NO_MODEL, retryable=False)
    return [first, *fallbacks]


_UNTRUSTED = "untrusted"
"""In a tool message for clients: the source of untrusted text in its content."""


def unmarked_message(message: Message) -> Message:
    """Return a message for clients: a result has no marks, but the source of a marked text.

    A client can give the message to a later run, in which its content is marked again. Blocks in
    prompts stay, because the rest of a prompt is not untrusted.
    """
    content = message.get("content")
    if message["role"] != "tool" or not isinstance(content, str):
        return message
    if (source := source_of(content)) is None:
        return message
    return {**message, "content": unmarked(content), _UNTRUSTED: source}


def _marked_message(message: Message) -> Message:
    content, source = message.get("content"), message.get(_UNTRUSTED)
    if not isinstance(content, str) or not isinstance(source, str):
        return message
    kept = {key: value for key, value in message.items() if key != _UNTRUSTED}
    return {**kept, "content": marked(content, source)}


def _first_messages(args: Mapping[str, Plain], given: Mapping[str, Plain]) -> list[Message]:
    prompt = args.get("prompt") or ""
    parts: list[Plain] = list(prompt) if isinstance(prompt, list) else []
    texts = [prompt] if isinstance(prompt, str) and prompt else []
    if given:
        texts.append("Context:\n" + json.dumps(given, ensure_ascii=False, indent=1))
    files = args.get("files") or []
    if files:
        lines = [_file_line(file) for file in files]
        texts.append("Files:\n" + "\n".join(lines))
    if parts:
        parts += [{"type": "text", "text": text} for text in texts]
        return [{"role": "user", "content": parts}]
    return [{"role": "user", "content": "\n\n".join(texts)}] if texts else []


def _file_line(file: Plain) -> str:
    if isinstance(file, dict):
        size = f", {file['size']} bytes" if "size" in file else ""
        return f"- {file.get('name') or file.get('path')} ({file.get('path')}{size})"
    return f"- {file}"

"""Results of hooks around an agent's turns and calls, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.agents.call_answers import ERROR, data_text, marked_data, tool_message, value_of
from flowengine.sdk import Plain
from flowengine.sdk.texts.untrusted import all_unmarked


def call_hooked(call: Mapping[str, Any], result: Plain, hook: str) -> dict[str, Any]:
    """Return a call as a hook before it has left it.

    Args:
        call: The call of a reply.
        result: None, or `arguments`, `ask` (a reason to ask approvers), `answer` (the result of the
            call, which is not made) or `refuse` (a reason not to make it).
        hook: The name of the hook.
    """
    said = hook_said(result, arguments=dict, ask=str, answer=object, refuse=str)
    if "refuse" in said:
        return refused(call, f"{hook} refused it: {said['refuse']}")
    if "answer" in said:
        content = data_text(said["answer"])
        messages = [tool_message(_id_of(call), call_name(call), content)]
        value = {"value": said["answer"]}
        return {"step": "", "handoff": "", "messages": messages, **value}
    changed = dict(call)
    if "arguments" in said and "args" in call:
        changed["args"] = said["arguments"]
    if "ask" in said:
        changed["ask"] = f"{hook}: {said['ask']}"
    return changed


def answer_hooked(
    call: Mapping[str, Any], answer: Mapping[str, Any], result: Plain, hook: str
) -> dict[str, Plain]:
    """Return the answer to a call as a hook after it has left it.

    Args:
        call: The call.
        answer: Its answer.
        result: None, `{"answer": value}` in place of the result, or `{"refuse": reason}`, if the
            model is not to see it.
        hook: The name of the hook.
    """
    said = hook_said(result, answer=object, refuse=str)
    if not said:
        return {**answer}
    first, *more = answer["messages"]
    if "refuse" in said:
        content = f"{ERROR}{hook} withheld the result: {said['refuse']}"
        messages = [{**first, "content": content}]
        return {"messages": messages, "context": {}, "handoff": "", "value": None}
    value = said["answer"]
    is_marked = all_unmarked(first["content"]) != first["content"]
    content = marked_data(value, call["name"]) if is_marked else data_text(value)
    return {**answer, "messages": [{**first, "content": content}, *more], "value": value}


def call_name(call: Mapping[str, Any]) -> str:
    """Return the name of the called tool, also of one that the turn has answered."""
    return str(call["name"] if "name" in call else call["messages"][0].get("name", ""))


def call_seen(answer: Mapping[str, Any]) -> dict[str, Plain]:
    """Return the result of a call, or the error, as hooks see it."""
    value, content = answer["value"], str(answer["messages"][0]["content"])
    if value is None and content.startswith(ERROR):
        return {"result": None, "error": all_unmarked(content.removeprefix(ERROR))}
    return {"result": value_of(value), "error": None}


def calls_seen(calls: Sequence[Mapping[str, Any]]) -> list[Plain]:
    """Return the calls of a reply as hooks see them."""
    return [{"tool": call_name(one), "arguments": one.get("args", {})} for one in calls]


def refused(call: Mapping[str, Any], reason: str) -> dict[str, Plain]:
    """Return a call that is answered by the reason why it is not made."""
    name = call_name(call)
    messages = [tool_message(_id_of(call), name, f"{ERROR}{reason}")]
    shown = f"{name!r} was not called: {reason}"
    return {"step": "", "handoff": "", "messages": messages, "refused": shown}


def _id_of(call: Mapping[str, Any]) -> Plain:
    found: Plain = call["id"] if "id" in call else call["messages"][0].get("tool_call_id")
    return found


def hook_said(result: Plain, **known: type) -> dict[str, Any]:
    """Return the result of a hook, as a map. A result of another form is a refusal.

    Args:
        result: The result, None or a map.
        **known: The entries that it may have, and their types.
    """
    names = ", ".join(known)
    if result is None:
        return {}
    if not isinstance(result, Mapping):
        return {"refuse": f"it returned {_short(result)} instead of nothing or a map of {names}"}
    for name, value in result.items():
        if name not in known:
            return {"refuse": f"it returned {name!r}, and may return {names}"}
        if not isinstance(value, known[name]):
            return {"refuse": f"it returned {name}: {_short(value)}"}
    return {**result}


def _short(value: Plain) -> str:
    return f"{type(value).__name__} {value!r:.60}"

"""The steps of a generated flow that carry out one call of a reply.

    dispatch ─► the tool's step, or `told`, which runs nothing, or `refused` ─► answer

The model receives the outcome of every call, including errors. The group outputs the messages, the
changes of the context, the agent to hand off to, and the value for clients.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from flowengine.agents.model_calls import AgentSpec
from flowengine.agents.tool_steps import ToolStep, offered
from flowengine.sdk import Plain
from flowengine.sdk.generated_flows import Mark
from flowengine.sdk.untrusted import FAILED

_FIRST_HANDOFF = (
    "${{ join.output.handoff == '' ? join.output : string(state.turns) in state.handed"
    " ? merge(join.output, {'handoff': '', 'messages': [merge(join.output.messages[0],"
    " {'content': 'Error: not taken, as ' + string(state.handed[string(state.turns)])"
    " + ' is active now.'})]}) : join.output }}"
)
"""The answer to a call. The first of several handoffs in a reply is taken, the others are refused.
"""
_HANDED = "${{ output.handoff == '' ? {} : {string(state.turns): output.handoff} }}"
"""The agent that a reply handed off to, by the number of the turn."""
_ANSWERED: Plain = {
    "messages": "${{ call.messages }}",
    "context": {},
    "handoff": "${{ call.handoff }}",
    "value": None,
}
"""The output of a call that the turn itself has answered."""
_HEAD = "'role': 'tool', 'tool_call_id': call.id, 'name': call.name"
_TEXT = "type(result) == string ? result : json(result)"
_FAILED = json.dumps(FAILED)
_WRONG = (
    "'Error: ' + error.type + ': ' + (has(error.source)"
    f" ? {_FAILED} + marked(error.message, error.source) : error.message)"
)
"""The error of a tool, whose message may quote third parties."""
_BY_OTHERS = "marked(result, call.name)"
_WRONG_BY_OTHERS = (
    "'Error: ' + error.type + ': ' + (error.type in"
    " ['Rejected', 'Refused', 'Expired', 'BudgetExceeded', 'LimitExceeded']"
    " ? error.message : marked(error.message, call.name))"
)
"""The result or error of a flow or agent as a tool, marked as possibly written by others."""
_SHOWN = (
    "error.data.images.filter(one, type(one) == map && has(one.sha256)"
    " && type(one.sha256) == string)"
)
_REJECTED = (
    "error.type == 'Rejected' && type(error.data) == map && has(error.data.images)"
    " && type(error.data.images) == list ? [{'role': 'user', 'content': [{'type': 'text',"
    f" 'text': 'From the person who rejected the call:'}}] + {_SHOWN}.map(one,"
    " {'type': 'image_url', 'image_url': {'url': 'artifact:' + one.sha256}})}] : []"
)
"""The message with the images that accompany a rejection."""


def _words(message: str) -> str:
    """Return an expression for the text of a message, whose content can be text or parts."""
    content = f"default({message}.content, '')"
    parts = f"{content}.filter(p, has(p.text)).map(p, p.text).join(' ')"
    return f"type({content}) == list ? {parts} : string({content})"


_SAID = "state.messages.filter(m, m.role == 'assistant')"
_ABOUT = {
    "user": "${{ state.asked < 0 || state.asked >= size(state.messages) ? '' : "
    + _words("state.messages[state.asked]")
    + " }}",
    "model": f"${{{{ size({_SAID}) == 0 ? '' : {_words(f'{_SAID}[size({_SAID}) - 1]')} }}}}",
}
"""The context of a call: the user's newest message, and the model's text beside the call."""


def calls_of(caller: str) -> str:
    """Return the id of the step that runs the calls of a reply, one item for each.

    Args:
        caller: The agent.
    """
    return f"{caller}.calls"


def ids(caller: str) -> list[str]:
    """Return the ids of the steps around the tools of an agent.

    Args:
        caller: The agent.
    """
    return [f"{caller}.{name}" for name in ("dispatch", "told", "refused", "answer")]


def refused(caller: str) -> str:
    """Return the id of the step that stands for an agent's invalid calls."""
    return ids(caller)[2]


def group(
    agent: AgentSpec, tools: Sequence[tuple[ToolStep, str]]
) -> tuple[list[Plain], dict[str, Mark]]:
    """Return the steps of a call, and their marks.

    Args:
        agent: The calling agent.
        tools: Its tools, with the ids of their steps.
    """
    caller, parallel = agent.name, agent.constants["parallel_tool_calls"]
    dispatch, reported, refused, answer = ids(caller)
    ways: list[Plain] = [
        {"when": f"${{{{ call.step == {json.dumps(id)} }}}}", "to": id}
        for id in (*(id for _, id in tools), refused)
    ]
    marks = {
        dispatch: Mark(plumbing=True, ways=[""] * (len(ways) + 1)),
        **{step: Mark(plumbing=True) for step in (reported, answer)},
        refused: Mark(plumbing=True, caller=caller),
        **{
            id: replace(
                _mark(tool, caller), in_order=True, about=_ABOUT, caller_limit=agent.call_limit
            )
            for tool, id in tools
        },
    }
    steps: list[Plain] = [
        {"id": dispatch, "next": {"first": [*ways, {"else": reported}]}},
        *(_step(tool, id, answer, parallel) for tool, id in tools),
        {"id": reported, "output": _ANSWERED, "next": {"to": answer}},
        {
            "id": refused,
            "fail": {"type": "Refused", "message": "${{ call.refused }}"},
            "on_error": [{"output": _ANSWERED}],
            "next": {"to": answer},
        },
        {"id": answer, "join": {"need": "each"}, "output": _FIRST_HANDOFF,
         "set": {"handed": _HANDED}, "next": {"to": "end"}},
    ]  # fmt: skip
    return steps, marks


def _mark(tool: ToolStep, caller: str) -> Mark:
    if tool.adapter is None:
        return Mark(inputs=tool.inputs, tool=tool.name, caller=caller, told=not tool.waits)
    named = tool.name if tool.served is None else ""  # the step knows the name of a server's tool
    return Mark(
        tool=named,
        reads=("context",),
        adapter={"source": named, **tool.adapter},
        offered=offered(tool.served, caller) if tool.served is not None else None,
        caller=caller,
        told=True,
    )


def _step(tool: ToolStep, id: str, answer: str, parallel: bool) -> Plain:
    foreign = tool.adapter is None and not tool.waits and tool.foreign
    message = _message(_WRONG_BY_OTHERS if foreign else _WRONG)
    # Calls that can run in parallel share the lock. Any other call waits for all calls before it,
    # including their questions, and blocks the calls after it.
    beside = tool.waits or (tool.parallel and parallel)
    lock: dict[str, Plain] = {"key": "calls", "scope": "run", "shared": beside}
    output = _ENVELOPE
    if tool.adapter is None:
        output = _message(_BY_OTHERS if foreign else _TEXT)
    handlers: list[Plain] = [{"output": message}]
    if tool.served is not None:
        changed = {"type": ["ToolChanged"], "set": {"changed": 1}, "output": message}
        handlers.insert(0, changed)
    if tool.waits:
        lock["hold"] = True
    else:
        spent = {"spent": {"reason": "${{ error.message }}"}}
        handlers.insert(0, {"type": ["BudgetExceeded"], "set": spent, "output": message})
    return {
        "id": id,
        **tool.action,
        "with": tool.given,
        "lock": lock,
        "output": output,
        "on_error": handlers,
        "next": {"to": answer},
    }


def _message(content: str) -> Plain:
    """Return the output of a call that only produces a message for the model."""
    images = _REJECTED if content in (_WRONG, _WRONG_BY_OTHERS) else "[]"
    messages = f"${{{{ [{{{_HEAD}, 'content': {content}}}] + ({images}) }}}}"
    value = "${{ result }}" if content in (_TEXT, _BY_OTHERS) else None
    return {"messages": messages, "context": {}, "handoff": "", "value": value}


# A result supplied by a person has not been through the adapter.
_PEOPLE = (
    "(approval == null ? '' : (has(approval.edits) ? "
    "'[Before the call was made, a person changed these arguments: ' + json(approval.edits)"
    " + ']\\n\\n' : '') + (has(approval.comment) ? "
    "'[Who approved the call says: ' + approval.comment + ']\\n\\n' : ''))"
)
"""Edits and comment of the approver, in the same form as in `tool_answers`."""
_MADE = "type(result) == map && has(result.envelope)"
_MESSAGE = f"[{{{_HEAD}, 'content': result.envelope.content}}]"
_ALONE = "size(result.envelope.more) == 0"
_ENVELOPE: Plain = {
    "messages": f"${{{{ {_MADE} ? ({_ALONE} ? {_MESSAGE} : {_MESSAGE} + result.envelope.more)"
    f" : [{{{_HEAD}, 'content': {_PEOPLE} + ({_TEXT})}}] }}}}",
    "context": f"${{{{ {_MADE} ? result.envelope.context : {{}} }}}}",
    "handoff": f"${{{{ {_MADE} ? result.envelope.handoff : '' }}}}",
    "value": "${{ result }}",
}
"""The output of a call whose result went through the adapter. Concatenating lists requires the
expression library, so it is avoided for the usual call without further messages."""

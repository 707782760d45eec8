"""The steps of a generated flow that carry out one call of a reply.

    dispatch ─► the tool's step, or `told`, which runs nothing, or `refused`

The model receives the outcome of every call, including errors. The group outputs the answer of
`flowengine.sdk.tools.call_answers`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from flowengine.agents.agent_specs import AgentSpec
from flowengine.agents.generated_hooks import HookedFlow, after, of, spent
from flowengine.agents.tool_steps import NOT_THERE, ToolStep, offered
from flowengine.sdk import Plain
from flowengine.sdk.steps.generated_flows import Mark
from flowengine.sdk.tools.call_answers import ADAPTED, FLOW, NONE, OTHERS

_HANDED = "default(state.handed[string(state.turns)], '')"
"""The agent that an earlier call of the reply handed off to, or the empty text."""
_HANDS_OVER = {"handed": "${{ output.handoff == '' ? {} : {string(state.turns): output.handoff} }}"}
"""Keep the agent that a reply handed off to, by the number of the turn."""


_ABOUT = {
    who: f"${{{{ said_before(state.messages, state.asked).{who} }}}}" for who in ("user", "model")
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
    return [f"{caller}.{name}" for name in ("dispatch", "told", "refused")]


def outputs(steps: Iterable[str]) -> str:
    """Return the expression for the output of the first of some steps that has one."""
    outputs = [f"steps[{json.dumps(id)}].output" for id in steps]
    return f"default({', '.join(outputs)})" if len(outputs) > 1 else outputs[0]


def refused(caller: str) -> str:
    """Return the id of the step that stands for an agent's invalid calls."""
    return ids(caller)[2]


def group(
    agent: AgentSpec, tools: Sequence[tuple[ToolStep, str]], hooked: HookedFlow
) -> tuple[list[Plain], dict[str, Mark], str]:
    """Return the steps of a call, their marks, and the output of the group.

    Args:
        agent: The calling agent.
        tools: Its tools, with the ids of their steps.
        hooked: The surrounding flow, for hooks.
    """
    caller, parallel = agent.name, agent.constants["parallel_tool_calls"]
    dispatch, told, refused = ids(caller)
    ids_of_tools = [id for _, id in tools]
    hooks, hook_marks = after(agent.hooks, hooked, outputs(ids_of_tools)) if tools else ([], {})
    answer = outputs([step["id"] for step in reversed(hooks)] + ids_of_tools + [told, refused])
    then = hooks[0]["id"] if hooks else "end"
    may_ask = bool(of(agent.hooks, "before_call"))
    asks = "${{ default(call.ask, '') }}" if may_ask else ""
    about = {**_ABOUT, "hook": asks} if may_ask else _ABOUT
    ways: list[Plain] = [
        {"when": f"${{{{ call.step == {json.dumps(id)}{only_if} }}}}", "to": to}
        for id, only_if, to in (
            *((id, tool.only_if, id) for tool, id in tools),
            *((id, "", refused) for tool, id in tools if tool.only_if),
            (refused, "", refused),
        )
    ]
    marks = {
        dispatch: Mark(plumbing=True, ways=[""] * (len(ways) + 1)),
        told: Mark(plumbing=True),
        refused: Mark(plumbing=True, caller=caller),
        **{
            id: _mark(tool, caller)._replace(
                in_order=True,
                about=about,
                asks=asks,
                caller_limit=agent.call_limit,
            )
            if tool.given is not None
            else Mark(in_order=True)
            for tool, id in tools
        },
    }
    may_be_gone = any(tool.only_if for tool, _ in tools)
    why, answered = "call.refused", f"call_answer(call, null, null, '', '{NONE}')"
    if may_be_gone:
        why = f"default({why}, {NOT_THERE})"
        answered = f"has(call.messages) ? {answered} : call_failure(call, error, false)"
    steps: list[Plain] = [
        {"id": dispatch, "next": {"first": [*ways, {"else": told}]}},
        *({**_step(tool, id, parallel), "next": {"to": then}} for tool, id in tools),
        {
            "id": told,
            "output": f"${{{{ call_answer(call, null, null, {_HANDED}, '{NONE}') }}}}",
            "set": _HANDS_OVER,
            "next": {"to": "end"},
        },
        {
            "id": refused,
            "fail": {"type": "Refused", "message": f"${{{{ {why} }}}}"},
            "on_error": [{"output": f"${{{{ {answered} }}}}"}],
            "next": {"to": "end"},
        },
    ]
    return [*steps, *hooks], marks | hook_marks, f"${{{{ {answer} }}}}"


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


def _step(tool: ToolStep, id: str, parallel: bool) -> Plain:
    foreign = tool.adapter is None and not tool.waits and tool.foreign
    kind = ADAPTED if tool.adapter is not None else OTHERS if foreign else FLOW
    hands_over = bool(tool.adapter and tool.adapter.get("agents"))
    approval = "null" if tool.adapter is None else "approval"
    handed = _HANDED if hands_over else "''"
    # Calls that can run in parallel share the lock. Any other call waits for all calls before it,
    # including their questions, and blocks the calls after it.
    beside = tool.waits or (tool.parallel and parallel)
    lock: dict[str, Plain] = {"key": "calls", "scope": "run", "shared": beside}
    failed = f"${{{{ call_failure(call, error, {json.dumps(foreign)}) }}}}"
    handlers: list[Plain] = [{"output": failed}]
    if tool.served is not None:
        changed = {"type": ["ToolChanged"], "set": {"changed": 1}, "output": failed}
        handlers.insert(0, changed)
    if tool.waits:
        lock["hold"] = True
    else:
        handlers.insert(0, spent(failed))
    return {
        "id": id,
        **tool.action,
        **({} if tool.given is None else {"with": tool.given}),
        "lock": lock,
        "output": f"${{{{ call_answer(call, {tool.said}, {approval}, {handed}, '{kind}') }}}}",
        **({"set": _HANDS_OVER if hands_over else tool.sets} if hands_over or tool.sets else {}),
        "on_error": handlers,
    }

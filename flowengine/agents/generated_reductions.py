"""The steps of a generated flow that shorten a conversation which no longer fits its model.

    AGENT ──ContextWindowExceeded──► AGENT.reduce ──► AGENT
                                                  └─► AGENT.reduce.TOOL, which summarizes ──► AGENT

A reduction moves the mark at which requests begin. It happens at most once per turn and
model. If the request still does not fit, the next fallback model is called, or the agent fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowengine.agents.agent_specs import AgentSpec, HandoffFilter, Reducer
from flowengine.agents.context_window import SUMMARY
from flowengine.agents.tool_steps import ToolStep
from flowengine.sdk import Plain
from flowengine.sdk.steps.generated_flows import Mark

STATE: Mapping[str, Plain] = {
    "mark": {"type": "integer", "default": 0},
    "window": {"type": "object", "default": {}},
    "earlier_replies": {"type": "integer", "default": 0},
    "summary": {"type": "string", "default": ""},
    "asked": {"type": "integer", "default": -1},
    "full": {"type": "object", "default": {}},
    "reduced": {"type": "string", "default": ""},
}
"""`mark`: where requests begin. `window`: what else they show, as `context_window.window` reads it.
`earlier_replies` and `summary`: the number of replies before the
mark, and their summary. `asked`: the place of the user's newest message. `full`: the size of the
request that was too long. `reduced`: the turn and model of the last reduction."""
READ = ("messages", "mark", "window", "summary", "asked", "full", "offer", "model_at")
"""State that a reduction reads."""
CLEAR, SUMMARIZE, HANDOFF = "clear", "summarize", "handoff"
REDUCTIONS = ("drop", SUMMARIZE)
"""Reductions that need no tool."""
UNDONE = {
    "mark": "${{ state.full.from }}", "earlier_replies": "${{ state.full.replies }}", "reduced": "",
    "window": "${{ state.full.window }}",
}  # fmt: skip
"""State after the tool of a reduction failed: nothing is left out without a summary."""
_SET: Mapping[str, Plain] = {
    "mark": "${{ output.mark }}",
    "earlier_replies": "${{ output.replies }}",
    "full": "${{ {'from': state.mark, 'to': output.mark, 'replies': state.earlier_replies, "
    "'window': state.window} }}",
    "window": "${{ output.window }}",
    "last": {},
}
_TURN = "string(state.turns) + '/' + string(state.model_at)"


def handoff_ids(agent: str, to: str, filter: HandoffFilter) -> list[str]:
    """Return the ids of the steps between two agents."""
    id = f"{agent}.handoff.{to}"
    return [id] if filter.tool is None else [id, f"{id}.{filter.tool.name}"]


def handoff_steps(
    agent: str, to: str, filter: HandoffFilter, begin: str, of_tool: Sequence[Plain]
) -> tuple[list[Plain], dict[str, Mark]]:
    """Return the steps between two agents, and their marks.

    Args:
        agent: The agent that hands over.
        to: The other agent.
        filter: The part of the conversation that it sees.
        begin: Its first step.
        of_tool: Error handlers of the tool that summarizes.
    """
    id, *others = handoff_ids(agent, to, filter)
    about: Plain = {"name": to, "rule": HANDOFF, "sees": filter.sees, "room": SUMMARY, "clear": 0}
    step: dict[str, Plain] = {
        "id": id,
        "join": {"need": "each"},
        "agent_reduction": {"agent": about},
        "effect": "idempotent",
        "set": {**_SET, "summary": "${{ default(output.summary, state.summary) }}"},
        "next": {"to": others[0] if others else begin},
    }
    marks = {id: Mark(told=True, says=f"hands over to {to}")}
    if filter.tool is None:
        return [step], marks
    marks[others[0]] = _tool_mark(filter.tool, SUMMARY, agent)
    return [step, _tool(others[0], begin, filter.tool, filter.arguments, of_tool)], marks


def handler(agent: str) -> dict[str, Plain]:
    """Return the handler of a conversation that is too long for an agent."""
    return {
        "type": ["ContextWindowExceeded"],
        "when": f"${{{{ state.reduced != {_TURN} }}}}",
        "set": {"full": "${{ error.data }}"},
        "next": _id(agent),
    }


def steps(
    agent: AgentSpec, handlers: Sequence[Plain], of_tool: Sequence[Plain]
) -> tuple[list[Plain], dict[str, Mark]]:
    """Return the steps of a reduction, and their marks.

    Args:
        agent: The agent whose conversation is reduced, which has a `context`.
        handlers: Error handlers of the model call.
        of_tool: Error handlers of the tool that summarizes.
    """
    reducer, name = agent.context, agent.name
    assert reducer is not None
    id, *others = ids(name, reducer)
    to = others[0] if others else name
    rule = others[0] if reducer.tool else SUMMARIZE if reducer.summarizes else "drop"
    about: dict[str, Plain] = {
        "name": name, "rule": rule, "room": reducer.room, "clear": reducer.clear
    }  # fmt: skip
    asks: dict[str, Plain] = {"agent": about}
    step: dict[str, Plain] = {
        "id": id,
        "join": {"need": "each"},
        "agent_reduction": asks,
        "effect": "idempotent",
        "on_error": [*handlers],
        "set": {**_SET, "reduced": f"${{{{ {_TURN} }}}}"},
        "next": {"to": to},
    }
    if reducer.summarizes:
        about["models"] = agent.models
        asks["settings"] = dict(agent.settings)
        step["retry"] = dict(agent.retry)
        step["set"] |= {"summary": "${{ default(output.summary, state.summary) }}"}
    on_crash = agent.on_crash if reducer.summarizes else ""
    marks = {id: Mark(told=True, says="reduces the conversation", on_crash=on_crash)}
    if reducer.tool is None:
        return [step], marks
    if reducer.clear:
        nothing: Plain = {"when": "${{ output.left_out == 0 }}", "to": name}
        step["next"] = {"first": [nothing, {"else": to}]}
    marks[to] = _tool_mark(reducer.tool, reducer.room, name)
    return [step, _tool(to, name, reducer.tool, reducer.arguments, of_tool)], marks


def _tool_mark(tool: ToolStep, room: int, agent: str) -> Mark:
    adapter = None if tool.adapter is None else {**tool.adapter, "limit": room}
    return Mark(adapter=adapter, tool=tool.name, caller=agent)


def _tool(
    id: str,
    then: str,
    tool: ToolStep,
    arguments: Sequence[str],
    handlers: Sequence[Plain],
) -> Plain:
    text = "type(result) == string ? result : json(result)"
    if tool.adapter is not None:
        text = f"type(result) == map && has(result.envelope) ? result.envelope.content : {text}"
    part = "range(state.full.to - state.full.from).map(i, state.messages[state.full.from + i])"
    given = {"messages": f"${{{{ {part} }}}}", "summary": "${{ state.summary }}"}
    return {
        "id": id,
        "join": {"need": "each"},
        **tool.action,
        "with": {name: given[name] for name in given if name in arguments},
        "output": f"${{{{ {text} }}}}",
        "set": {"summary": "${{ output }}"},
        "on_error": [*handlers],
        "next": {"to": then},
    }


def ids(agent: str, reducer: Reducer) -> list[str]:
    """Return the ids of the steps of a reduction."""
    id = _id(agent)
    return [id] if reducer.tool is None else [id, f"{id}.{reducer.tool.name}"]


def _id(agent: str) -> str:
    return f"{agent}.reduce"

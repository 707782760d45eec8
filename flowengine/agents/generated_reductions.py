"""The steps of a generated flow that shorten a conversation which no longer fits its model.

    AGENT ──ContextWindowExceeded──► AGENT.reduce ──► AGENT
                                                  └─► AGENT.reduce.TOOL, which summarizes ──► AGENT

A reduction moves the mark from which on requests hold the conversation. It is made once for a turn:
if the request then still does not fit, the next model is asked, or the agent fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowengine.agents.context_window import SUMMARY
from flowengine.agents.tool_steps import ToolStep
from flowengine.sdk import Plain
from flowengine.sdk.generated_flows import Mark

STATE: Mapping[str, Plain] = {
    "mark": {"type": "integer", "default": 0},
    "earlier_replies": {"type": "integer", "default": 0},
    "summary": {"type": "string", "default": ""},
    "asked": {"type": "integer", "default": -1},
    "full": {"type": "object", "default": {}},
    "reduced": {"type": "string", "default": ""},
}
"""Where requests begin, how many replies were before, and what is said of them; the place of the
user's newest message; the tokens of a request that was too long; for which turn of which model the
last reduction was."""
READ = ("messages", "mark", "summary", "asked", "full", "offer", "model_at")
"""What a reduction sees."""
REDUCTIONS = ("drop", "summarize")
"""What is done about a long conversation without a tool."""
UNDONE = {
    "mark": "${{ state.full.from }}", "earlier_replies": "${{ state.full.replies }}", "reduced": "",
}  # fmt: skip
"""What a reduction leaves whose tool failed: nothing is left out without a summary."""
_TURN = "string(state.turns) + '/' + string(state.model_at)"


@dataclass(frozen=True)
class Reducer:
    """What is done about a conversation that has outgrown its model."""

    max_tokens: int | None = None
    """That a request may have; None: as many as fit the model."""
    summarizes: bool = False
    """Whether the model summarizes what is left out."""
    tool: ToolStep | None = None
    """The tool that does so instead."""
    arguments: Sequence[str] = ()
    """Of the tool."""

    @property
    def room(self) -> int:
        """Characters that a summary may have."""
        if not self.summarizes and self.tool is None:
            return 0
        return SUMMARY if self.max_tokens is None else min(SUMMARY, self.max_tokens)


def handler(agent: str) -> dict[str, Plain]:
    """Return what happens when a conversation is too long for an agent."""
    return {
        "type": ["ContextWindowExceeded"],
        "when": f"${{{{ state.reduced != {_TURN} }}}}",
        "set": {"full": "${{ error.data }}"},
        "next": _id(agent),
    }


def steps(
    agent: str,
    reducer: Reducer,
    settings: Mapping[str, Plain],
    retry: Mapping[str, Plain],
    handlers: Sequence[Plain],
    of_tool: Sequence[Plain],
) -> tuple[list[Plain], dict[str, Mark]]:
    """Return the steps of a reduction, and their marks.

    Args:
        agent: Whose conversation it is.
        reducer: What is done.
        settings: Of its model.
        retry: Of one call of its model.
        handlers: Of what can go wrong with a model.
        of_tool: Of what can go wrong with a tool that summarizes.
    """
    id, *others = ids(agent, reducer)
    to = others[0] if others else agent
    about: Plain = {"name": agent, "summarizes": reducer.summarizes, "room": reducer.room}
    asks: dict[str, Plain] = {"agent": about}
    step: dict[str, Plain] = {
        "id": id,
        "join": {"need": "each"},
        "agent_reduction": asks,
        "effect": "idempotent",
        "on_error": [*handlers],
        "set": {
            "mark": "${{ output.mark }}",
            "earlier_replies": "${{ output.replies }}",
            "full": "${{ {'from': state.mark, 'to': output.mark, "
            "'replies': state.earlier_replies} }}",
            "reduced": f"${{{{ {_TURN} }}}}",
            "last": {},
        },
        "next": {"to": to},
    }
    if reducer.summarizes:
        asks["settings"] = dict(settings)
        step["retry"] = dict(retry)
        step["set"] |= {"summary": "${{ output.summary }}"}
    marks = {id: Mark(told=True, says="reduces the conversation")}
    if reducer.tool is None:
        return [step], marks
    adapter = reducer.tool.adapter
    if adapter is not None:
        adapter = {**adapter, "limit": reducer.room}
    marks[to] = Mark(adapter=adapter, tool=reducer.tool.name, caller=agent)
    return [step, _tool(to, agent, reducer.tool, reducer.arguments, of_tool)], marks


def _tool(
    id: str,
    agent: str,
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
        "next": {"to": agent},
    }


def ids(agent: str, reducer: Reducer) -> list[str]:
    """Return the ids of the steps of a reduction."""
    id = _id(agent)
    return [id] if reducer.tool is None else [id, f"{id}.{reducer.tool.name}"]


def _id(agent: str) -> str:
    return f"{agent}.reduce"

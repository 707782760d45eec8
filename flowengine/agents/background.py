"""Agents that run in the background, as the agent that has started them sees and controls them.

A started agent is a separate execution. Its end arrives as a signal to the state of the flow. The
model receives each end once, before a turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flowengine.agents.agent_specs import AgentSpec
from flowengine.agents.agent_state import STEER, AgentState
from flowengine.agents.call_answers import ERROR, as_text, marked_data
from flowengine.agents.models.port import Message
from flowengine.agents.tool_steps import ToolStep
from flowengine.kernel.commands import CANCEL
from flowengine.sdk import Plain
from flowengine.sdk.tools.schemas import record

WAIT, LIST, MESSAGE, STOP = "wait_for_agents", "list_agents", "message_agent", "cancel_agent"
TOOLS = (WAIT, LIST, MESSAGE, STOP)
"""Tools of an agent that has tools in the background."""
_AT_ONCE = "It runs in the background: a call returns its id at once, and its answer follows later."
_NOT_THERE = "no agent with this id runs in the background"
_IDS: Plain = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Their ids. Default: all that run.",
}
_ENDED = "state.ended.map(e, e.id)"
_OF = "(size(default(call.args.ids, [])) == 0 || s.id in call.args.ids)"
_ALL_ENDED = "size(state.ended) >= size(state.started) || size(state.steered) > state.agent.heard"
AWAITED = f"${{{{ {_ALL_ENDED} || size(state.queued) > state.agent.followed }}}}"
"""The condition that an answer waits for."""


def equipped(agent: AgentSpec) -> AgentSpec:
    """Return an agent with its background tools, and those that control the started calls."""
    if not any(tool.background for tool in agent.tools):
        return agent
    own = [_started(tool) if tool.background else tool for tool in agent.tools]
    return replace(agent, tools=[*own, *_controls()])


def _started(tool: ToolStep) -> ToolStep:
    """Return a tool in the background: its call starts an execution, and answers with its id."""
    about = f"{tool.description}\n\n{_AT_ONCE}".strip()
    return replace(tool, description=about, parallel=True, foreign=False)


def _controls() -> list[ToolStep]:
    """Return the tools with which an agent controls those that it has started."""
    id: Plain = {"type": "string", "description": "Its id."}
    ended = f"state.started.filter(s, {_OF}).all(s, s.id in {_ENDED})"

    def sends(signal: str, data: str) -> dict[str, Plain]:
        return {"emit": [{"signal": signal, "to": "${{ call.args.id }}", "data": data}]}

    return [
        _tool(
            WAIT,
            "Waits until agents in the background have ended. Their answers follow.",
            {"ids": _IDS},
            {"wait": {"when": f"${{{{ {_ALL_ENDED} || {ended} }}}}"}},
        ),
        _tool(
            LIST,
            "Lists the agents in the background that you have started, their arguments, and how "
            "they ended.",
            {},
            {},
        ),
        _tool(
            MESSAGE,
            "Sends a message to an agent in the background, which reads it before its next turn.",
            {"id": id, "message": {"type": "string"}},
            sends(STEER, "${{ call.args.message }}"),
        ),
        _tool(
            STOP,
            "Cancels an agent in the background.",
            {"id": id},
            sends(CANCEL, "the agent that started it cancelled it"),
        ),
    ]


def _tool(
    name: str, about: str, args: Mapping[str, Plain], action: Mapping[str, Plain]
) -> ToolStep:
    parameters = record(args, [name for name in args if name != "ids"])
    return ToolStep(name, about, parameters, action, waits=True, given=None)


def refusal(s: AgentState, call: Mapping[str, Any]) -> str | None:
    """Return why a call that is about an agent in the background is refused, or None."""
    if call.get("name") not in (MESSAGE, STOP):
        return None
    id = call["args"]["id"]
    started = any(one["id"] == id for one in s.all_started)
    return None if started and id not in _ended(s) else _NOT_THERE


def said(s: AgentState, call: Mapping[str, Any], error: Mapping[str, Any] | None) -> str:
    """Return the answer to a call of one of the controls, after it was made.

    Args:
        s: The state.
        call: Its `name` and `args`.
        error: The error of its step.
    """
    if error is not None:
        return f"{ERROR}{error['type']}: {error['message']}"
    ended, started = _ended(s), s.all_started
    if call["name"] == LIST:
        return as_text([_listed(one, ended) for one in started])
    if call["name"] == WAIT:
        ids = call["args"].get("ids") or [one["id"] for one in started]
        left = [one["id"] for one in started if one["id"] in ids and one["id"] not in ended]
        return f"They still run: {', '.join(left)}" if left else "None of them runs any more."
    return "It was sent." if call["name"] == MESSAGE else "It is being cancelled."


def _listed(one: Mapping[str, Any], ended: Mapping[str, Any]) -> dict[str, Plain]:
    status = ended[one["id"]]["outcome"] if one["id"] in ended else "running"
    about = {"id": one["id"], "tool": one["tool"], "args": one.get("args", {})}
    return {**about, "status": status}


def _ended(s: AgentState) -> dict[str, Any]:
    return {one["id"]: one for one in s.flow["ended"]}


def news(s: AgentState) -> list[Message]:
    """Return the message about the agents that have ended since the last one, if there are any."""
    ends = s.flow["ended"][s["told"] :]
    s["told"] += len(ends)
    texts = []
    for end in ends:
        why = f", {end['reason']}" if end["reason"] else ""
        head = f"[The agent {end['tool']} in the background, {end['id']}, has ended: "
        output = end["output"]
        shown = "" if output is None else "\n" + marked_data(output, end["tool"])
        texts.append(f"{head}{end['outcome']}{why}]{shown}")
    return [{"role": "user", "content": "\n\n".join(texts)}] if texts else []

"""The steps of a generated flow for agents that start others in the background.

A started agent is a separate execution. Its end arrives as a signal to the state of the flow. A
step before each turn adds a message about the new ends to the conversation. No other step does, so
the model reads each once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from flowengine.agents.agent_specs import AgentSpec
from flowengine.agents.generated_hooks import SPENT
from flowengine.agents.generated_steering import STATE as STEERING
from flowengine.agents.generated_steering import STEER, STEERED
from flowengine.agents.tool_steps import ToolStep
from flowengine.kernel.commands import CANCEL, ENDED
from flowengine.sdk import Plain
from flowengine.sdk.tools.hook_results import NO_END

_LIST: Mapping[str, Plain] = {
    "type": "array",
    "items": {"type": "object"},
    "default": [],
    "reducer": "append",
}
SIGNALS: Mapping[str, Plain] = {
    ENDED: {"data": {"type": "object"}},
    CANCEL: {"data": {"type": "string"}},
}
STATE: Mapping[str, Plain] = {
    "started": _LIST,
    "ended": {**_LIST, "signal": ENDED},
    "told": STEERING["heard"],
}
"""`started` and `ended` have the agents in the background, `told` the number of ends that the model
has heard of."""
IDS = ("_told", "_awaited")
"""Preferred ids of the steps."""
WAIT, LIST, MESSAGE, STOP = "wait_for_agents", "list_agents", "message_agent", "cancel_agent"
TOOLS = (WAIT, LIST, MESSAGE, STOP)
"""Tools of an agent that has tools in the background."""
_AT_ONCE = "It runs in the background: a call returns its id at once, and its answer follows later."
UNTOLD = "size(state.ended) > state.told"
_ENDED = "state.ended.map(e, e.id)"
_RUNS = f"state.started.exists(s, s.id == call.args.id) && !(call.args.id in {_ENDED})"
_ARGS = "'args': 'args' in s ? s.args : {}"
_IDS: Plain = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Their ids. Default: all that run.",
}
_SAID = (
    "range(size(state.ended) - state.told).map(i, state.ended[state.told + i]).map(e, "
    "'[The agent ' + e.tool + ' in the background, ' + e.id + ', has ended: ' + e.outcome"
    " + (e.reason == '' ? '' : ', ' + e.reason) + ']'"
    " + (e.output == null ? '' : '\\n' + marked(e.output, e.tool))).join('\\n\\n')"
)


def equipped(agent: AgentSpec) -> AgentSpec:
    """Return an agent with its background tools, and those that control the started calls."""
    if not any(tool.background for tool in agent.tools):
        return agent
    own = [_started(tool) if tool.background else tool for tool in agent.tools]
    return replace(agent, tools=[*own, *_controls()])


def _started(tool: ToolStep) -> ToolStep:
    """Return a tool in the background: its call starts an execution, and answers with its id."""
    name = json.dumps(tool.name)
    about = f"{{'id': output.value.execution_id, 'tool': {name}, 'args': call.args}}"
    return replace(
        tool,
        description=f"{tool.description}\n\n{_AT_ONCE}".strip(),
        parallel=True,
        foreign=False,
        sets={"started": f"${{{{ [{about}] }}}}"},
    )


def _controls() -> list[ToolStep]:
    """Return the tools with which an agent controls those that it has started."""
    id: Plain = {"type": "string", "description": "Its id."}
    of = "(size(default(call.args.ids, [])) == 0 || {}.id in call.args.ids)"
    ended = f"state.started.filter(s, {of.format('s')}).all(s, s.id in {_ENDED})"
    all_ended = f"size(state.ended) >= size(state.started) || {STEERED} || {ended}"
    left = f"state.started.filter(s, {of.format('s')} && !(s.id in {_ENDED})).map(s, s.id)"
    return [
        _tool(
            WAIT,
            "Waits until agents in the background have ended. Their answers follow.",
            {"ids": _IDS},
            {"wait": {"when": f"${{{{ {all_ended} }}}}"}},
            f"size({left}) == 0 ? 'None of them runs any more.'"
            f" : 'They still run: ' + {left}.join(', ')",
        ),
        _tool(
            LIST,
            "Lists the agents in the background that you have started, their arguments, and how "
            "they ended.",
            {},
            {},
            f"state.started.map(s, {{'id': s.id, 'tool': s.tool, {_ARGS}, 'status': "
            f"s.id in {_ENDED} ? state.ended.filter(e, e.id == s.id)[0].outcome : 'running'}})",
        ),
        _tool(
            MESSAGE,
            "Sends a message to an agent in the background, which reads it before its next turn.",
            {"id": id, "message": {"type": "string"}},
            {
                "emit": [
                    {
                        "signal": STEER,
                        "to": "${{ call.args.id }}",
                        "data": "${{ call.args.message }}",
                    }
                ]
            },
            "'It was sent.'",
        ),
        _tool(
            STOP,
            "Cancels an agent in the background.",
            {"id": id},
            {
                "emit": [
                    {
                        "signal": CANCEL,
                        "to": "${{ call.args.id }}",
                        "data": "the agent that started it cancelled it",
                    }
                ]
            },
            "'It is being cancelled.'",
        ),
    ]


def _tool(
    name: str, about: str, args: Mapping[str, Plain], action: Mapping[str, Plain], said: str
) -> ToolStep:
    required = [name for name in args if name != "ids"]
    parameters: Plain = {
        "type": "object",
        "properties": {**args},
        "required": required,
        "additionalProperties": False,
    }
    only = f" && {_RUNS}" if "id" in args else ""
    return ToolStep(
        name, about, parameters, action, waits=True, given=None, said=said, only_if=only
    )


def steps(ids: tuple[str, str], enter: Sequence[Plain], heard: str) -> Iterable[Plain]:
    """Yield the step that adds the ends, and the one of an agent whose answer has to wait.

    Args:
        ids: The ids of the steps.
        enter: The edges to the turn of the active agent.
        heard: Id of the step that takes messages of users.
    """
    told, awaited = ids
    yield {
        "id": told,
        "join": {"need": "each"},
        "set": {
            "messages": f"${{{{ {UNTOLD} ? [{{'role': 'user', 'content': {_SAID}}}] : [] }}}}",
            "told": "${{ size(state.ended) - state.told }}",
        },
        "next": {"first": [*enter]},
    }
    spoken = f"{STEERED} || size(state.queued) > state.followed"
    yield {
        "id": awaited,
        "join": {"need": "each"},
        "wait": {"when": f"${{{{ size(state.ended) >= size(state.started) || {spoken} }}}}"},
        "set": {"end": NO_END, "text": "", "idle": 0},
        "next": {"first": [{"when": f"${{{{ {spoken} }}}}", "to": heard}, {"else": told}]},
    }


def before_end(awaited: str, over: str) -> Plain:
    """Return the edge from an answer to the step that waits for what runs in the background.

    Args:
        awaited: The id of that step.
        over: The condition that no turn is left.
    """
    goes_on = "size(state.started) > state.told && state.end.outcome == 'resolved'"
    return {"when": f"${{{{ {goes_on} && !({over}) && !({SPENT}) }}}}", "to": awaited}

"""Agents of a flow file: from their declarations to the flow that runs them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.agents.endings import CASE_TOOLS
from flowengine.agents.generated_flow import RETRY, TURNS, AgentSpec, AgentTool, agent_flow
from flowengine.agents.opening import VARIABLE
from flowengine.agents.turns import HANDOFF
from flowengine.sdk import Plain
from flowengine.sdk.generated_flows import (
    Declarations,
    Declared,
    DeclaredTool,
    GeneratedFlow,
    Given,
    Loc,
)

CHOICES = ("auto", "none", "required")


def generate(name: str, declarations: Declarations, *, chat: bool = False) -> GeneratedFlow | None:
    """Return the flow that runs an agent; None if there is no such agent, which was reported.

    Args:
        name: `agent` or `alias.agent`.
        declarations: Of the file that names it.
        chat: Whether a person is asked after each answer.
    """
    first = declarations.find("agents", name, ())
    if first is None:
        return None
    closure = _closure(first)
    agents = [_spec(called, found, closure) for called, found in closure.items()]
    made = agent_flow(agents, chat=chat)
    texts = {
        called: Given(_instructions(one), (*one.loc, "instructions"), one.home)
        for called, one in closure.items()
    }
    return GeneratedFlow(
        id=f"{'chats' if chat else 'agents'}.{first.name}",
        body=made.body,
        home=first.home,
        loc=first.loc,
        given={"_instructions": texts},
        marks=made.marks,
        returns=first.content.get("returns") or {"type": "string"},
    )


def _closure(first: Declared) -> dict[str, Declared]:
    """Return an agent and all to whom the conversation may go, by their names in its file."""
    found = {first.name: first}
    waiting = [first]
    for agent in waiting:  # grows while it is walked
        for place, other in enumerate(agent.content.get("handoffs", [])):
            loc = (*agent.loc, "handoffs", place)
            known = agent.home.find("agents", other, loc)
            if known is None or other in found:
                continue
            if known.home != first.home:
                message = f"{other!r} is in another file: handing over to it is not supported yet"
                hint = "call it: 'tools: {NAME: {agent: ALIAS.NAME}}'"
                agent.home.refuse("E502", message, loc, hint)
                continue
            found[other] = known
            waiting.append(known)
    return found


def _spec(name: str, agent: Declared, closure: Mapping[str, Declared]) -> AgentSpec:
    said = agent.content
    defaults = agent.home.defaults
    model = said.get("model") or defaults.get("model")
    if model is None and not os.environ.get(VARIABLE):
        hint = f"say 'model' here, 'defaults.model', the variable {VARIABLE}, or --model"
        agent.home.refuse("E408", f"no model is named for the agent {name!r}", agent.loc, hint)
    handoffs = [one for one in said.get("handoffs", []) if one in closure]
    tools = _tools(agent, list(closure))
    turns = said.get("max_turns", {})
    _check_choice(agent, tools, handoffs)
    return AgentSpec(
        name=name,
        description=said.get("description", ""),
        model=model,
        fallbacks=said.get("fallbacks", []),
        tools=tools,
        handoffs=handoffs,
        returns=said.get("returns"),
        max_turns=turns.get("count", TURNS),
        last=turns.get("last", "fail"),
        retry={**RETRY, **said["retry"]} if "retry" in said else RETRY,
        tool_choice=said.get("tool_choice"),
        parallel_tool_calls=said.get("parallel_tool_calls", True),
        function_calling=said.get("function_calling"),
        settings=said.get("settings", {}),
        finish=said.get("finish", "answer"),
    )


def _tools(agent: Declared, agents: Sequence[str]) -> list[AgentTool]:
    """Return the tools of an agent, each once, however many names and globs fit it."""
    found: dict[str, AgentTool] = {}
    for place, pattern in enumerate(agent.content.get("tools", [])):
        loc: Loc = (*agent.loc, "tools", place)
        for one in agent.home.tools(pattern, loc):
            _check_tool(agent, one, loc)
            found.setdefault(one.name, _tool(one, agents))
    return list(found.values())


def _tool(one: DeclaredTool, agents: Sequence[str]) -> AgentTool:
    runs_flow = "flow" in one.declaration or "agent" in one.declaration
    return AgentTool(
        name=one.name,
        description=one.description,
        parameters=one.args or {},
        action={"call": one.name},
        parallel=bool(one.declaration.get("parallel", False)),
        adapter=None if runs_flow else {"agents": list(agents)},
    )


def _check_tool(agent: Declared, tool: DeclaredTool, loc: Loc) -> None:
    """Refuse what a model must not decide."""
    if tool.server is not None:
        message = f"{tool.name!r} is of a server: agents cannot call its tools yet"
        agent.home.refuse("E502", message, loc, "declare a tool that calls it")
    if tool.by_default_on_host:
        message = f"{tool.name!r} runs commands, and a model would decide about them on the host"
        hint = "say where it runs: 'shell: {argv: …, in: NAME}', an environment; or 'in: host'"
        agent.home.refuse("E407", message, loc, hint)
    hint = "give the tool another name"
    if tool.name in CASE_TOOLS:
        agent.home.refuse("E103", f"agents are given {tool.name!r} by 'finish'", loc, hint)
    if tool.name.startswith(HANDOFF):
        agent.home.refuse("E103", f"{HANDOFF!r} is how handoffs are called", loc, hint)


def _check_choice(agent: Declared, tools: Sequence[AgentTool], handoffs: Sequence[str]) -> None:
    choice = agent.content.get("tool_choice")
    known = [*(one.name for one in tools), *(HANDOFF + one for one in handoffs)]
    if choice is not None and choice not in CHOICES and choice not in known:
        hint = f"say {', '.join(CHOICES)}, or one of {', '.join(known) or 'its tools'}"
        loc = (*agent.loc, "tool_choice")
        agent.home.refuse("E401", f"the agent has no tool {choice!r}", loc, hint)


def _instructions(agent: Declared) -> Plain:
    """Return the text of an agent's instructions, with its expressions."""
    said: Any = agent.content.get("instructions", {})
    if "file" in said:
        text = agent.home.text(said["file"], (*agent.loc, "instructions", "file"))
        return text.replace("${{", "$${{")
    return said.get("text", "")

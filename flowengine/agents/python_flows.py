"""The flow that runs agents which Python objects describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flowengine.agents.agent_spec import RETRY, AgentSpec
from flowengine.agents.agent_tool import (
    ASK,
    AgentTool,
    declared_tool,
    limited,
    question,
    tools_of_server,
)
from flowengine.agents.generated_checks import Check
from flowengine.agents.generated_flow import agent_flow
from flowengine.agents.generated_reductions import Reducer
from flowengine.agents.generated_state import ANSWER
from flowengine.agents.skill_tools import content_of, offered, skill_tools
from flowengine.agents.skills import Skill
from flowengine.sdk import Plain
from flowengine.sdk.generated_flows import Declarations, GeneratedFlow, Given
from flowengine.sdk.literal_text import plain_text

NAME = "agents"
SECRET = "secret:"
"""Before the name of an environment variable, in the spec of an environment or server."""
_RESULT: dict[str, Plain] = {
    "result": ANSWER,
    "agent": "${{ state.active }}",
    "reason": "${{ state.end.reason }}",
    "no_progress": "${{ state.end.no_progress }}",
    "messages": "${{ state.messages }}",
    "context": "${{ state.context }}",
}
"""The output of a run: what a `Response` is made from."""


def generate(configuration: Mapping[str, Any], declarations: Declarations) -> GeneratedFlow:
    """Return the flow that runs agents.

    Args:
        configuration: As `flowengine.agents.described.describe` writes it; or, for an agent that
            is a tool, the part of it that `declared` puts into the tool.
        declarations: Of the flow that runs it.
    """
    agents = configuration["agents"]
    names = {one["name"]: one["id"] for one in agents}
    specs = [_spec(one, names, configuration, declarations) for one in agents]
    executes = configuration["execute_tools"]
    asked = configuration.get("answers", False)
    args = "${{ inputs._args }}"
    if asked:
        args = "${{ merge(inputs._args, {'context_variables': inputs._context}) }}"
    made = agent_flow(specs, turn="python_agent_turn", execute_tools=executes, args=args)
    body = dict(made.body)
    if asked:
        body["inputs"] |= {"_context": {"type": "object", "default": {}}}
    else:
        body["outputs"] |= {"output": {"value": _RESULT}}
    return GeneratedFlow(
        id=f"asked.{agents[0]['id']}" if asked else NAME,
        body=body,
        home=declarations,
        given={"_instructions": Given({one["id"]: "" for one in agents}, (), declarations)},
        marks=made.marks,
        returns={},
    )


def declared(configuration: Mapping[str, Any]) -> dict[str, dict[str, Plain]]:
    """Return what the flow around has to declare: section → name → declaration."""
    agents = [*configuration["agents"]]
    for cast in configuration["asked"].values():
        agents += cast
    ready = {
        tool["id"]: plain_text(tool["declared"])
        for one in agents
        for tool in one["ready"]
        if tool["name"] != ASK  # it is a wait, which is not declared
    }
    functions: dict[str, Plain] = {}
    if configuration["execute_tools"]:
        for one in agents:
            functions |= {tool["id"]: _tool_declared(tool, configuration) for tool in _tools(one)}
    made: dict[str, dict[str, Plain]] = {
        "environments": {**configuration["environments"]},
        "tools": {**functions, **ready, **configuration["servers"]},
    }
    secrets: dict[str, Plain] = {}
    found = {section: _referring(said, secrets) for section, said in made.items()}
    for one in agents:
        _referring(one["settings"], secrets)
    return {"secrets": secrets, **found}


def _tools(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tools of an agent that its program brings, those that check included."""
    found = [*one["tools"], *(check["tool"] for check in one["checks"])]
    reduce = (one["context"] or {}).get("reduce")
    return [*found, reduce["tool"]] if isinstance(reduce, Mapping) else found


def _tool_declared(tool: Mapping[str, Any], whole: Mapping[str, Any]) -> Plain:
    """Return a tool as the flow declares it."""
    said = plain_text(tool["declared"])  # a condition is an expression
    if "asks" not in tool:
        return {
            "agent_function": {"function": tool["function"], "args": tool["parameters"]},
            **said,
        }
    asked = {
        "agents": whole["asked"][tool["asks"]],
        "max_turns": tool["max_turns"],
        "last": tool["last"],
        "execute_tools": True,
        "answers": True,
    }
    return {"python_agents": asked, **said}


def _referring(value: Any, secrets: dict[str, Plain]) -> Any:
    """Return data in which `secret:NAME` is a secret of the flow."""
    if isinstance(value, str) and value.startswith(SECRET):
        name = value.removeprefix(SECRET)
        secrets[name] = {"env": name}
        return f"${{{{ secrets.{name} }}}}"
    if isinstance(value, Mapping):
        return {key: _referring(one, secrets) for key, one in value.items()}
    return [_referring(one, secrets) for one in value] if isinstance(value, list) else value


def _spec(
    one: Mapping[str, Any],
    names: Mapping[str, str],
    whole: Mapping[str, Any],
    declarations: Declarations,
) -> AgentSpec:
    adapter: dict[str, Plain] = {"agents": dict(names)}
    skills = [_skill(skill) for skill in one["skills"]]
    place = one["runs_programs"]
    executes = whole["execute_tools"]
    extra: dict[str, Plain] = {
        "called": one["name"],
        "instructions": one["instructions"],
        "described": one["context_description"],
    }
    if skills:
        extra["skills"] = offered(skills)
    return AgentSpec(
        name=one["id"],
        description=one["description"],
        model=one["model"],
        fallbacks=one["fallbacks"],
        tools=[
            *(_tool(tool, adapter, declarations) for tool in one["tools"]),
            *(_ready(tool, one["environments"], adapter, declarations) for tool in one["ready"]),
            *(_served(server, adapter, declarations) for server in one["servers"]),
            *skill_tools(skills, None if place is None else {place: {}}, adapter),
        ],
        handoffs=one["handoffs"],
        reaches=one["reaches"],
        returns=one["returns"],
        max_turns=whole["max_turns"],
        last=whole["last"],
        retry={**RETRY, **(one["retry"] or {})},
        tool_choice=one["tool_choice"],
        parallel_tool_calls=one["parallel_tool_calls"],
        function_calling=one["function_calling"],
        settings=_referring(one["settings"], {}),
        finish=one["finish"],
        context=_reducer(one["context"], declarations) if executes else None,
        checks=[_check(check, declarations) for check in one["checks"]] if executes else [],
        repeats=one["repeats"],
        call_limit=None if one["call_limit"] is None else (one["id"], one["call_limit"]),
        extra=extra,
    )


def _reducer(said: Mapping[str, Any] | None, declarations: Declarations) -> Reducer | None:
    if said is None:
        return None
    most, reduce = said["max_tokens"], said["reduce"]
    if not isinstance(reduce, Mapping):
        return Reducer(most, summarizes=reduce == "summarize")
    tool = _tool(reduce["tool"], {"agents": {}}, declarations)
    return Reducer(most, tool=tool, arguments=reduce["arguments"])


def _check(said: Mapping[str, Any], declarations: Declarations) -> Check:
    tool = _tool(said["tool"], {"agents": {}}, declarations)
    return Check(tool, said["when"], said["tells"], said["arguments"])


def _skill(said: Mapping[str, Any]) -> Skill:
    files = {path: content_of(content) for path, content in said["files"].items()}
    return Skill(said["name"], said["description"], files)


def _tool(
    tool: Mapping[str, Any], adapter: Mapping[str, Plain], declarations: Declarations
) -> AgentTool:
    if "asks" in tool:
        return _asked(tool, declarations)
    crash = tool["on_crash"]
    return AgentTool(
        name=tool["name"],
        description=tool["description"],
        parameters=tool["parameters"],
        action={"call": tool["id"], **({} if crash is None else {"on_crash": crash})},
        parallel=tool["parallel"],
        adapter=limited(adapter, tool["declared"]),
    )


def _asked(tool: Mapping[str, Any], declarations: Declarations) -> AgentTool:
    """Return an agent that is a tool; it gets the context variables, which no model sees."""
    [found] = declarations.tools(tool["id"], (), {})
    return AgentTool(
        name=tool["name"],
        description=tool["description"],
        parameters=found.args or {},
        action={"call": tool["id"]},
        inputs={"_context": "${{ state.context }}"},
    )


def _ready(
    tool: Mapping[str, Any],
    environments: Mapping[str, str],
    adapter: Mapping[str, Plain],
    declarations: Declarations,
) -> AgentTool:
    if tool["name"] == ASK:
        [found] = declarations.tools(ASK, (), {})
        return question(found)
    uses: dict[str, dict[str, Plain]] = {name: {one: {}} for name, one in environments.items()}
    [found] = declarations.tools(tool["id"], (), uses)
    return replace(declared_tool(found, adapter), name=tool["name"])


def _served(server: str, adapter: Mapping[str, Plain], declarations: Declarations) -> AgentTool:
    return tools_of_server(declarations.tools(f"{server}.*", (), {}), server, adapter)

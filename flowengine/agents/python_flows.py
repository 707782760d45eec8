"""The flow that runs agents which Python objects describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flowengine.agents.agent_tool import AgentTool, declared_tool, limited, tools_of_server
from flowengine.agents.generated_flow import ANSWER, RETRY, AgentSpec, agent_flow
from flowengine.agents.generated_reductions import Reducer
from flowengine.sdk import Plain
from flowengine.sdk.generated_flows import Declarations, GeneratedFlow, Given

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
        configuration: As `flowengine.agents.described.describe` writes it.
        declarations: Of the flow that runs it.
    """
    agents = configuration["agents"]
    names = {one["name"]: one["id"] for one in agents}
    specs = [_spec(one, names, configuration, declarations) for one in agents]
    made = agent_flow(specs, turn="python_agent_turn", execute_tools=configuration["execute_tools"])
    return GeneratedFlow(
        id=NAME,
        body={**made.body, "outputs": {**made.body["outputs"], "output": {"value": _RESULT}}},
        home=declarations,
        given={"_instructions": Given({one["id"]: "" for one in agents}, (), declarations)},
        marks=made.marks,
        returns={},
    )


def declared(configuration: Mapping[str, Any]) -> dict[str, dict[str, Plain]]:
    """Return what the flow around has to declare: section → name → declaration."""
    ready = {
        tool["id"]: tool["declared"] for agent in configuration["agents"] for tool in agent["ready"]
    }
    made: dict[str, dict[str, Plain]] = {
        "environments": {**configuration["environments"]},
        "tools": {**_functions(configuration), **ready, **configuration["servers"]},
    }
    secrets: dict[str, Plain] = {}
    found = {section: _referring(said, secrets) for section, said in made.items()}
    return {"secrets": secrets, **found}


def _referring(value: Any, secrets: dict[str, Plain]) -> Any:
    """Return data in which `secret:NAME` is a secret of the flow."""
    if isinstance(value, str) and value.startswith(SECRET):
        name = value.removeprefix(SECRET)
        secrets[name] = {"env": name}
        return f"${{{{ secrets.{name} }}}}"
    if isinstance(value, Mapping):
        return {key: _referring(one, secrets) for key, one in value.items()}
    return [_referring(one, secrets) for one in value] if isinstance(value, list) else value


def _functions(configuration: Mapping[str, Any]) -> dict[str, Plain]:
    if not configuration["execute_tools"]:
        return {}
    return {
        tool["id"]: {
            "agent_function": {"function": tool["function"], "args": tool["parameters"]},
            **plain_text(tool["declared"]),  # a condition is an expression
        }
        for agent in configuration["agents"]
        for tool in agent["tools"]
    }


def _spec(
    one: Mapping[str, Any],
    names: Mapping[str, str],
    whole: Mapping[str, Any],
    declarations: Declarations,
) -> AgentSpec:
    adapter: dict[str, Plain] = {"agents": dict(names)}
    ready = [
        replace(declared_tool(found, adapter), name=tool["name"])
        for tool in one["ready"]
        for found in declarations.tools(tool["id"], (), {})
    ]
    served = [
        tools_of_server(declarations.tools(f"{server}.*", (), {}), server, adapter)
        for server in one["servers"]
    ]
    return AgentSpec(
        name=one["id"],
        description=one["description"],
        model=one["model"],
        fallbacks=one["fallbacks"],
        tools=[*(_tool(tool, names) for tool in one["tools"]), *ready, *served],
        reaches=one["reaches"],
        returns=one["returns"],
        max_turns=whole["max_turns"],
        retry={**RETRY, **(one["retry"] or {})},
        tool_choice=one["tool_choice"],
        parallel_tool_calls=one["parallel_tool_calls"],
        function_calling=one["function_calling"],
        settings=one["settings"],
        finish=one["finish"],
        context=_reducer(one["context"]),
        repeats=one["repeats"],
        extra={
            "called": one["name"],
            "instructions": one["instructions"],
            "described": one["context_description"],
        },
    )


def _reducer(said: Mapping[str, Any] | None) -> Reducer | None:
    if said is None:
        return None
    return Reducer(said.get("max_tokens"), summarizes=said.get("reduce") == "summarize")


def _tool(tool: Mapping[str, Any], names: Mapping[str, str]) -> AgentTool:
    return AgentTool(
        name=tool["name"],
        description=tool["description"],
        parameters=tool["parameters"],
        action={"call": tool["id"]},
        parallel=tool["parallel"],
        adapter=limited({"agents": dict(names)}, tool["declared"]),
    )


def literal_text(value: Any) -> Any:
    """Return data as a flow has it: what looks like an expression in a text is none."""
    return _replaced(value, "${{", "$${{")


def plain_text(value: Any) -> Any:
    """Undo `literal_text`, for constants: nothing evaluates them."""
    return _replaced(value, "$${{", "${{")


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {key: _replaced(one, old, new) for key, one in value.items()}
    return [_replaced(one, old, new) for one in value] if isinstance(value, list) else value

"""Agents that Python objects describe: `flowengine.Runner` runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from flowengine.sdk import CallSignature, Need, Plain, StepContext, ToolError, import_function
from flowengine.sdk.python_functions.plain_hints import INJECTED
from flowengine_nodes.agent import Agent, Turn
from flowengine_nodes.python import Python, context_variables, look_at

if TYPE_CHECKING:
    from flowengine.sdk.generated_flows import Declarations, GeneratedFlow
    from flowengine.sdk.previews import PreviewContext
    from flowengine.sdk.step_kind import AsText, Place

_OBJECT: dict[str, Plain] = {"type": "object"}


class PythonAgents(Agent):
    """Runs agents described as plain data."""

    places: ClassVar[tuple[Place, ...]] = ("generated",)
    constants: ClassVar[Collection[str]] = (
        "agents",
        "max_turns",
        "last",
        "execute_tools",
        "answers",
    )
    raises: ClassVar[Mapping[str, str]] = {
        **Agent.raises,
        "tools_not_executed": "ToolsNotExecuted",
    }

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of what `flowengine.agents.described` writes."""
        return {
            "type": "object",
            "properties": {
                "agents": {"type": "array", "items": _OBJECT},
                "max_turns": {"type": "integer"},
                "last": {"type": "string"},
                "execute_tools": {"type": "boolean"},
                "answers": {"type": "boolean"},
            },
        }

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return what agents are given: a conversation, or if one is a tool, what it is asked."""
        if configuration.get("answers"):
            return super().signature(configuration, folder)
        properties: dict[str, Plain] = {
            "messages": {"type": "array"},
            "context_variables": {"type": "object"},
        }
        return CallSignature({"type": "object", "properties": properties}, None)

    @classmethod
    def label(cls, task: Mapping[str, Plain]) -> str:
        """Return the agent that begins."""
        return str(task["agents"][0]["name"]) if task.get("agents") else ""

    @classmethod
    def generate(
        cls, configuration: Mapping[str, Plain], declarations: Declarations
    ) -> GeneratedFlow | None:
        """Return the flow that runs the agents."""
        from flowengine.agents.python_flows import generate

        return generate(configuration, declarations)

    def adapt(
        self, context: StepContext, task: Mapping[str, Plain], result: object, text: AsText
    ) -> Plain:
        """Make what a tool returned into what the model is told of it."""
        from flowengine.agents.tool_answers import envelope

        names = task["agents"]
        made = envelope(context, {**task, "agents": list(names)}, result, text)["envelope"]
        return {"envelope": {**made, "handoff": names.get(made["handoff"], "")}}


class PythonTurn(Turn):
    """Asks a model once; the agent's instructions may be a function."""

    def takes_resources(self, task: Mapping[str, Plain]) -> bool:
        """Return whether the instructions are a function."""
        return not isinstance(task["agent"]["instructions"], str)

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Ask the model, and return what follows from its reply."""
        return await super().execute(context, *await self._told(context, task, input))

    async def needs(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Mapping[str, Need]:
        """Return what asking the model may use of budgets."""
        return await super().needs(context, *await self._told(context, task, input))

    async def _told(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> tuple[Mapping[str, Plain], Mapping[str, Plain]]:
        """Return task and input with the instructions as text."""
        from flowengine.agents.agent import instructions_of
        from flowengine.sdk.literal_text import plain_text

        agent = plain_text(task["agent"])
        said = agent["instructions"]
        instructions = said if isinstance(said, str) else _function(context, said)
        variables = context_variables(context) if callable(instructions) else {}

        def text() -> str:
            return instructions_of(agent["called"], instructions, agent["described"], variables)

        told = await context.on_thread(text) if callable(instructions) else text()
        return {**task, "agent": agent}, {**input, "instructions": told}

    def rehearse(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> None:
        """Return None: instructions may be functions of a program."""
        return


class AgentFunction(Python):
    """Calls a function that a model has chosen."""

    places = ("generated",)
    constants = ("function",)

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of what the generated flow says."""
        return {"type": "object", "properties": {"function": _OBJECT, "args": _OBJECT}}

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return what the function takes, as it was described."""
        return CallSignature(configuration["args"], None)

    @classmethod
    def label(cls, task: Mapping[str, Plain]) -> str:
        """Return the function."""
        function = task.get("function") or {}
        return str(function.get("name") or function.get("live", ""))

    @classmethod
    def names(cls, task: Mapping[str, Plain]) -> list[str]:
        """Return the path of the function, which is of the kind `python` to rules."""
        label = cls.label(task)
        return [label, f"python:{label}"]

    def source(self, task: Mapping[str, Plain]) -> str | None:
        """Return the source of the function's module; None: it lives in the program alone."""
        named = task["function"]
        if "name" not in named:
            return None
        return super().source({"function": named["name"], "folder": named["folder"]})

    def preview(
        self, task: Mapping[str, Plain], args: dict[str, Plain], context: PreviewContext
    ) -> str | None:
        """Return what the function's own preview says."""
        from flowengine.sdk.previews import call_preview

        named = task["function"].get("preview")
        if named is None:
            return None
        return call_preview(_function(context, named), args)  # type: ignore[no-any-return]

    def takes_resources(self, task: Mapping[str, Plain]) -> bool:
        """Return whether the function takes the context, or objects of the program."""
        named = task["function"]
        if "name" not in named:
            return True
        found = look_at(import_function(named["name"], named["folder"]), None)
        return bool(found.context) or any(name in found.parameters for name in INJECTED)

    def quick(
        self, task: Mapping[str, Plain]
    ) -> Callable[[StepContext, Mapping[str, Plain]], Plain] | None:
        """Return None: what a model calls never runs on the engine's own thread."""
        return None

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Call the function and return what it returns."""
        call = await context.on_thread(lambda: _function(context, task["function"]))
        function = look_at(call, task.get("floats"))
        return await self.called(context, function, function.arguments(context, input))


def _function(
    context: StepContext | PreviewContext, named: Mapping[str, Plain]
) -> Callable[..., Any]:
    from flowengine.agents.live_functions import LIVE

    if "name" in named:
        return import_function(named["name"], named["folder"])
    found = context.resources.get(LIVE, {}).get(named["live"])
    if found is None:
        raise ToolError(
            f"the function {named['live']} is in the program that began this execution, and not "
            "in this one: resume it there",
            retryable=False,
        )
    return found  # type: ignore[no-any-return]

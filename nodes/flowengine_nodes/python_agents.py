"""Agents described by Python objects, which `flowengine.Runner` runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

from flowengine.agents.declared import generate
from flowengine.agents.live_functions import function_of
from flowengine.sdk import CallSignature, Plain, StepContext, import_function
from flowengine.sdk.python.plain_hints import INJECTED
from flowengine.sdk.python.user_code import call_preview
from flowengine.sdk.steps.generated_flows import Declarations, GeneratedFlow
from flowengine.sdk.steps.previews import PreviewContext
from flowengine.sdk.steps.step_kind import KindPlace
from flowengine_nodes.agent import Agent
from flowengine_nodes.python import Python, look_at


class PythonAgents(Agent):
    """Runs an agent, and returns the whole conversation."""

    places: ClassVar[tuple[KindPlace, ...]] = ("generated",)
    constants: ClassVar[Collection[str]] = (*Agent.constants, "execute_tools")
    raises: ClassVar[Mapping[str, str]] = {
        **Agent.raises,
        "tools_not_executed": "ToolsNotExecuted",
    }

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration: any map of `flowengine.runner.responses`."""
        return {"type": "object"}

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return the arguments of the agent: a conversation."""
        properties: dict[str, Plain] = {
            "messages": {"type": "array"},
            "context_variables": {"type": "object"},
        }
        return CallSignature({"type": "object", "properties": properties}, None)

    @classmethod
    def generate(
        cls, configuration: Mapping[str, Plain], declarations: Declarations
    ) -> GeneratedFlow | None:
        """Return the flow that runs the agent."""
        return generate(
            configuration["name"],
            declarations,
            chat=configuration.get("chat") is True,
            max_turns=configuration["max_turns"],
            execute_tools=configuration["execute_tools"],
            whole=True,
        )


class AgentFunction(Python):
    """Calls a function that a model has chosen."""

    places = ("generated",)
    constants = ("function",)
    object_remedy: ClassVar[str] = (
        "list it, so that the function receives it: Agent(environments=['{}']). Or give it another "
        "name"
    )

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration: any map of the generated flow."""
        return {"type": "object"}

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return nothing, because the function's arguments are declared with the tool."""
        return CallSignature(None, None)

    @classmethod
    def label(cls, task: Mapping[str, Plain]) -> str:
        function = task.get("function") or {}
        return str(function.get("name") or function.get("live", ""))

    @classmethod
    def names(cls, task: Mapping[str, Plain]) -> list[str]:
        """Return the path of the function, which has the kind `python` for rules."""
        label = cls.label(task)
        return [label, f"python:{label}"]

    def source(self, task: Mapping[str, Plain]) -> str | None:
        """Return the source of the function's module, or None if it exists only in the program."""
        named = task["function"]
        if "name" not in named:
            return None
        return super().source({"function": named["name"], "folder": named["folder"]})

    @classmethod
    def has_preview(cls, task: Mapping[str, Plain]) -> bool:
        return "preview" in task["function"]

    def preview(
        self, task: Mapping[str, Plain], args: dict[str, Plain], context: PreviewContext
    ) -> str | None:
        """Return the result of the function's own preview."""
        return call_preview(function_of(context, task["function"]["preview"]), args)  # type: ignore[no-any-return]

    def takes_resources(self, task: Mapping[str, Plain]) -> bool:
        """Return whether the function takes the context, or objects of the program."""
        named = task["function"]
        if "name" not in named:
            return True
        function = look_at(import_function(named["name"], named["folder"]))
        return bool(function.context) or any(name in function.parameters for name in INJECTED)

    def quick(
        self, task: Mapping[str, Plain]
    ) -> Callable[[StepContext, Mapping[str, Plain]], Plain] | None:
        """Return None: functions called by a model never run on the engine's own thread."""
        return None

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Call the function and return its result."""
        named = task["function"]
        if "live" in named:
            call = function_of(context, named)
        else:  # importing may take seconds
            call = await context.on_thread(lambda: function_of(context, named))
        function = look_at(call)
        return await self.called(context, function, function.arguments(context, input))

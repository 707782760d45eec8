"""Registries of tools: one for definitions, and one for the live tools of an environment."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any, NamedTuple

from flowengine.sdk.coroutines import lasting
from flowengine.sdk.exception_text import describe
from flowengine.sdk.user_code import bounded, call
from flowengine.tool_environment.errors import RegistrationError
from flowengine.tool_environment.tools import Tool, ToolDefinition, define, overrides


class ToolRegistry:
    """Tool definitions by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._definitions: dict[str, ToolDefinition] = {}

    def register_tool(self, tool: Any, *, replace: bool = False) -> None:
        """Add a tool.

        Args:
            tool: A function, a class with `execute`, or an instance of one.
            replace: Whether to replace a tool of the same name.

        Raises:
            RegistrationError: It is not a tool, or the name is taken.
        """
        definition = define(tool)
        with self._lock:
            check_free(self._definitions.get(definition.name), definition, replace=replace)
            self._definitions[definition.name] = definition

    def clone_tool(self, name: str) -> Tool | None:
        """Return a new instance of a tool, or None if it does not exist.

        Args:
            name: Its name.
        """
        definition = self._definitions.get(name)
        return None if definition is None else definition.make()

    def definition(self, name: str) -> ToolDefinition | None:
        """Return the definition of a tool, or None if it does not exist.

        Args:
            name: Its name.
        """
        return self._definitions.get(name)

    def names(self) -> list[str]:
        """Return the names of all tools, sorted."""
        return sorted(self._definitions)

    def create_instance_registry(self, environment: Any) -> InstanceRegistry:
        """Return an empty registry of live tools for an environment.

        Tools of this registry can be called there by name, and are registered on their first call.

        Args:
            environment: Passed to the tools' `init`.
        """
        return InstanceRegistry(environment, self)


def check_free(there: ToolDefinition | None, definition: ToolDefinition, *, replace: bool) -> None:
    """Check that a name is available.

    Args:
        there: The tool that currently has it.
        definition: The new tool.
        replace: Whether it may replace the other.

    Raises:
        RegistrationError: The name is taken.
    """
    if there is not None and there.source is not definition.source and not replace:
        raise RegistrationError(
            f"there is already a tool '{definition.name}'",
            hint="give it another name, or pass replace=True",
        )


class RegisteredTool(NamedTuple):
    """A tool registered in an environment."""

    definition: ToolDefinition
    instance: Tool
    prepared: dict[str, Any]
    """The attributes that its `init` has set."""


class InstanceRegistry:
    """The tools of one environment, registered and initialized.

    Args:
        environment: Passed to `init`.
        known: Registry for tools that were not registered here.
    """

    def __init__(self, environment: Any, known: ToolRegistry) -> None:
        self._environment = environment
        self._known = known
        self._lock = threading.RLock()
        self._live: dict[str, RegisteredTool] = {}
        self._registering: dict[str, Future[None]] = {}
        """Tools whose `init` is running."""

    @property
    def tools(self) -> dict[str, Tool]:
        """The live tools by name, in the order of registration."""
        return {name: live.instance for name, live in dict(self._live).items()}

    def definition(self, name: str) -> ToolDefinition | None:
        """Return the definition of a registered tool, or None."""
        live = self._live.get(name)
        return None if live is None else live.definition

    def names(self) -> list[str]:
        """Return the names of the tools that can be called, sorted."""
        return sorted({*self._live, *self._known.names()})

    async def register_tool(self, tool: Any, *, replace: bool = False) -> str:
        """Add a tool, and initialize it.

        Args:
            tool: A function, a class with `execute`, or an instance of one.
            replace: Whether to replace a tool of the same name.

        Returns:
            Its name.

        Raises:
            RegistrationError: It is not a tool, the name is taken, or `init` failed. Nothing has
                changed.
        """
        definition = define(tool)
        name = definition.name
        while True:
            with self._lock:
                there = self.definition(name)
                check_free(there, definition, replace=replace)
                if there is not None and there.source is definition.source:
                    return name
                under_way = self._registering.get(name)
                if under_way is None:
                    ended = self._registering[name] = lasting()
                    break
            await asyncio.wrap_future(under_way)  # then check again
        try:
            replaced = await self._add(definition)
        finally:
            with self._lock:
                del self._registering[name]
            ended.set_result(None)
        if replaced is not None:
            await bounded(None, disposed(replaced))
        return name

    async def _add(self, definition: ToolDefinition) -> Tool | None:
        """Initialize and add a tool, and return the instance that it replaces."""
        name = definition.name
        instance = definition.make()
        before = dict(vars(instance))
        instance.environment = self._environment
        if overrides(instance, "init"):
            outcome = await bounded(None, call(instance.init, self._environment))
            if outcome.error is not None:
                why = describe(outcome.error)
                raise RegistrationError(f"tool '{name}' was not registered: init: {why}")
        prepared = {
            key: value
            for key, value in vars(instance).items()
            if key not in before or before[key] is not value
        }
        with self._lock:
            replaced = self._live.pop(name, None)
            self._live[name] = RegisteredTool(definition, instance, prepared)
        return None if replaced is None else replaced.instance

    async def find(self, name: str) -> ToolDefinition | None:
        """Return a tool by name, registering it if only the other registry contains it."""
        if name not in self._live:
            known = self._known.definition(name)
            if known is None:
                return None
            await self.register_tool(known)
        return self.definition(name)

    def clone_tool(self, name: str) -> Tool | None:
        """Return a new instance of a tool with the attributes set by `init`, or None.

        Args:
            name: Its name.
        """
        live = self._live.get(name)
        if live is None:
            return None
        clone = live.definition.make()
        clone.environment = self._environment
        for key, value in live.prepared.items():
            setattr(clone, key, value)
        return clone

    def get_tool_metadata(self) -> list[dict[str, Any]]:
        """Return metadata of each registered tool as plain data."""
        return [live.definition.metadata() for live in list(self._live.values())]

    async def dispose_all(self, bound: float | None = None) -> dict[str, str]:
        """Dispose of each live tool once, the last registered first.

        Args:
            bound: Maximum seconds for each.

        Returns:
            The tools that failed, with their errors, by name.
        """
        with self._lock:
            ended, self._live = self._live, {}
        failed = {}
        for name, live in reversed(ended.items()):
            outcome = await bounded(bound, disposed(live.instance))
            why = outcome.fault(bound)
            if why is not None:
                failed[name] = why
        return failed


async def disposed(instance: Any) -> None:
    """Call the `dispose` of an instance, if it has its own."""
    if overrides(instance, "dispose"):
        await call(instance.dispose)


tool_registry = ToolRegistry()
"""The default registry of environments."""

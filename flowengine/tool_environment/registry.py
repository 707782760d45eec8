"""Registries of tools, and the parts of an environment that its calls share."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flowengine.execution_environment import EnvironmentManager, Handle, manager
from flowengine.sdk import StepError
from flowengine.sdk.exception_text import describe
from flowengine.sdk.tool_calls import ToolCall
from flowengine.sdk.user_code import bounded, call
from flowengine.secrets import Secrets
from flowengine.tool_environment.call import AdmittedCall
from flowengine.tool_environment.clients import Feed
from flowengine.tool_environment.context import Turns
from flowengine.tool_environment.errors import RegistrationError
from flowengine.tool_environment.journal import CallJournal
from flowengine.tool_environment.observers import Observers
from flowengine.tool_environment.tools import Tool, ToolDefinition, define, overrides

# Registries of tools: one for definitions, and one for the live tools of an environment.


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
        self._live: dict[str, RegisteredTool] = {}
        self._turns: defaultdict[str, Turns] = defaultdict(Turns)
        """Name → turns of those who register a tool of this name."""

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
        with self._turns[name].queue() as granted:
            if not granted.done():
                await asyncio.wrap_future(granted)
            there = self._live.get(name)
            if there is not None:
                check_free(there.definition, definition, replace=replace)
                if there.definition.source is definition.source:
                    return name
            live = await self._prepared(definition)
            self._live.pop(name, None)
            self._live[name] = live
        if there is not None:
            await bounded(None, disposed(there.instance))
        return name

    async def _prepared(self, definition: ToolDefinition) -> RegisteredTool:
        """Return a new tool, initialized."""
        instance = definition.make()
        before = dict(vars(instance))
        instance.environment = self._environment
        if overrides(instance, "init"):
            outcome = await bounded(None, call(instance.init, self._environment))
            if outcome.error is not None:
                raise RegistrationError(
                    f"tool '{definition.name}' was not registered: init: {describe(outcome.error)}"
                )
        after = vars(instance).items()
        prepared = {key: value for key, value in after if before.get(key, before) is not value}
        return RegisteredTool(definition, instance, prepared)

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
        failed, ended = {}, self._live
        self._live = {}
        for name, live in reversed(ended.items()):
            why = (await bounded(bound, disposed(live.instance))).fault(bound)
            if why is not None:
                failed[name] = why
        return failed


async def disposed(instance: Any) -> None:
    """Call the `dispose` of an instance, if it has its own."""
    if overrides(instance, "dispose"):
        await call(instance.dispose)


tool_registry = ToolRegistry()
"""The default registry of environments."""


# The managed environments that tools declare, opened before a call and released by their scope.

FOR_A_CALL = "action_call"


class Resources:
    """Opens the environments that tools declare.

    Args:
        specs: Name → spec, as declared by the tool environment.
        owner: Owner of environments whose spec declares none.
        manager: Opens them. Default: the manager of the process.
    """

    def __init__(
        self,
        specs: Mapping[str, Mapping[str, Any]],
        owner: str,
        manager: EnvironmentManager | None = None,
    ) -> None:
        self._specs = dict(specs)
        self._owner = owner
        self._manager = manager
        self._held: dict[str, Handle] = {}

    async def ensure(
        self, declared: Mapping[str, Mapping[str, Any] | None], tool: str, holder: str
    ) -> tuple[dict[str, Any], list[Handle]]:
        """Open the resources of a tool.

        Args:
            declared: Name → spec, or None for the spec of the tool environment.
            tool: Its name.
            holder: Id of the call.

        Returns:
            The resources by name, and the handles to release after the call.

        Raises:
            StepError: One has no spec, or cannot be opened.
        """
        if self._manager is None:
            self._manager = manager()
        specs: list[dict[str, Any]] = []
        for name, own in declared.items():
            spec = own or self._specs.get(name)
            if spec is None:
                raise StepError(
                    f"tool '{tool}' needs the environment '{name}', and there is no spec for it: "
                    f"pass environments={{'{name}': {{'kind': …}}}}",
                    type="MissingEnvironment",
                )
            specs.append({"owner_id": self._owner, "scope": "execution", **spec})
        handles = await self._manager.async_ensure_all(specs, holder=holder)
        after: list[Handle] = []
        for spec, handle in zip(specs, handles, strict=True):
            if spec["scope"] == FOR_A_CALL or handle.spec_id in self._held:
                after.append(handle)
            else:  # it stays until the environment is disposed of
                self._held[handle.spec_id] = handle
        resources = (handle.resource for handle in handles)
        return dict(zip(declared, resources, strict=True)), after

    async def release(self, handles: list[Handle]) -> None:
        """Release handles, the last one first."""
        for handle in reversed(handles):
            assert self._manager is not None
            await self._manager.async_release(handle)

    async def close(self) -> None:
        """Release the resources that outlive a single call."""
        held, self._held = list(self._held.values()), {}
        await self.release(held)


# Objects shared by all calls of one environment.

REMEMBERED = 10_000
"""Maximum ended calls whose results are kept in memory."""


@dataclass(frozen=True)
class CallBounds:
    """Time limits in seconds."""

    grace: float = 2.0
    """Time that a tool has to stop by itself, and again after it is cancelled."""
    observer: float = 5.0
    dispose: float = 1.0
    question: float | None = None
    """Time that a question stays open. None: unlimited."""


@dataclass
class EnvironmentParts:
    """The parts of an environment."""

    execution_id: str
    bounds: CallBounds
    secrets: Secrets
    feed: Feed
    registry: InstanceRegistry
    observers: Observers
    resources: Resources
    journal: CallJournal
    callbacks: dict[str, Any] = field(default_factory=dict)
    """The functions called at the `start` and the `end` of each call that runs."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    calls: OrderedDict[str, AdmittedCall] = field(default_factory=OrderedDict)
    states: defaultdict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    """Tool → its state."""
    turns: ContextVar[Turns] = field(
        default_factory=lambda: ContextVar("turns", default=Turns())  # noqa: B039 - one for all
    )
    """The turns of calls. Within a tool, those of the calls that it makes itself."""

    def mask(self, value: Any) -> Any:
        """Return plain data with the values of secrets replaced."""
        return self.secrets.mask(value)

    def shown(self, call: AdmittedCall) -> ToolCall:
        """Return a call in its current state, with secrets masked."""
        view = call.view()
        return view.model_copy(update={"args": self.mask(view.args)})

    def warn(self, code: str, message: str, **fields: Any) -> None:
        """Publish a warning."""
        self.feed.publish("warning", code=code, message=message, **fields)

    def remember(self, call: AdmittedCall) -> AdmittedCall:
        """Store a call unless there is one with its id, and discard the oldest if it has ended."""
        with self.lock:
            there = self.calls.setdefault(call.id, call)
            if len(self.calls) > REMEMBERED:
                oldest = next(iter(self.calls.values()))
                if oldest.response.done():
                    del self.calls[oldest.id]
            return there

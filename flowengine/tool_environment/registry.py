"""Registries of tools, and what the calls of one environment share."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.sdk import StepError
from flowengine.sdk.exception_text import describe
from flowengine.sdk.tool_calls import ToolCall
from flowengine.sdk.user_code import bounded, call, lasting
from flowengine.secrets import Secrets
from flowengine.tool_environment.call import AdmittedCall
from flowengine.tool_environment.clients import Feed
from flowengine.tool_environment.context import ToolState, Turns
from flowengine.tool_environment.errors import RegistrationError
from flowengine.tool_environment.journal import CallJournal
from flowengine.tool_environment.observers import Observers
from flowengine.tool_environment.tools import Tool, ToolDefinition, define, overrides

if TYPE_CHECKING:
    from flowengine.execution_environment import EnvironmentManager, Handle


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

    def _manages(self) -> EnvironmentManager:
        if self._manager is None:
            from flowengine.execution_environment import manager

            self._manager = manager()
        return self._manager

    def spec(self, name: str, own: Mapping[str, Any] | None, tool: str) -> dict[str, Any]:
        """Return the spec of a resource.

        Args:
            name: Name of the resource.
            own: The tool's own declaration, if any.
            tool: Name of the tool, for messages.

        Raises:
            StepError: It is not declared anywhere.
        """
        declared = own or self._specs.get(name)
        if declared is None:
            raise StepError(
                f"tool '{tool}' needs the environment '{name}', and there is no spec for it: pass "
                f"environments={{'{name}': {{'kind': …}}}}",
                type="MissingEnvironment",
            )
        scope = declared.get("scope", "execution")
        return {"owner_id": self._owner, **declared, "scope": scope}

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
        """
        specs = {name: self.spec(name, own, tool) for name, own in declared.items()}
        resources: dict[str, Any] = {}
        after: list[Handle] = []
        manager = self._manages()
        try:
            for name, spec in specs.items():
                handle = await manager.async_ensure(spec, holder=holder)
                after.append(handle)
                resources[name] = handle.resource
        except BaseException:
            await self.release(after)
            raise
        for handle, spec in zip(list(after), specs.values(), strict=True):
            if spec["scope"] != FOR_A_CALL and handle.spec_id not in self._held:
                self._held[handle.spec_id] = handle  # until the environment is disposed of
                after.remove(handle)
        return resources, after

    async def release(self, handles: list[Handle]) -> None:
        """Release handles, the last one first."""
        for handle in reversed(handles):
            await self._manages().async_release(handle)

    async def close(self) -> None:
        """Release the resources that outlive a single call."""
        held, self._held = list(self._held.values()), {}
        await self.release(held)


# Objects shared by all calls of one environment.

REMEMBERED = 10_000
"""Maximum ended calls whose results are kept in memory."""


@dataclass(frozen=True)
class CallBounds:
    """Time limits in seconds, and the limit on concurrent calls."""

    grace: float = 2.0
    """Time that a tool has to stop by itself, and again after it is cancelled."""
    observer: float = 5.0
    dispose: float = 1.0
    question: float | None = None
    """Time that a question stays open. None: unlimited."""
    running: int = 16
    """Maximum concurrent calls."""


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
    turns: Turns
    journal: CallJournal
    callbacks: dict[str, Any] = field(default_factory=dict)
    """The functions called at the `start` and the `end` of each call that runs."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    calls: OrderedDict[str, AdmittedCall] = field(default_factory=OrderedDict)
    background: set[asyncio.Task[Any]] = field(default_factory=set)
    states: dict[str, ToolState] = field(default_factory=dict)

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

    def state_of(self, tool: str) -> ToolState:
        """Return the state that a tool keeps from call to call."""
        with self.lock:
            state = self.states.get(tool)
            if state is None:
                kept = self.journal.state_of(tool)
                state = self.states[tool] = ToolState(tool, kept["values"], kept["number"])
            return state

    def remember(self, call: AdmittedCall) -> None:
        """Store a call, and discard the oldest one if it has ended."""
        with self.lock:
            self.calls[call.id] = call
            if len(self.calls) > REMEMBERED:
                oldest = next(iter(self.calls.values()))
                if oldest.response.done():
                    del self.calls[oldest.id]

    def keep_running(self, work: Any) -> asyncio.Task[Any]:
        """Run something in the background, until `dispose` waits for it."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        return task

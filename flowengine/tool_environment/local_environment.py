"""`LocalEnvironment`, which approves and runs tool calls in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.engine import Engine
from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import StepError
from flowengine.sdk.exception_text import describe
from flowengine.sdk.near_words import did_you_mean
from flowengine.sdk.resources import running_loop
from flowengine.sdk.tool_calls import (
    ApprovalResponse,
    BaseEnvironment,
    EnvironmentResponse,
    ToolCall,
    ToolResult,
)
from flowengine.sdk.user_code import bounded, contained, within
from flowengine.sdk.validation_messages import faults
from flowengine.secrets import Secrets
from flowengine.tool_environment.call import AdmittedCall, digest_of
from flowengine.tool_environment.clients import Feed, Link, Message
from flowengine.tool_environment.context import ToolContext
from flowengine.tool_environment.errors import CallError, RegistrationError, ToolEnvironmentClosed
from flowengine.tool_environment.journal import CallJournal
from flowengine.tool_environment.observers import (
    Callback,
    CallbackAuthority,
    Observers,
    check_callback,
)
from flowengine.tool_environment.pipeline import CallPipeline
from flowengine.tool_environment.questions import AutoApprove, Questions
from flowengine.tool_environment.registry import (
    CallBounds,
    EnvironmentParts,
    InstanceRegistry,
    Resources,
    ToolRegistry,
    tool_registry,
)
from flowengine.tool_environment.results import response_of
from flowengine.tool_environment.tools import define, tool

_END = 1.0
"""Seconds that a client has to read the last messages."""


def validated(call: Any) -> ToolCall:
    """Return a validated copy of a call.

    Raises:
        CallError: The message lists everything that is wrong.
    """
    if isinstance(call, ToolCall):
        call = call.model_dump()
    if not isinstance(call, Mapping):
        raise CallError("invalid", f"a call is a map, not {type(call).__name__}")
    try:
        return ToolCall.model_validate(dict(call))
    except ValidationError as error:
        raise CallError("invalid", faults(error)) from None


def refusal(given: Any, error: CallError) -> EnvironmentResponse:
    """Return the response to a call that cannot be made.

    Args:
        given: The call or its id.
        error: The reason.
    """
    fields = dict(given) if isinstance(given, Mapping | ToolCall) else {"tool_call_id": given}
    call, tool = (str(fields.get(name) or "") for name in ("tool_call_id", "tool_name"))
    return response_of(
        ToolResult(
            tool_call_id=call, tool_name=tool, success=False, status="invalid", ran="no",
            message=error.message,
        ),
        error.code,
    )  # fmt: skip


class LocalEnvironment(BaseEnvironment):
    """Approves and runs tool calls in this process. Nothing is started before it is needed.

    Any task, thread or loop can use it. A coroutine tool runs on the loop of the caller, a plain
    function on a thread.

    Args:
        registry: Registry for tools that are not registered here. Default: the global one, with the
            built-in tools.
        environments: Managed environments for tools: name → spec.
        secrets: Secrets to mask: name → reference, `{"env": VARIABLE}` or `{"file": PATH}`.
        execution_id: Id of the execution. Default: a new one.
        auto_approve: Calls to approve automatically if no approver is available: `asking` (every
            tool except those with `approval: required`), `nothing` or `everything`.
        engine: Runs each call as an execution, so its store keeps results and questions, also for
            other processes. The caller closes it. Default: an engine in
            memory.
        bounds: Time limits.
        manager: Opens managed environments. Default: the manager of the process.

    Attributes:
        registry: The tools.
        observers: The observers by name.
        authority: Decides about calls. Any object with `approve_tool` can replace it.
        feed: The messages that clients follow.
        execution_id: Id of the execution.
        keeps_calls: Whether the engine's store records call outcomes for later processes of the
            execution.
    """

    def __init__(
        self,
        *,
        registry: ToolRegistry | None = None,
        environments: Mapping[str, Mapping[str, Any]] | None = None,
        secrets: Mapping[str, Any] | None = None,
        execution_id: str | None = None,
        auto_approve: AutoApprove = "asking",
        engine: Engine | None = None,
        bounds: CallBounds = CallBounds(),  # noqa: B008 - it is immutable
        manager: EnvironmentManager | None = None,
    ) -> None:
        self.execution_id = execution_id or os.urandom(8).hex()
        self.keeps_calls = bool(execution_id) and engine is not None
        known = Secrets(secrets or {})
        self.feed = Feed(known.mask)
        known_tools = tool_registry if registry is None else registry
        self.registry: InstanceRegistry = known_tools.create_instance_registry(self)
        self.observers = Observers()
        self._parts = EnvironmentParts(
            execution_id=self.execution_id,
            bounds=bounds,
            secrets=known,
            feed=self.feed,
            registry=self.registry,
            observers=self.observers,
            resources=Resources(environments or {}, self.execution_id, manager),
            journal=CallJournal(self.execution_id, engine, bounds.question, known.references),
        )
        self.authority: Any = CallbackAuthority()
        self._questions = Questions(self._parts, self, auto_approve)
        self._pipeline = CallPipeline(self._parts, self._questions)
        self._closed = False
        self._following: asyncio.Task[Any] | None = None
        """The task of the client, on the loop that uses the environment."""

    # Configuration

    async def register_tool(self, tool: Any, *, replace: bool = False) -> str:
        """Add a tool, and initialize it.

        Args:
            tool: A function, a class with `execute`, or an instance of one.
            replace: Whether to replace a tool of the same name. This is not possible while it has
                an open call.

        Returns:
            Its name.

        Raises:
            RegistrationError: It is not a tool, the name is taken, or `init` failed. Nothing has
                changed.
        """
        self._check_open()
        definition = define(tool)
        if replace and any(call.tool == definition.name for call in self._open_calls()):
            raise RegistrationError(
                f"a call of tool '{definition.name}' is open, so it cannot be replaced now"
            )
        is_new = self.registry.definition(definition.name) is None or replace
        name = await self.registry.register_tool(definition, replace=replace)
        if is_new:
            self.feed.publish("tool_registered", tool_name=name, tool=definition.metadata())
        return name

    def register_tool_approval_callback(
        self, callback: Callback, *, timeout: float | None = None
    ) -> None:
        """Request decisions about all calls from a callback.

        Args:
            callback: Takes the `ToolCall` and returns an `ApprovalResponse`, a mapping with its
                fields, or a boolean. It can be a coroutine function.
            timeout: Maximum seconds for the callback. A late decision counts as a rejection.

        Raises:
            RegistrationError: It cannot be called with a call.
        """
        self.authority = CallbackAuthority(callback, timeout=timeout)

    def clear_tool_approval_callback(self) -> None:
        """Remove the approval callback. It still decides open questions."""
        self.authority = CallbackAuthority()

    def register_execute_callback(self, start: Any = None, end: Any = None) -> None:
        """Set functions to call before and after every call that runs.

        Args:
            start: Takes the call.
            end: Takes the call and its result.

        Raises:
            RegistrationError: One cannot be called with these arguments. Nothing has changed.
        """
        if start is not None:
            check_callback(start, 1, "the start callback")
        if end is not None:
            check_callback(end, 2, "the end callback")
        self._parts.callbacks = {"start": start, "end": end}

    def clear_execute_callback(self) -> None:
        """Remove the functions called before and after calls."""
        self._parts.callbacks = {}

    def register_observer(self, observer: Any) -> None:
        """Add an observer under its own name.

        Args:
            observer: Has `name`, `description` and `execute(call, result)`.

        Raises:
            RegistrationError: It is not an observer, or the name is taken.
        """
        self.observers[getattr(observer, "name", "")] = observer

    def set_client(self, client: Any) -> None:
        """Set the client that follows calls and answers questions.

        Args:
            client: Has `follow(link)`. None: remove the client.

        Raises:
            RegistrationError: It has no `follow`.
        """
        if client is not None:
            check_callback(getattr(client, "follow", None), 1, "'follow' of the client")
        if self._following is not None:
            self._following.cancel()
        self.client, self._following = client, None
        self._follow()

    def _follow(self) -> None:
        """Start the task of the client if a loop is running, unless it was started before."""
        if self.client is None or self._following is not None or running_loop() is None:
            return

        async def follow(client: Any) -> None:
            why = (await bounded(None, client.follow(Link(self)))).fault(None)
            if why is not None:
                self._parts.warn("client", f"the client failed: {why}")

        self._following = asyncio.ensure_future(follow(self.client))

    def listen(self, listener: Callable[[Message], object]) -> Callable[[], None]:
        """Call a function with each message, on the thread that publishes it.

        Args:
            listener: Must be fast.

        Returns:
            A function that removes the listener.
        """
        return self.feed.listen(listener)

    # Arguments that arrive in parts

    async def register_request_tool_call(self, call: ToolCall | Mapping[str, Any]) -> ToolCall:
        """Register a call whose arguments are still arriving.

        Args:
            call: The call.

        Returns:
            The call in its current state, which is loading.

        Raises:
            CallError: It is invalid, its tool is unknown, or its id is taken.
        """
        self._check_open()
        made = validated(call)
        if made.tool_call_id in self._parts.calls:
            raise CallError("duplicate_call", f"there is already a call '{made.tool_call_id}'")
        return (await self._take(made)).view()

    async def update_request_tool_params(
        self, call: ToolCall | Mapping[str, Any], is_final: bool = False
    ) -> ToolCall:
        """Update the arguments of a call with newly arrived ones.

        Args:
            call: The call with its arguments so far.
            is_final: Whether the arguments are complete. The call can only run after that.

        Returns:
            The call in its current state.

        Raises:
            CallError: It is unknown, or its arguments are final already.
        """
        self._check_open()
        made = validated(call)
        running = self._parts.calls.get(made.tool_call_id)
        if running is None:
            raise CallError("unknown_call", f"no call '{made.tool_call_id}' is registered")
        await running.update(made.args, is_final=is_final)
        return running.view()

    # Approval and execution

    async def approve_tool(self, call: ToolCall | Mapping[str, Any]) -> EnvironmentResponse:
        """Request a decision about a call, without running it. It is limited to this call.

        Args:
            call: The call.

        Returns:
            The `ApprovalResponse`, or an error.

        Raises:
            ToolEnvironmentClosed: The environment was disposed of.
        """
        taken = await self._admit(call)
        if isinstance(taken, EnvironmentResponse):
            return taken
        if taken.started:
            error = CallError("duplicate_call", f"call '{taken.id}' has begun already")
            return refusal(taken.view(), error)
        return await self._pipeline.approve(taken)

    async def execute_tool(self, call: ToolCall | Mapping[str, Any] | str) -> EnvironmentResponse:
        """Run a call, after its approval unless it was approved before.

        Cancelling the awaiting task aborts the call.

        Args:
            call: The call, or the id of a call whose arguments have arrived in parts.

        Returns:
            The `ToolResult`, or an error. A repeated call receives the same response.

        Raises:
            ToolEnvironmentClosed: The environment was disposed of.
            CancelledError: The awaiting task was cancelled.
        """
        taken = await self._admit(call)
        if isinstance(taken, EnvironmentResponse):
            return taken
        if not taken.take_up():
            return await asyncio.shield(asyncio.wrap_future(taken.response))
        running = asyncio.ensure_future(self._pipeline.run(taken))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            taken.halt("aborted")
            await asyncio.wait([running])
            raise

    async def execute_tools(
        self, calls: Sequence[ToolCall | Mapping[str, Any] | str]
    ) -> list[EnvironmentResponse]:
        """Approve and run the calls of one reply, with a separate decision about each.

        Args:
            calls: The calls.

        Returns:
            Their responses, in the order of the calls.
        """
        return list(await asyncio.gather(*map(self.execute_tool, calls)))

    def decide(
        self, call_id: str, decision: ApprovalResponse | Mapping[str, Any], *, by: str = "person"
    ) -> None:
        """Answer an open question. The first decision counts.

        Args:
            call_id: Id of the call.
            decision: The decision.
            by: The approver.

        Raises:
            DecisionError: The question does not exist, or the decision is invalid. The question
                remains unchanged.
        """
        self._questions.decide(call_id, decision, by)

    def questions(self) -> list[ToolCall]:
        """Return the calls with an open question, with secrets masked, in order of registration."""
        calls = [call for call in self._open_calls() if call.question is not None]
        return list(map(self._parts.shown, calls))

    # Stopping

    def abort_step(self) -> None:
        """Abort all calls in progress, on any thread. Later calls are not affected."""
        for call in self._open_calls():
            if call.started or call.is_loading or call.question is not None:
                call.halt("aborted")

    def abort_call(self, call_id: str) -> bool:
        """Abort one call, on any thread. Return False if it is not in progress.

        Args:
            call_id: Its id.
        """
        call = self._parts.calls.get(call_id)
        return call is not None and call.halt("aborted")

    async def dispose(self) -> None:
        """Abort all calls, and release all resources. Further calls have no effect."""
        if self._closed:
            return
        self._closed = True
        parts = self._parts
        calls = self._open_calls()
        for call in calls:
            call.halt("aborted")
        for call in calls:
            if call.started:
                await asyncio.shield(asyncio.wrap_future(call.response))
            else:
                await self._pipeline.abandon(call)
        for name, error in (await self.registry.dispose_all(parts.bounds.dispose)).items():
            parts.warn("dispose", f"dispose of tool '{name}': {error}")
        closing = await contained(parts.resources.close())
        if closing.error is not None:
            parts.warn("resources", describe(closing.error))
        await parts.journal.close()
        self.feed.close()
        if self._following is not None and self._following.get_loop() is running_loop():
            await within(_END, self._following)
            self._following.cancel()
        self.client = None
        self.observers.clear()
        self.clear_tool_approval_callback()
        self.clear_execute_callback()

    async def __aenter__(self) -> LocalEnvironment:
        self._check_open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.dispose()

    # Internals

    async def _admit(self, given: Any) -> AdmittedCall | EnvironmentResponse:
        """Return a new or known call, by its data or its id, or why it cannot be made."""
        self._check_open()
        self._follow()
        try:
            if isinstance(given, str):
                if given not in self._parts.calls:
                    raise CallError("unknown_call", f"there is no call '{given}'")
                return self._parts.calls[given]
            made = validated(given)
            return self._known(made) or await self._take(made)
        except CallError as error:
            return refusal(given, error)

    def _known(self, made: ToolCall) -> AdmittedCall | None:
        """Return the known call with this id, or None.

        Raises:
            CallError: It is a different one.
        """
        call = self._parts.calls.get(made.tool_call_id)
        if call is None:
            kept = self._parts.journal.find(made.tool_call_id)[1]  # of an earlier process
            same = (made.tool_name, digest_of(made.args)) if kept else None
            if kept is None or (kept["tool"], kept["digest"]) == same:
                return None
        elif call.tool == made.tool_name:
            if call.is_loading:  # without arguments, it stands for those that have arrived
                call.args = copy(made.args) or call.args
                return call
            if digest_of(call.args) == digest_of(made.args) or call.replace(made.args):
                return call
        raise CallError("duplicate_call", f"another call has the id '{made.tool_call_id}' already")

    async def _take(self, made: ToolCall) -> AdmittedCall:
        """Register a call, with a new instance of its tool.

        Raises:
            CallError: The tool is unknown.
        """
        parts, name = self._parts, made.tool_name
        definition, instance = await parts.registry.find(name), parts.registry.clone_tool(name)
        if definition is None or instance is None:
            names = parts.registry.names()
            near = did_you_mean(name, names)
            hint = "" if near is None else f"; {near}"
            known = f" Known tools: {', '.join(names)}." if names else ""
            raise CallError("unknown_tool", f"there is no tool '{name}'{hint}{known}")
        call = AdmittedCall(made, definition, instance, parts.feed)
        if parts.remember(call) is not call:  # another thread has registered the same call
            return self._known(made) or await self._take(made)
        call.move("call_registered", call=call.view())
        return call

    def _open_calls(self) -> list[AdmittedCall]:
        with self._parts.lock:
            return [call for call in self._parts.calls.values() if not call.response.done()]

    def _check_open(self) -> None:
        if self._closed:
            raise ToolEnvironmentClosed("the tool environment was disposed of: make a new one")


# `execute_command`, the built-in tool that runs a command in a managed shell environment.

SHELL = "shell"
"""Name of its environment, which is of the kind `shell` or `bash`."""


@tool(resources={SHELL: None})
async def execute_command(command: str, ctx: ToolContext) -> dict[str, Any]:
    """Run a command in the shell and return its exit code and output.

    When the call must stop, the command ends with all its child processes.

    Args:
        command: The shell command.
        ctx: The context of the call.

    Returns:
        `exit_code`, `stdout` and `stderr`. A terminal has both streams in `stdout`.

    Raises:
        StepError: The environment cannot run commands.
    """
    shell = ctx.resources[SHELL]
    run = getattr(shell, "async_run_in_turn", None) or getattr(shell, "async_run", None)
    if run is None:
        raise StepError(f"the environment '{SHELL}' runs no commands: take the kind shell or bash")

    def wrote(_: str, text: str) -> None:
        ctx.write(text)
        ctx.report(text)

    running = asyncio.ensure_future(run(command, on_output=wrote))
    aborted = asyncio.ensure_future(ctx.signal.async_wait())
    try:
        await asyncio.wait([running, aborted], return_when=asyncio.FIRST_COMPLETED)
    finally:
        aborted.cancel()
        if not running.done():  # cancellation ends the command with its child processes
            running.cancel()
            await asyncio.wait([running])
    result = running.result()
    if hasattr(result, "stdout"):
        return {
            "exit_code": result.exit_code,
            "stdout": result.stdout,
            "stderr": result.stderr,
        }
    return {"exit_code": result.exit_code, "stdout": result.output, "stderr": ""}


tool_registry.register_tool(execute_command)

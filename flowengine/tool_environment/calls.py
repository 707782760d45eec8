"""Calls of a tool environment, and their executions: each call runs a flow with one step.

The engine journals the call and holds its approval as a wait. Live objects of a call are runtime
resources of its execution. The engine stores the arguments with secrets masked. The `Call` has the
original ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import Context, copy_context
from datetime import timedelta
from typing import Any

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow, load
from flowengine.engines.infos import ExecutionInfo
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, NotFound
from flowengine.flow.building.flow import Flow
from flowengine.flow.models.types import in_generated
from flowengine.sdk.python.user_code import lasting
from flowengine.sdk.steps.context import LIVE
from flowengine.sdk.texts.visible_text import literal_text
from flowengine.sdk.tools.tool_calls import (
    ApprovalResponse,
    EnvironmentResponse,
    Image,
    ToolCall,
    ToolResult,
)
from flowengine.tool_environment.context import AbortSignal, Stop
from flowengine.tool_environment.tools import Tool, ToolDefinition, overrides

TASK, TOOL = "task", "tool"
"""The labels with the execution id of the tool environment, and with the name of the tool."""
_CALL = "call"
"""The step of the flow of a tool."""
LOOK = 0.1
"""Seconds between two checks for changes by other processes."""
_PRUNED = 1_000
"""Number of calls after which an engine in memory discards ended ones."""
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_CHOICES = ("approve", "reject", "respond")


class Call:
    """A call of an environment.

    Args:
        requested: The call as requested.
        definition: The definition of its tool.
        instance: Its own instance of the tool.
    """

    def __init__(self, requested: ToolCall, definition: ToolDefinition, instance: Tool) -> None:
        self.id = requested.tool_call_id
        self.tool = requested.tool_name
        self.args: dict[str, Any] = copy(requested.args)
        self.definition = definition
        self.options = definition.options
        self.instance: Any = instance
        """None once the call has ended."""
        self.is_loading = True
        self.published: dict[str, Any] | None = None
        """The arguments that were last published."""
        self.masked: dict[str, Any] = {}
        """Arguments without secrets, for the engine and the approver."""
        self.changed: dict[str, Any] | None = None
        """Arguments as edited before the approval."""
        self.decision: ApprovalResponse | None = None
        """The decision made in this process."""
        self.refusal: str | None = None
        """Why the decision made in this process does not count."""
        self.execution = ""
        """Id of its execution."""
        self.ended: ToolResult | None = None
        """The result of its tool, if that ran in this process."""
        self.began = False
        """Whether its tool ran in this process."""
        self.replayed = False
        """Whether an earlier process made the call."""
        self.context: Context = copy_context()
        """Context of the caller, in which the tool runs."""
        self.question: Future[ApprovalResponse] | None = None
        """The open question, if any."""
        self.response: Future[EnvironmentResponse] = lasting()
        self.stopped: Future[Stop | None] = lasting()
        """Done when the call must stop, with the reason, or when its tool has ended."""
        self.signal = AbortSignal(self.stopped)
        self.produced: list[str] = []
        self._made = threading.Lock()

    def view(self) -> ToolCall:
        """Return a copy of the call in its current state."""
        return ToolCall(
            tool_call_id=self.id, tool_name=self.tool, is_loading=self.is_loading,
            args=copy(self.args if self.changed is None else self.changed),
            is_approval_pending=self.question is not None,
        )  # fmt: skip

    @property
    def is_made(self) -> bool:
        """Whether `execute_tool` has started it."""
        return self._made.locked()

    def make(self) -> bool:
        """Mark the call as started. Return False if it was started, or has ended, already."""
        if self.response.done() or not self._made.acquire(blocking=False):
            return False
        self.context = copy_context()
        return True

    def halt(self, why: Stop) -> bool:
        """Stop the call, on any thread. Return False if it has ended or was stopped already."""
        return not self.response.done() and resolve(self.stopped, why)

    def unmasked(self, shown: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as shown to an approver, with the secrets of all unchanged parts."""
        given: dict[str, Any] = _unmasked(shown, self.masked, self.args)
        return given


def _unmasked(shown: Any, masked: Any, original: Any) -> Any:
    if shown == masked:
        return copy(original)
    if isinstance(shown, Mapping) and isinstance(masked, Mapping):
        return {
            key: _unmasked(value, masked[key], original[key])
            if key in masked and key in original  # masked keys are those of no original entry
            else value
            for key, value in shown.items()
        }
    if isinstance(shown, list) and isinstance(masked, list) and len(shown) == len(masked):
        return [_unmasked(*each) for each in zip(shown, masked, original, strict=True)]
    return shown


def resolve(future: Future[Any], value: Any) -> bool:
    """Set the result of a future, and return False if another thread has done so before."""
    try:
        future.set_result(value)
    except InvalidStateError:
        return False
    return True


class CallExecutions:
    """The executions of the calls of one environment.

    Args:
        task: Its execution id.
        engine: Runs the executions. None: an engine in memory.
        expires: Seconds that a question stays open. None: unlimited.
        secrets: Name → reference of each secret to mask.
    """

    def __init__(
        self, task: str, engine: Engine | None, expires: float | None, secrets: Mapping[str, Any]
    ) -> None:
        self._task = task
        self._expires = {} if expires is None else {"expires": timedelta(seconds=expires)}
        self._secrets = dict(secrets)
        self.engine = Engine(None) if engine is None else engine
        self._is_own = engine is None
        self._flows: dict[tuple[ToolDefinition, bool], LoadedFlow] = {}
        self._begun = 0

    async def close(self) -> None:
        """Close the engine if it is the environment's own."""
        if self._is_own:
            await self.engine.__aexit__()

    def find(self, call: str) -> tuple[str, Mapping[str, Any] | None]:
        """Return the execution id of a call, and the inputs if the execution exists.

        An execution that was cancelled before the tool started does not count, so the call can be
        made again. One that is not of a tool environment does not count either.

        Args:
            call: Id of the call.
        """
        number = 0
        while True:
            id = f"{_part(self._task)}.{_part(call)}.{number:04}"  # none is a prefix of another
            if self._is_own:  # its calls are known
                return id, None
            try:
                shown = self.engine.executions.show(id)
            except NotFound:
                return id, None
            is_own = shown["labels"].get(TASK) == self._task  # no client can set this label
            if is_own and (shown["status"] != "cancelled" or has_begun(shown)):
                return id, shown["inputs"]
            number += 1

    async def run(
        self,
        call: Call,
        kept: Mapping[str, Any] | None,
        function: Callable[..., Any],
        *,
        asks: bool,
    ) -> ExecutionResult | None:
        """Start the execution of a call or resume the existing one, until it ends or waits.

        Args:
            call: The call. The engine stores its `masked` arguments.
            kept: The inputs of the existing execution.
            function: Runs the tool.
            asks: Whether a new execution needs a decision first.

        Returns:
            The state of the execution. None: another process holds it, and the call was stopped
            here.
        """
        preview = getattr(call.instance, "preview", None)
        live = {LIVE: {call.tool: function, f"{call.tool}/preview": preview}}
        if kept is None:
            inputs = {
                "call": call.id, "tool": call.tool, "args": call.masked,
                "digest": digest_of(call.args), "version": call.definition.version,
            }  # fmt: skip
            self._begun += 1
            if self._is_own and self._begun % _PRUNED == 0:
                self.engine.executions.prune()
            try:
                return await self.engine.run_async(
                    self._flow(call, asks=asks), inputs, id=call.execution,
                    labels={TASK: self._task, TOOL: call.tool}, runtime_resources=live,
                )  # fmt: skip
            except Conflict:  # another process started it first
                there = self.find(call.id)[1]
                if there is None or there["digest"] != inputs["digest"]:
                    raise
        call.replayed = True
        while True:
            result = self.engine.executions.result(call.execution)
            if result.ended:
                return result
            with suppress(Conflict):  # another process holds it
                return await self.engine.resume_async(call.execution, runtime_resources=live)
            if await call.signal.async_wait(asyncio.ensure_future(asyncio.sleep(LOOK))):
                return None

    async def withdraw(self, call: Call) -> ExecutionResult:
        """Cancel the execution of a call that has not started, and return its state."""
        with suppress(Conflict):  # it has ended
            await self.engine.executions.cancel_async(call.execution)
        return self.engine.executions.result(call.execution)

    def decided(self, call: Call) -> ApprovalResponse | None:
        """Return the latest decision about the approval of a call, if any."""
        for event in reversed(list(self.engine.executions.events(call.execution))):
            if event["type"] == "decided" and event["choice"] in _CHOICES:
                images = []
                for image in event.get("images") or ():
                    with self.engine.store.open_artifact(image["sha256"]) as file:
                        images.append(Image.model_validate(file.read()))
                return ApprovalResponse(
                    approved=event["choice"] == "approve", feedback=event.get("comment"),
                    images=images, by=event["by"],
                )  # fmt: skip
        return None

    def _flow(self, call: Call, *, asks: bool) -> LoadedFlow:
        """Return the flow that makes a call of its tool, with an approval if one is needed."""
        definition = call.definition
        if (known := self._flows.get((definition, asks))) is not None:
            return known
        function: dict[str, Any] = {"live": call.tool, "version": definition.version}
        if overrides(call.instance, "preview"):
            function["preview"] = {"live": f"{call.tool}/preview"}
        tool: dict[str, Any] = {
            "agent_function": {"function": function},
            "args": literal_text(definition.schema),
            "effect": call.options.effect,
        }
        if asks:
            required = call.options.approval == "required"
            tool["approval"] = {"edit": True, "required": required, **self._expires}
        inputs = {"call": str, "tool": str, "args": dict, "digest": str, "version": str}
        flow = Flow("tool_call", inputs=inputs, secrets=self._secrets)
        own = call.tool if re.match(r"[A-Za-z_]", call.tool) else f"_{call.tool}"
        flow.declare("tools", own, tool)
        args: Any = "${{ inputs.args }}"
        flow.step(_CALL, call=own, with_=args)
        flow.output("made", f"${{{{ steps.{_CALL}.output }}}}")
        token = in_generated.set(True)
        try:
            return self._flows.setdefault((definition, asks), load(flow))
        finally:
            in_generated.reset(token)


def is_asked(result: ExecutionResult) -> bool:
    """Return whether an execution waits for an approval."""
    return any(wait["kind"] == "approval" for wait in result.waits)


def has_begun(shown: ExecutionInfo) -> bool:
    """Return whether any process has started the tool of a call."""
    return any(step["attempts"] for step in shown["steps"])


def _part(name: str) -> str:
    """Return a name as a part of an execution id, or its digest, marked by two dots."""
    return name if _PART.fullmatch(name) else f"x..{_digest(name)[:32]}"


def digest_of(args: Any) -> str:
    """Return a digest of arguments, which is equal for equal data."""
    return _digest(json.dumps(args, sort_keys=True, default=repr))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()

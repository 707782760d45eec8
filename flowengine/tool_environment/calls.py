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
from base64 import b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import Context, copy_context
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow, load
from flowengine.engines.infos import ExecutionInfo
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, NotFound
from flowengine.flow.building.flow import Flow
from flowengine.flow.models.types import in_generated
from flowengine.sdk.context import LIVE
from flowengine.sdk.tool_calls import (
    ApprovalResponse,
    EnvironmentResponse,
    Image,
    ToolCall,
    ToolResult,
)
from flowengine.sdk.user_code import lasting
from flowengine.sdk.visible_text import literal_text
from flowengine.tool_environment.tools import Tool, ToolDefinition, overrides

Stop = Literal["aborted", "timed_out"]
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
        self.instance: Any = instance
        """None once the call has ended."""
        self.is_loading = True
        self.published: dict[str, Any] | None = None
        """The arguments that were last published."""
        self.is_submitted = False
        """Whether it was submitted for approval before it is made."""
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
        self.stopped: Future[Any] = lasting()
        """Done when the call must stop, with the reason, or when its tool has ended."""
        self.produced: list[str] = []
        self._made = threading.Lock()

    @property
    def options(self) -> Tool:
        """The options of its tool."""
        return self.definition.options

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

    @property
    def stop(self) -> Stop | None:
        """Why the call must stop, or None."""
        return self.stopped.result() if self.stopped.done() else None

    def halt(self, why: Stop) -> bool:
        """Stop the call, on any thread. Return False if it has ended or was stopped already."""
        return not self.response.done() and _settle(self.stopped, why)

    def end(self) -> bool:
        """Record that the tool ended by itself. Return False if the call was stopped before."""
        return _settle(self.stopped, None)

    def answer(self, decision: ApprovalResponse) -> bool:
        """Answer the open question, on any thread. Return False if it is no longer open."""
        return self.question is not None and _settle(self.question, decision)

    async def unless_stopped(self, work: asyncio.Future[Any]) -> bool:
        """Wait until work ends, or the call must stop, and return whether work has ended."""
        stopped = asyncio.wrap_future(self.stopped)
        try:
            await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        return work.done()


def _settle(future: Future[Any], value: Any) -> bool:
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
        engine: Runs the executions. None: an engine in memory, created with the first call.
        expires: Seconds that a question stays open. None: unlimited.
        secrets: Name → reference of each secret to mask.
    """

    def __init__(
        self, task: str, engine: Engine | None, expires: float | None, secrets: Mapping[str, Any]
    ) -> None:
        self._task = task
        self._expires = None if expires is None else timedelta(seconds=expires)
        self._secrets = json.dumps(dict(secrets), sort_keys=True)
        self._engine = engine
        self._is_kept = engine is not None
        self._lock = threading.Lock()
        self._begun = 0

    @property
    def engine(self) -> Engine:
        """The engine."""
        with self._lock:
            if self._engine is None:
                self._engine = Engine(None)
            return self._engine

    async def close(self) -> None:
        """Close the engine if the environment created it."""
        if self._engine is not None and not self._is_kept:
            await self._engine.__aexit__()

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
            if not self._is_kept:
                return id, None
            try:
                shown = self.engine.executions.show(id)
            except NotFound:
                return id, None
            is_own = shown["labels"].get(TASK) == self._task  # no client can set this label
            if is_own and (shown["status"] != "cancelled" or _has_begun(shown)):
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
        options, definition = call.options, call.definition
        has_preview, preview = overrides(call.instance, "preview"), f"{call.tool}/preview"
        live = {LIVE: {call.tool: function, preview: getattr(call.instance, "preview", None)}}
        if kept is None:
            approval = ("required" if options.approval == "required" else "ask") if asks else "none"
            flow = flow_of(
                call.tool, definition.schema, options.effect, definition.version, approval,
                preview if has_preview else None, self._expires, self._secrets,
            )  # fmt: skip
            inputs = {
                "call": call.id, "tool": call.tool, "args": call.masked,
                "digest": digest_of(call.args), "version": definition.version,
            }  # fmt: skip
            self._begun += 1
            if not self._is_kept and self._begun % _PRUNED == 0:
                self.engine.executions.prune()
            try:
                return await self.engine.run_async(
                    flow, inputs, id=call.execution, labels={TASK: self._task, TOOL: call.tool},
                    runtime_resources=live,
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
            if not await call.unless_stopped(asyncio.ensure_future(asyncio.sleep(LOOK))):
                return None

    async def withdraw(self, call: Call) -> ExecutionResult:
        """Cancel the execution of a call that has not started, and return its state."""
        with suppress(Conflict):  # it has ended
            await self.engine.executions.cancel_async(call.execution)
        return self.engine.executions.result(call.execution)

    def has_begun(self, call: Call) -> bool:
        """Return whether any process has started the tool of a call."""
        return _has_begun(self.engine.executions.show(call.execution))

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


def is_asked(result: ExecutionResult) -> bool:
    """Return whether an execution waits for an approval."""
    return any(wait["kind"] == "approval" for wait in result.waits)


def _has_begun(shown: ExecutionInfo) -> bool:
    return any(step["attempts"] for step in shown["steps"])


def _part(name: str) -> str:
    """Return a name as a part of an execution id, or its digest, marked by two dots."""
    if _PART.fullmatch(name):
        return name
    return f"x..{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:32]}"


@lru_cache(maxsize=256)
def flow_of(
    name: str,
    schema: str,
    effect: str,
    version: str,
    approval: str,
    preview: str | None,
    expires: timedelta | None,
    secrets: str,
) -> LoadedFlow:
    """Return the flow of a tool.

    Args:
        name: Its name.
        schema: JSON Schema of its arguments.
        effect: Side effects of the tool, which determine whether it can run again.
        version: Digest of its code. An approval is limited to this version.
        approval: `ask`, `required` or `none`.
        preview: Key of the function that returns the preview, if there is one.
        expires: How long a question stays open. None: unlimited.
        secrets: References to the secrets of the environment, as JSON.
    """
    inputs = {"call": str, "tool": str, "args": dict, "digest": str, "version": str}
    flow = Flow("tool_call", inputs=inputs, secrets=json.loads(secrets))
    function: dict[str, Any] = {"live": name, "version": version}
    if preview is not None:
        function["preview"] = {"live": preview}
    tool: dict[str, Any] = {
        "agent_function": {"function": function},
        "args": literal_text(json.loads(schema)),
        "effect": effect,
    }
    if approval != "none":
        tool["approval"] = {"edit": True, "required": approval == "required"}
        if expires is not None:
            tool["approval"]["expires"] = expires
    own = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
    flow.declare("tools", own, tool)
    args: Any = "${{ inputs.args }}"
    flow.step(_CALL, call=own, with_=args)
    flow.output("made", f"${{{{ steps.{_CALL}.output }}}}")
    token = in_generated.set(True)
    try:
        return load(flow)
    finally:
        in_generated.reset(token)


def digest_of(args: Any) -> str:
    """Return a digest of arguments, which is equal for equal data."""

    def encoded(value: Any) -> Any:
        if isinstance(value, bytes):
            return {"bytes": b64encode(value).decode()}
        return {"type": type(value).__qualname__, "repr": repr(value)}

    text = json.dumps(args, sort_keys=True, separators=(",", ":"), default=encoded)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def unmasked(edited: Any, masked: Any, original: Any) -> Any:
    """Return edited arguments, with the original values in place of unchanged masked ones."""
    if edited == masked:
        return copy(original)
    if isinstance(edited, dict) and isinstance(masked, dict) and isinstance(original, dict):
        return {
            key: unmasked(value, masked[key], original[key])
            if key in masked and key in original
            else value
            for key, value in edited.items()
        }
    if isinstance(edited, list) and isinstance(masked, list) and len(edited) == len(masked):
        return [unmasked(*each) for each in zip(edited, masked, original, strict=True)]
    return edited

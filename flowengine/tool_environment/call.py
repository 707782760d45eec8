"""One call in progress: its arguments as they arrive, its decision, its end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from base64 import b64encode
from concurrent.futures import Future
from contextvars import Context, copy_context
from typing import Any, Literal

from flowengine.engines.attempts.serialization import copy
from flowengine.sdk.tool_calls import ApprovalResponse, EnvironmentResponse, ToolCall, ToolResult
from flowengine.sdk.user_code import bounded, lasting
from flowengine.sdk.user_code import call as call_plugin
from flowengine.tool_environment.clients import Feed
from flowengine.tool_environment.errors import CallError
from flowengine.tool_environment.observers import data_of
from flowengine.tool_environment.tools import Tool, ToolDefinition, overrides

VIEW_TIME = 2.0
"""Maximum seconds for `load_ui`."""

Stop = Literal["aborted", "timed_out"]
Stage = Literal[
    "tool_registered", "call_registered", "parameters_updated", "parameters_final", "approval",
    "execution", "observers", "result", "disposal",
]  # fmt: skip
"""The stages of a call, in order."""


class AdmittedCall:
    """A call that an environment has admitted.

    Args:
        requested: The call as requested.
        definition: The definition of its tool.
        instance: Its own instance of the tool.
        feed: Receives a message about each stage.
    """

    def __init__(
        self, requested: ToolCall, definition: ToolDefinition, instance: Tool, feed: Feed
    ) -> None:
        self.id = requested.tool_call_id
        self.tool = requested.tool_name
        self.args: dict[str, Any] = copy(requested.args)
        """Arguments from the caller."""
        self.definition = definition
        self.instance: Tool | None = instance
        self.stage: Stage = "tool_registered"
        self.is_loading = True
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
        self.result: ToolResult | None = None
        """The result of its tool, if that ran in this process."""
        self.replayed = False
        """Whether an earlier process made the call."""
        self.context: Context = copy_context()
        """Context of the caller, in which the tool runs."""
        self.question: Future[ApprovalResponse] | None = None
        """The open question, if any."""
        self.response: Future[EnvironmentResponse] = lasting()
        self.stopped: Future[Any] = lasting()
        """Done when the call must stop, with the reason, or when it has ended."""
        self.submitted = False
        """Whether it was submitted for approval before it is made."""
        self.started = False
        """Whether `execute_tool` has started it."""
        self.produced: list[str] = []
        self._feed = feed
        self._shown: dict[str, Any] | None = None
        self._has_views = True
        self._ended = False
        self._lock = threading.RLock()

    @property
    def options(self) -> Tool:
        """The options of its tool."""
        return self.definition.options

    def move(self, stage: Stage, **fields: Any) -> None:
        """Move to a stage, and publish it with further fields."""
        self.stage = stage
        self.tell(stage, **fields)

    def tell(self, kind: str, **fields: Any) -> None:
        """Publish a message about the call."""
        self._feed.publish(kind, tool_call_id=self.id, tool_name=self.tool, **fields)

    def view(self) -> ToolCall:
        """Return a copy of the call in its current state."""
        return ToolCall(
            tool_call_id=self.id, tool_name=self.tool, is_loading=self.is_loading,
            args=copy(self.args if self.changed is None else self.changed),
            is_approval_pending=self.question is not None,
        )  # fmt: skip

    # Arguments that arrive in parts

    async def update(self, args: dict[str, Any], *, is_final: bool) -> None:
        """Process newly arrived arguments.

        Args:
            args: All arguments so far.
            is_final: Whether they are complete.

        Raises:
            CallError: The arguments are final already.
        """
        if not self.is_loading:
            raise CallError(
                "late_update", f"call {self.id}: its arguments are final and cannot be changed"
            )
        self.args = copy(args)
        await (self.finish() if is_final else self._show())

    async def finish(self) -> None:
        """Make the arguments final, if they are not yet."""
        if self.is_loading:
            self.is_loading = False
            if self.args != self._shown:
                await self._show()
            self.move("parameters_final", call=self.view())

    async def _show(self) -> None:
        """Publish the arguments so far, and the tool's own view of them."""
        self._shown = copy(self.args)
        self.move("parameters_updated", call=self.view())
        instance: Any = self.instance
        if self._has_views and overrides(instance, "load_ui"):
            shown = call_plugin(instance.load_ui, copy(self.args))
            data, why = data_of(await bounded(VIEW_TIME, shown), VIEW_TIME)
            if why is not None:
                self._has_views = False
                self.tell("warning", code="load_ui", message=f"load_ui of '{self.tool}': {why}")
            elif data is not None:
                self.tell("view", view=data)

    def replace(self, args: dict[str, Any]) -> bool:
        """Replace the arguments of a call that was only submitted, and forget its decision.

        Returns:
            False: the arguments cannot change.
        """
        with self._lock:
            if not self.submitted or self.started or self.question or self.response.done():
                return False
            self.args, self.decision = copy(args), None
        self.move("parameters_final", call=self.view())
        return True

    # The end

    def take_up(self) -> bool:
        """Mark the call as started. Return False if it was started, or has ended, already."""
        with self._lock:
            taken, self.started = self.started or self.response.done(), True
        self.context = copy_context()
        return not taken

    def respond(self, response: EnvironmentResponse) -> None:
        """End the call with a response, and drop all that only a call in progress needs."""
        self.is_loading, self.produced, self.context = False, [], Context()
        with self._lock:
            self.response.set_result(response)
            if not self.stopped.done():
                self.stopped.set_result(None)

    @property
    def stop(self) -> Stop | None:
        """Why the call must stop, or None."""
        return self.stopped.result() if self.stopped.done() else None

    def halt(self, why: Stop) -> bool:
        """Stop the call, on any thread. Return False if it has ended or was stopped already."""
        with self._lock:
            if self._ended or self.stopped.done():
                return False
            self.stopped.set_result(why)
            return True

    def end(self) -> bool:
        """Record that the tool ended by itself. Return False if the call was stopped before."""
        with self._lock:
            self._ended = not self.stopped.done()
            return self._ended

    async def unless_stopped(self, work: asyncio.Future[Any]) -> bool:
        """Wait until work or the call ends, or the call must stop, and return whether work has."""
        stopped = asyncio.wrap_future(self.stopped)
        try:
            await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        return work.done()

    def decide(self, decision: ApprovalResponse) -> bool:
        """Answer the open question, on any thread. Return False if it is no longer open."""
        with self._lock:
            question = self.question
            if question is None or question.done():
                return False
            question.set_result(decision)
            return True


def digest_of(args: Any) -> str:
    """Return a digest of arguments, which is equal for equal data."""

    def encoded(value: Any) -> Any:
        if isinstance(value, bytes):
            return {"bytes": b64encode(value).decode()}
        return {"type": type(value).__qualname__, "repr": repr(value)}

    text = json.dumps(args, sort_keys=True, separators=(",", ":"), default=encoded)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()

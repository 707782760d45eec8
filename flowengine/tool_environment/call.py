"""One call in progress: its decision, its end, and its state."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from base64 import b64encode
from concurrent.futures import Future
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Literal

from flowengine.engines.attempts.serialization import copy
from flowengine.sdk.tool_calls import ApprovalResponse, EnvironmentResponse, ToolCall
from flowengine.sdk.user_code import lasting
from flowengine.tool_environment.clients import Feed
from flowengine.tool_environment.context import Turns
from flowengine.tool_environment.parameters import ArrivingCall

if TYPE_CHECKING:
    from flowengine.tool_environment.tools import Tool, ToolDefinition

Stop = Literal["aborted", "timed_out"]


current: ContextVar[AdmittedCall | None] = ContextVar("call", default=None)
"""The call whose tool runs in this context. Calls that the tool makes run within its turn."""


class AdmittedCall(ArrivingCall):
    """A call that an environment has admitted.

    Args:
        requested: The call as requested.
        feed: Receives a message about each stage.
        lock: Guards attributes that several threads change.
    """

    def __init__(self, requested: ToolCall, feed: Feed, lock: threading.RLock) -> None:
        super().__init__(requested, feed)
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
        self.replayed = False
        """Whether an earlier process made the call."""
        self.context: Context = copy_context()
        """Context of the caller, in which the tool runs."""
        self.definition: ToolDefinition | None = None
        self.question: Future[ApprovalResponse] | None = None
        """The open question, if any."""
        self.response: Future[EnvironmentResponse] = lasting()
        self.stopped: Future[Any] = lasting()
        """Done when the call must stop, with the reason, or when it has ended."""
        self.submitted = False
        """Whether it was submitted for approval before it is made."""
        self.started = False
        """Whether `execute_tool` has started it."""
        self.turns: Turns | None = None
        """Turns of the calls that its own tool makes."""
        self.produced: list[str] = []
        self._ended = False
        self._lock = lock

    @property
    def options(self) -> Tool:
        """The options of its tool."""
        assert self.definition is not None
        return self.definition.options

    def view(self) -> ToolCall:
        """Return a copy of the call in its current state."""
        view = super().view()
        view.is_approval_pending = self.question is not None
        if self.changed is not None:
            view.args = copy(self.changed)
        return view

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

    def take_up(self) -> bool:
        """Mark the call as started. Return False if it was started, or has ended, already."""
        with self._lock:
            taken, self.started = self.started or self.response.done(), True
        self.context = copy_context()
        return not taken

    def turns_within(self, limit: int) -> Turns:
        """Return the turns of the calls that its tool makes."""
        with self._lock:
            if self.turns is None:
                self.turns = Turns(limit)
            return self.turns

    def respond(self, response: EnvironmentResponse) -> None:
        """End the call with a response."""
        with self._lock:
            self.response.set_result(response)
            if not self.stopped.done():
                self.stopped.set_result(None)

    def forget(self) -> None:
        """Enter the last stage, and drop everything that only a call in progress needs.

        Many ended calls are kept for their results.
        """
        self.move("disposal")
        self.is_loading = False
        self.instance = None
        self.turns = None
        self.produced = []
        self.context = Context()

    # Stopping

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
            if self.stopped.done():
                return False
            self._ended = True
            return True

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
    text = json.dumps(args, sort_keys=True, separators=(",", ":"), default=_encoded)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": b64encode(value).decode()}
    return {"type": type(value).__qualname__, "repr": repr(value)}

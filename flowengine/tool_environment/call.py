"""One call in progress: its stages, its arguments, and its state."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from base64 import b64encode
from concurrent.futures import Future
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from flowengine.engines.attempts.serialization import copy
from flowengine.sdk.tool_calls import ApprovalResponse, EnvironmentResponse, ToolCall
from flowengine.tool_environment.abort import AbortController
from flowengine.tool_environment.feed import Feed
from flowengine.tool_environment.turns import Turns

if TYPE_CHECKING:
    from flowengine.tool_environment.tools import Tool, ToolDefinition, ToolOptions

Stage = Literal[
    "tool_registered",
    "call_registered",
    "parameters_updated",
    "parameters_final",
    "approval",
    "execution",
    "observers",
    "result",
    "disposal",
]

STAGES: tuple[Stage, ...] = get_args(Stage)
"""The stages of a call, in order."""
_REPEATED: frozenset[Stage] = frozenset({"parameters_updated", "approval"})

Stop = Literal["aborted", "timed_out"]


current: ContextVar[AdmittedCall | None] = ContextVar("call", default=None)
"""The call whose tool runs in this context. Calls that the tool makes run within its turn."""


class Submitted:
    """The state of a call that was submitted for approval before it is made."""

    def __init__(self) -> None:
        self.decided: Future[EnvironmentResponse] = Future()
        """The decision about the call."""
        self.made: Future[None] = Future()
        """Done when the call is made."""
        for future in (self.decided, self.made):
            future.set_running_or_notify_cancel()  # prevents cancellation by a waiting task

    async def is_made(self, call: AdmittedCall, decision: ApprovalResponse | None) -> bool:
        """Report the decision to the submitter of the call, and wait until the call is made.

        Args:
            call: The call.
            decision: The decision, if an approver made one.

        Returns:
            False: the call must stop.
        """
        if decision is not None and not self.decided.done():
            self.decided.set_result(EnvironmentResponse(result=decision))
        return await call.unless_stopped(asyncio.wrap_future(self.made))


class Incoming(Protocol):
    """Receives the arguments of a call as they arrive."""

    fault: str | None
    """Why the final arguments cannot be used."""

    def update(self, args: dict[str, Any] | None, text: str | None, *, is_final: bool) -> None:
        """Process newly arrived arguments."""

    @property
    def is_shown(self) -> bool:
        """Whether no view is in progress."""

    async def end(self) -> None:
        """Wait until no view is in progress."""


class AdmittedCall:
    """A call that an environment has admitted.

    Args:
        call: The call as requested.
        feed: Receives a message about each stage.
        lock: Guards attributes that several threads change.
    """

    def __init__(self, call: ToolCall, feed: Feed, lock: threading.RLock) -> None:
        self.id = call.tool_call_id
        self.tool = call.tool_name
        self.args: dict[str, Any] = copy(call.args)
        """Arguments from the caller."""
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
        self.number = 0
        """How often other calls were submitted for approval with this id, and not made."""
        self.replayed = False
        """Whether an earlier process made the call."""
        self.context: Context = copy_context()
        """Context of the caller, in which the tool runs."""
        self.stage: Stage = "tool_registered"
        self.is_loading = True
        self.definition: ToolDefinition | None = None
        self.instance: Tool | None = None
        self.arriving: Incoming | None = None
        self.controller = AbortController()
        self.question: Future[ApprovalResponse] | None = None
        """The open question, if any."""
        self.response: Future[EnvironmentResponse] = Future()
        self.response.set_running_or_notify_cancel()  # prevents cancellation by a waiting task
        self.work: asyncio.Future[EnvironmentResponse] | None = None
        """The task that approves and runs it."""
        self.submitted: Submitted | None = None
        """Whether the call was first submitted for approval only."""
        self.started = False
        """Whether `execute_tool` has started it."""
        self.turns: Turns | None = None
        """Turns of the calls that its own tool makes."""
        self.produced: list[str] = []
        self.stop: Stop | None = None
        self._ended = False
        self._feed = feed
        self._lock = lock
        self._stopped: Future[None] = Future()
        self._stopped.set_running_or_notify_cancel()

    def move(self, stage: Stage, **fields: Any) -> None:
        """Move to the next stage, and publish it.

        Args:
            stage: The stage.
            **fields: Further fields of the message.

        Raises:
            RuntimeError: The stage does not follow the current one.
        """
        steps = STAGES.index(stage) - STAGES.index(self.stage)
        # Rejected, invalid, or aborted before it started: a result without a run.
        ends = steps > 0 and stage == "result"
        if not (ends or steps == 1 or (steps == 0 and stage in _REPEATED)):
            raise RuntimeError(f"call {self.id}: {stage} does not follow {self.stage}")
        self.stage = stage
        self.tell(stage, **fields)

    def tell(self, kind: str, **fields: Any) -> None:
        """Publish a message about the call.

        Args:
            kind: Type of the message.
            **fields: Further fields of the message.
        """
        self._feed.publish(kind, tool_call_id=self.id, tool_name=self.tool, **fields)

    def warn(self, code: str, message: str) -> None:
        """Publish a warning about the call."""
        self.tell("warning", code=code, message=message)

    @property
    def options(self) -> ToolOptions:
        """The options of its tool."""
        assert self.definition is not None
        return self.definition.options

    def view(self) -> ToolCall:
        """Return a copy of the call in its current state."""
        return ToolCall(
            tool_call_id=self.id,
            tool_name=self.tool,
            args=copy(self.args if self.changed is None else self.changed),
            is_approval_pending=self.question is not None,
            is_loading=self.is_loading,
        )

    @property
    def may_change(self) -> bool:
        """Whether it was only submitted for approval, so that its arguments can still change."""
        return self.submitted is not None and not self.started

    def take_up(self) -> bool:
        """Mark the call as started. Return False if it was started already."""
        with self._lock:
            taken, self.started = self.started, True
        self.context = copy_context()
        if not taken and self.submitted is not None:
            self.submitted.made.set_result(None)
        return not taken

    def turns_within(self, limit: int) -> Turns:
        """Return the turns of the calls that its tool makes."""
        with self._lock:
            if self.turns is None:
                self.turns = Turns(limit)
            return self.turns

    def forget(self) -> None:
        """Enter the last stage, and drop everything that only a call in progress needs.

        Many ended calls are kept for their results.
        """
        self.move("disposal")
        self.instance = None
        self.arriving = None
        self.turns = None
        self.produced = []
        self.controller = _ENDED
        self.context = Context()
        self.work = None

    # Stopping

    def halt(self, why: Stop) -> bool:
        """Stop the call, on any thread. Return False if it has ended or was stopped already."""
        with self._lock:
            if self._ended or self.stop is not None or self.response.done():
                return False
            self.stop = why
        self.controller.abort(why)
        self._stopped.set_result(None)
        return True

    async def withdrawn(self) -> None:
        """Stop the call, and wait until it has ended if it was submitted."""
        self.halt("aborted")
        if self.work is not None:
            await asyncio.shield(asyncio.wrap_future(self.response))

    def end(self) -> bool:
        """Record that the tool ended by itself. Return False if the call was stopped before."""
        with self._lock:
            if self.stop is not None:
                return False
            self._ended = True
            return True

    async def unless_stopped(self, work: asyncio.Future[Any]) -> bool:
        """Wait until work ends or the call must stop, and return whether the work has ended."""
        stopped = asyncio.wrap_future(self._stopped)
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


_ENDED = AbortController()
"""Shared by ended calls, whose signal is no longer used."""


def digest_of(args: Any) -> str:
    """Return a digest of arguments, which is equal for equal data."""
    text = json.dumps(args, sort_keys=True, separators=(",", ":"), default=_encoded)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": b64encode(value).decode()}
    return {"type": type(value).__qualname__, "repr": repr(value)}

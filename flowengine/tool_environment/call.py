"""One call on its way: its stages, its arguments, and how it stands."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from base64 import b64encode
from concurrent.futures import Future
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args

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
"""The stages of a call in their order."""
_REPEATED: frozenset[Stage] = frozenset({"parameters_updated", "approval"})  # asked anew

Stop = Literal["aborted", "timed_out"]


current: ContextVar[Call | None] = ContextVar("call", default=None)
"""The call whose tool runs here: what it calls itself runs within its turn."""


class Grant(NamedTuple):
    """What was approved: it holds for this version of the tool and these arguments."""

    version: str
    digest: str
    decision: ApprovalResponse


class Incoming(Protocol):
    """Takes the arguments of a call as they arrive."""

    fault: str | None
    """Why the final arguments cannot be used."""

    def update(self, args: dict[str, Any] | None, text: str | None, *, is_final: bool) -> None:
        """Take what has arrived."""

    @property
    def is_shown(self) -> bool:
        """Whether nothing of it is under way."""

    async def end(self) -> None:
        """Wait until nothing of it is under way."""


class Call:
    """A call that an environment has taken.

    Args:
        call: As it was made.
        feed: Is told of each stage.
        lock: Guards what more than one thread changes.
    """

    def __init__(self, call: ToolCall, feed: Feed, lock: threading.RLock) -> None:
        self.id = call.tool_call_id
        self.tool = call.tool_name
        self.args: dict[str, Any] = copy(call.args)
        """As the caller gave them."""
        self.masked: dict[str, Any] = {}
        """As the engine keeps them, and as whoever is asked sees them: without secrets."""
        self.changed: dict[str, Any] | None = None
        """As somebody changed them before approving."""
        self.granted: Grant | None = None
        """What somebody has approved who was asked before the call is made."""
        self.decision: ApprovalResponse | None = None
        """What was decided about it in this process."""
        self.execution = ""
        """Id of its execution."""
        self.replayed = False
        """Whether an earlier process made the call."""
        self.context: Context = copy_context()
        """That of whoever makes the call: its tool runs there."""
        self.stage: Stage = "tool_registered"
        self.is_loading = True
        self.definition: ToolDefinition | None = None
        self.instance: Tool | None = None
        self.arriving: Incoming | None = None
        self.controller = AbortController()
        self.question: Future[ApprovalResponse] | None = None
        """Open while somebody is asked."""
        self.response: Future[EnvironmentResponse] = Future()
        self.response.set_running_or_notify_cancel()  # nobody who stops waiting cancels it
        self.provisional = False
        """It came in to be approved only; it may still be made with other arguments."""
        self.started = False
        """Whether `execute_tool` has taken it up."""
        self.running = False
        self.turns: Turns | None = None
        """Of the calls that its own tool makes."""
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
            **fields: The rest of its message.

        Raises:
            RuntimeError: It does not follow from where the call is.
        """
        steps = STAGES.index(stage) - STAGES.index(self.stage)
        # Rejected, invalid, or aborted before it began: a result, but nothing ran.
        ends = steps > 0 and stage == "result"
        if not (ends or steps == 1 or (steps == 0 and stage in _REPEATED)):
            raise RuntimeError(f"call {self.id}: {stage} does not follow {self.stage}")
        self.stage = stage
        self.tell(stage, **fields)

    def tell(self, kind: str, **fields: Any) -> None:
        """Publish a message about the call.

        Args:
            kind: What it tells.
            **fields: The rest of the message.
        """
        self._feed.publish(kind, tool_call_id=self.id, tool_name=self.tool, **fields)

    def warn(self, code: str, message: str) -> None:
        """Publish a warning about the call."""
        self.tell("warning", code=code, message=message)

    @property
    def options(self) -> ToolOptions:
        """What its tool says of itself."""
        assert self.definition is not None
        return self.definition.options

    def view(self) -> ToolCall:
        """Return the call as it stands, as a copy."""
        return ToolCall(
            tool_call_id=self.id,
            tool_name=self.tool,
            args=copy(self.args if self.changed is None else self.changed),
            is_approval_pending=self.question is not None,
            is_loading=self.is_loading,
        )

    def take_up(self) -> bool:
        """Note that somebody runs the call; return False if somebody does already."""
        with self._lock:
            taken, self.started = self.started, True
            return not taken

    def turns_within(self, limit: int) -> Turns:
        """Return who may run beside whom among the calls that its tool makes."""
        with self._lock:
            if self.turns is None:
                self.turns = Turns(limit)
            return self.turns

    def forget(self) -> None:
        """End the last stage, and drop what only a call needs that is under way.

        Many are remembered for their results.
        """
        self.move("disposal")
        self.instance = None
        self.arriving = None
        self.turns = None
        self.produced = []
        self.controller = _ENDED
        self.context = Context()

    # Stopping

    def halt(self, why: Stop) -> bool:
        """Stop the call, on any thread; return False if it has ended, or is stopped already."""
        with self._lock:
            if self._ended or self.stop is not None or self.response.done():
                return False
            self.stop = why
        self.controller.abort(why)
        self._stopped.set_result(None)
        return True

    def end(self) -> bool:
        """Note that the tool has ended by itself; return False if it was stopped before."""
        with self._lock:
            if self.stop is not None:
                return False
            self._ended = True
            return True

    async def unless_stopped(self, work: asyncio.Future[Any]) -> bool:
        """Wait until some work has ended, or the call is to stop; return whether the work has."""
        stopped = asyncio.wrap_future(self._stopped)
        try:
            await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        return work.done()

    def decide(self, decision: ApprovalResponse) -> bool:
        """Answer the open question, on any thread; return False if there is none any more."""
        with self._lock:
            question = self.question
            if question is None or question.done():
                return False
            question.set_result(decision)
            return True


_ENDED = AbortController()
"""Of calls that have ended; nobody holds its signal."""


def digest_of(args: Any) -> str:
    """Return a digest of arguments: the same for all ways to write the same data."""
    text = json.dumps(args, sort_keys=True, separators=(",", ":"), default=_encoded)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": b64encode(value).decode()}
    return {"type": type(value).__qualname__, "repr": repr(value)}

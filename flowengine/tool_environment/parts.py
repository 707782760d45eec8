"""Objects shared by all calls of one environment."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from flowengine.sdk.tool_calls import ToolCall
from flowengine.secrets import Secrets
from flowengine.tool_environment.call import AdmittedCall
from flowengine.tool_environment.context import ToolState
from flowengine.tool_environment.feed import Feed
from flowengine.tool_environment.journal import CallJournal
from flowengine.tool_environment.observers import Observers
from flowengine.tool_environment.registry import InstanceRegistry
from flowengine.tool_environment.resources import Resources
from flowengine.tool_environment.turns import Turns

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

"""Calls whose arguments arrive in parts, and the tool's view of partial arguments."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

from flowengine.engines.attempts.serialization import copy
from flowengine.sdk.tool_calls import ToolCall
from flowengine.sdk.user_code import bounded, call
from flowengine.tool_environment.clients import Feed
from flowengine.tool_environment.errors import CallError
from flowengine.tool_environment.tools import Tool, overrides

PER_SECOND = 19
"""Maximum views per second while arguments arrive, plus one of the final arguments."""
VIEW_TIME = 2.0
"""Maximum seconds for `load_ui`."""
LARGEST = 16 * 1024 * 1024
"""Maximum characters of the arguments of one call."""


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
"""The stages of a call, in order."""


class ArrivingCall:
    """A call whose arguments may still arrive.

    Args:
        requested: The call as requested.
        feed: Receives a message about each stage.
    """

    def __init__(self, requested: ToolCall, feed: Feed) -> None:
        self.id = requested.tool_call_id
        self.tool = requested.tool_name
        self.args: dict[str, Any] = copy(requested.args)
        """Arguments from the caller."""
        self.stage: Stage = "tool_registered"
        self.is_loading = True
        self.instance: Tool | None = None
        self.fault: str | None = None
        """Why the final arguments cannot be used."""
        self._feed = feed
        self._pieces: list[str] = []
        self._size = 0
        self._times: list[float] = []
        """When the last views were shown."""
        self._shown: dict[str, Any] | None = None
        self._views: list[dict[str, Any]] = []
        self._showing: asyncio.Task[None] | None = None
        self._broken = False
        self._timer: asyncio.TimerHandle | None = None

    def move(self, stage: Stage, **fields: Any) -> None:
        """Move to a stage, and publish it.

        Args:
            stage: The stage.
            **fields: Further fields of the message.
        """
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

    def view(self) -> ToolCall:
        """Return a copy of the call in its current state."""
        args = copy(self.args)
        return ToolCall(
            tool_call_id=self.id, tool_name=self.tool, args=args, is_loading=self.is_loading
        )

    def update(
        self, args: dict[str, Any] | None, text: str | None = None, *, is_final: bool
    ) -> None:
        """Process newly arrived arguments.

        Args:
            args: All arguments so far. None: they are unchanged, or arrive as text.
            text: The next piece of the arguments as JSON text.
            is_final: Whether the arguments are complete.

        Raises:
            CallError: The arguments are final already.
        """
        if not self.is_loading:
            raise CallError(
                "late_update", f"call {self.id}: its arguments are final and cannot be changed"
            )
        if text is not None:
            self._add(text)
        elif args is not None:
            self.args = copy(args)
            self._pieces.clear()
        if is_final:
            self.finish()
        elif self._may_show():
            self._show()

    def finish(self) -> None:
        """Make the arguments final, if they are not yet."""
        if not self.is_loading:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pieces and self.fault is None:
            self.args, self.fault = _parse("".join(self._pieces))
        if self.args != self._shown:
            self._show(final=True)
        self.is_loading = False
        self.move("parameters_final", call=self.view())

    def _add(self, text: str) -> None:
        self._size += len(text)
        if self._size > LARGEST:
            self.fault = f"the arguments have more than {LARGEST} characters"
            self._pieces.clear()
        else:
            self._pieces.append(text)

    # Views

    @property
    def is_shown(self) -> bool:
        """Whether no view is in progress."""
        return self._showing is None or self._showing.done()

    async def shown(self) -> None:
        """Wait until all views are shown."""
        if self._showing is not None:
            await asyncio.wait([self._showing])

    def _may_show(self) -> bool:
        """Return whether a view is due. If it is too early, schedule one."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if len(self._times) < PER_SECOND or now - self._times[0] >= 1:
            return True
        if self._timer is None:
            self._timer = loop.call_at(self._times[0] + 1, self._show_late)
        return False

    def _show_late(self) -> None:
        self._timer = None
        if self.is_loading:
            self._show()

    def _show(self, *, final: bool = False) -> None:
        if self._pieces and not final and self.fault is None:
            self.args = _partial("".join(self._pieces), self.args)
        self._times = [*self._times[1 - PER_SECOND :], asyncio.get_running_loop().time()]
        self._shown = copy(self.args)
        self.move("parameters_updated", call=self.view())
        if self.instance is not None and overrides(self.instance, "load_ui") and not self._broken:
            self._views.append(self._shown)
            if self.is_shown:
                self._showing = asyncio.ensure_future(self._show_all(self.instance))

    async def _show_all(self, instance: Tool) -> None:
        from flowengine.tool_environment.observers import as_data

        while self._views and not self._broken:
            outcome = await bounded(VIEW_TIME, call(instance.load_ui, copy(self._views.pop(0))))
            why = outcome.fault(VIEW_TIME)
            if why is not None:
                self._broken = True
                self.warn("load_ui", f"load_ui of '{self.tool}': {why}")
            elif outcome.value is not None:
                data, note = as_data(outcome.value)
                self.tell("view", view=data, note=note)


def _parse(text: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments from a complete text, or a description of the error."""
    try:
        value = json.loads(text)
    except ValueError as error:
        end = text[-60:]
        return {}, f"the arguments are not complete JSON ({error}); they end with: {end}"
    if not isinstance(value, dict):
        return {}, f"the arguments must be a JSON object, not {type(value).__name__}"
    return value, None


def _partial(text: str, before: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments from the beginning of a text."""
    from pydantic_core import from_json

    try:
        value = from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return before
    return value if isinstance(value, dict) else before

"""Arguments that arrive in parts, and the tool's view of partial arguments."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any

from flowengine.engines.attempts.serialization import copy
from flowengine.sdk.user_code import bounded, call
from flowengine.tool_environment.call import AdmittedCall
from flowengine.tool_environment.errors import CallError
from flowengine.tool_environment.tools import Tool

PER_SECOND = 19
"""Maximum views per second while arguments arrive, plus one of the final arguments."""
VIEW_TIME = 2.0
"""Maximum seconds for `load_ui`."""
LARGEST = 16 * 1024 * 1024
"""Maximum characters of the arguments of one call."""


class ArrivingArguments:
    """The arguments of one call while they arrive.

    Args:
        call: The call.
    """

    def __init__(self, call: AdmittedCall) -> None:
        self._call = call
        self._pieces: list[str] = []
        self._size = 0
        self._times: deque[float] = deque(maxlen=PER_SECOND)
        self._shown: dict[str, Any] | None = None
        self._views: deque[dict[str, Any]] = deque()
        self._showing: asyncio.Task[None] | None = None
        self._broken = False
        self._timer: asyncio.TimerHandle | None = None
        self.fault: str | None = None
        """Why the final arguments cannot be used."""

    def update(self, args: dict[str, Any] | None, text: str | None, *, is_final: bool) -> None:
        """Process newly arrived arguments.

        Args:
            args: All arguments so far. None: they arrive as text.
            text: The next piece of the arguments as JSON text.
            is_final: Whether the arguments are complete.

        Raises:
            CallError: The arguments are final already.
        """
        made = self._call
        if not made.is_loading:
            raise CallError(
                "late_update", f"call {made.id}: its arguments are final and cannot be changed"
            )
        if text is not None:
            self._add(text)
        elif args is not None:
            made.args = copy(args)
            self._pieces.clear()
        if is_final:
            self._finish()
        elif self._may_show():
            self._show()

    def _add(self, text: str) -> None:
        self._size += len(text)
        if self._size > LARGEST:
            self.fault = f"the arguments have more than {LARGEST} characters"
            self._pieces.clear()
        else:
            self._pieces.append(text)

    def _finish(self) -> None:
        made = self._call
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pieces and self.fault is None:
            made.args, self.fault = _parse("".join(self._pieces))
        if made.args != self._shown:
            self._show(final=True)
        made.is_loading = False
        made.move("parameters_final", call=made.view())

    # Views

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
        if self._call.is_loading:
            self._show()

    def _show(self, *, final: bool = False) -> None:
        made = self._call
        if self._pieces and not final and self.fault is None:
            made.args = _partial("".join(self._pieces), made.args)
        self._times.append(asyncio.get_running_loop().time())
        self._shown = copy(made.args)
        made.move("parameters_updated", call=made.view())
        if made.instance is not None and _has_view(made.instance) and not self._broken:
            self._views.append(self._shown)
            if self._showing is None or self._showing.done():
                self._showing = asyncio.ensure_future(self._show_all(made.instance))

    async def _show_all(self, instance: Tool) -> None:
        while self._views and not self._broken:
            partial = self._views.popleft()
            outcome = await bounded(VIEW_TIME, call(instance.load_ui, copy(partial)))
            why = outcome.fault(VIEW_TIME)
            if why is not None:
                self._broken = True
                self._call.warn("load_ui", f"load_ui of '{self._call.tool}': {why}")
            elif outcome.value is not None:
                self._publish(outcome.value)

    def _publish(self, view: Any) -> None:
        from flowengine.tool_environment.observers import as_data

        data, note = as_data(view)
        self._call.tell("view", view=data, note=note)

    @property
    def is_shown(self) -> bool:
        """Whether no view is in progress."""
        return self._showing is None or self._showing.done()

    async def end(self) -> None:
        """Wait until all views are shown."""
        if self._showing is not None:
            await asyncio.wait([self._showing])


def _has_view(instance: Tool) -> bool:
    load_ui = getattr(type(instance), "load_ui", None)
    return load_ui is not None and load_ui is not Tool.load_ui


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

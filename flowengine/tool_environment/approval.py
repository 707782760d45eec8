"""Requests for decisions about calls from a function, and the turns of calls. In doubt, no."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from flowengine.errors import InputError
from flowengine.sdk.python.argument_checks import check_function, check_kinds
from flowengine.sdk.python.user_code import bounded, is_coroutine_function, lasting
from flowengine.sdk.python.user_code import call as call_plugin
from flowengine.sdk.tools.tool_calls import ApprovalResponse, EnvironmentResponse, ToolCall


class CallbackAuthority:
    """Requests decisions from a callback.

    Args:
        callback: Takes the call and returns an `ApprovalResponse`, a mapping with the same fields,
            or a boolean. It can be a coroutine function.
        timeout: Maximum seconds for the callback. None: unlimited.
    """

    def __init__(self, callback: Any, *, timeout: float | None = None) -> None:
        check_kinds(float, timeout=timeout)
        check_function(callback, "it takes a ToolCall")
        self._callback = callback
        self._timeout = timeout
        self._turns = Turns()

    async def approve_tool(self, call_: ToolCall) -> EnvironmentResponse:
        """Request a decision about a call, without running it.

        Args:
            call_: The call.

        Returns:
            The decision. Anything other than a valid approval is a rejection, with the reason as
            feedback.
        """
        # A blocking callback, such as a prompt at a terminal, receives one call at a time.
        with self._turns.queue(exclusive=not is_coroutine_function(self._callback)) as granted:
            await asyncio.wrap_future(granted)
            outcome = await bounded(self._timeout, call_plugin(self._callback, call_))
        fault = outcome.fault(self._timeout)
        try:
            decision = ApprovalResponse.of(outcome.value)
        except InputError as error:
            how = f"did not answer within {self._timeout} s" if outcome.late else f"raised {fault}"
            why = f" {how}" if fault else f"'s answer was refused: {error.message}"
            why = f"the approval callback{why}"[:2000]
            decision = ApprovalResponse(approved=False, feedback=why)
        return EnvironmentResponse(result=decision.model_copy(update={"by": "callback"}))


_Turn = tuple[Future[Any], bool]


class Turns:
    """Grants turns to calls of one environment, on any loop and thread, in order.

    A call whose tool does not support parallel execution runs alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: list[_Turn] = []
        """Those who run, whose futures are done, and behind them those who wait."""

    @contextmanager
    def queue(self, *, exclusive: bool = True) -> Iterator[Future[Any]]:
        """Queue up for a turn, which ends with the block.

        Args:
            exclusive: Whether no other call may run concurrently.

        Yields:
            A future that is done when it is the caller's turn.
        """
        turn = (lasting(), exclusive)
        self._change(self._line.append, turn)
        try:
            yield turn[0]
        finally:
            self._change(self._line.remove, turn)

    def _change(self, change: Callable[[_Turn], None], turn: _Turn) -> None:
        with self._lock:
            change(turn)
            for place, (granted, exclusive) in enumerate(self._line):
                if place and (exclusive or self._line[0][1]):
                    return
                if not granted.done():
                    granted.set_result(None)

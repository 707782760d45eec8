"""State reducers in Python: functions of users that the kernel needs while it applies an event.

A function may take any time, or never return. On an event loop, the events of an execution that
need its result are therefore put back, and applied again once it has returned on its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any, NamedTuple

from flowengine.engines.attempts.serialization import copy
from flowengine.journal.encoding import pack
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.sdk.errors import raised
from flowengine.sdk.python.imported_modules import import_function
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.values.plain_values import to_plain
from flowengine.util.loops import is_interrupt

AT_ONCE = 0.02
"""Seconds that an event loop waits for functions before it puts events back."""


class Unreduced(BaseException):
    """The result of a function is not known. No code of the kernel may catch this.

    Args:
        reducer: `python` and `folder`: see `reducer`.
        old: The current value.
        new: The written value.
    """

    def __init__(self, reducer: dict[str, str], old: Any, new: Any) -> None:
        super().__init__(reducer["python"])
        self.given = [reducer, old, new]


class _Call(NamedTuple):
    """A function that was called on a thread."""

    given: bytes
    """The reducer, the current value and the written one."""
    result: Future[Any]
    end: float
    """Monotonic time until which it is waited for."""


class Reductions:
    """The functions that the present events of one execution need, in order.

    Args:
        wake: Called from any thread when a function that was waited for has returned.
    """

    def __init__(self, wake: Callable[[object], object]) -> None:
        self._wake = wake
        self._calls: list[_Call] = []
        self._place = 0
        self._began = 0.0
        self._room: float | None = None
        """Seconds that the event loop still waits. None: no function has been called anew."""

    def patience(self) -> float:
        """Return for how many seconds a function is still waited for. 0: for none."""
        ends = [call.end for call in self._calls if not call.result.done()]
        return max(max(ends, default=0.0) - monotonic(), 0.0)

    @contextmanager
    def applying(self) -> Iterator[None]:
        """Apply the events in a block, for the first time or again."""
        self._place, self._began, self._room = 0, monotonic(), None
        token = _REDUCTIONS.set(self)
        try:
            yield
        finally:
            _REDUCTIONS.reset(token)
            if not self.patience():
                self._calls.clear()

    def result(self, given: list[Any], begin: Callable[[], Future[Any]], end: float) -> Any:
        """Return the result of the next function.

        Args:
            given: The reducer, the current value and the written one.
            begin: Calls it on a thread.
            end: Monotonic time until which it is waited for.

        Raises:
            Unreduced: It has not returned yet.
            _NotReturned: It does not return.
        """
        packed, place = pack(given), self._place
        self._place += 1
        if place == len(self._calls) or self._calls[place].given != packed:
            call = _Call(packed, begin(), end)
            self._calls[place:] = [call]
            now = monotonic()
            if self._room is None:  # as long as it took to get here, so that this pays
                self._room = max(AT_ONCE, now - self._began)
            if not _has_returned(call.result, max(self._room, 0.0)):
                call.result.add_done_callback(self._wake)
            self._room -= monotonic() - now
        call = self._calls[place]
        if not call.result.done() and monotonic() < call.end:
            raise Unreduced(*given)
        return _result(call.result, 0)


_REDUCTIONS: ContextVar[Reductions | None] = ContextVar("flowengine.reductions", default=None)
"""Those of the execution whose events are being applied. None: the thread waits for functions."""


def reducers_of(compiled: CompiledFlow) -> list[str]:
    """Return the Python functions used as state reducers, as `module:function`, each once."""
    flows = [compiled, *compiled.get("flows", ())]
    reducers = [spec.get("reducer") for flow in flows for spec in flow.get("state", {}).values()]
    return list(
        dict.fromkeys(reducer["python"] for reducer in reducers if isinstance(reducer, dict))
    )


class _NotReturned(ValueError):
    """A function did not return in time."""


def reducer(given: dict[str, str]) -> Callable[[Any, Any], Any]:
    """Return the function that a flow names as the reducer of a state key.

    It receives copies and returns plain data. All its exceptions become a `ValueError`.

    Args:
        given: `python`: `module:name`. `folder`: the directory to search first for modules.
    """

    def reduce(old: Any, new: Any) -> Any:
        from flowengine.sdk.python.user_code import FUNCTION_SECONDS, begin

        values, reductions = (copy(old), copy(new)), _REDUCTIONS.get()

        def call() -> Any:
            return to_plain(import_function(given["python"], given["folder"])(*values))

        try:
            if reductions is None:
                return _result(begin(call), FUNCTION_SECONDS)
            end = monotonic() + FUNCTION_SECONDS
            return reductions.result([given, old, new], lambda: begin(call), end)
        except _NotReturned:
            raise ValueError(f"it did not return within {FUNCTION_SECONDS:g} s") from None
        except BaseException as error:
            if isinstance(error, Unreduced) or is_interrupt(error):
                raise
            raise ValueError(describe(raised(error))) from raised(error)

    return reduce


def _result(call: Future[Any], seconds: float) -> Any:
    """Return the result of a function, or raise its exception.

    Raises:
        _NotReturned: It did not return in time.
    """
    if not _has_returned(call, seconds):
        raise _NotReturned
    return call.result()


def _has_returned(call: Future[Any], seconds: float) -> bool:
    from concurrent.futures import wait

    return bool(wait([call], seconds).done)

"""Reducers in Python, whose functions may not run inside a workflow.

The kernel asks for the result of such a function while it applies an event. If the result is not
known, the event is put back, a worker calls the function, and the event is applied again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from flowengine.kernel.notation.changes import changed

if TYPE_CHECKING:
    from flowengine.kernel.graph.specs import CompiledFlow

_KNOWN: ContextVar[Iterator[Any]] = ContextVar("known")
"""The results for the event that is being applied, in order."""


class Unreduced(BaseException):
    """The result of a function is not known. No code of the kernel may catch this.

    Args:
        reducer: `python` and `folder`: see `linked_flows.reducer`.
        old: The current value.
        new: The written value.
    """

    def __init__(self, reducer: dict[str, str], old: Any, new: Any) -> None:
        super().__init__(reducer["python"])
        self.given = [reducer, old, new]


def has_reducers(flow: CompiledFlow) -> bool:
    """Return whether a flow, or a subflow of it, has a reducer in Python."""
    flows = [flow, *flow.get("flows", ())]
    states: list[Any] = [spec for each in flows for spec in each.get("state", {}).values()]
    return any(isinstance(spec.get("reducer"), dict) for spec in states)


@contextmanager
def known(results: Sequence[Any]) -> Iterator[None]:
    """Use results of functions, each a change of the old value, while an event is applied."""
    token = _KNOWN.set(iter(results))
    try:
        yield
    finally:
        _KNOWN.reset(token)


def remembered(reducer: dict[str, str]) -> Callable[[Any, Any], Any]:
    """Return a function that returns known results of a reducer, instead of calling it."""

    def reduce(old: Any, new: Any) -> Any:
        result = next(_KNOWN.get(), None)
        if result is None:
            raise Unreduced(reducer, old, new)
        return changed(old, result)

    return reduce

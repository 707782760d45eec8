"""An environment for a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from flowengine.execution_environment.bookkeeping.books import Given
    from flowengine.execution_environment.bookkeeping.instances import Handle


class Ensures(Protocol):
    """Opens and releases environments, as a manager does."""

    def ensure(self, spec: Given, *, holder: str | None) -> Handle:
        """Open an environment, or add a hold on the open one."""

    async def async_ensure(self, spec: Given, *, holder: str | None) -> Handle:
        """Open an environment like `ensure`, in any event loop."""

    def release(self, handle: Handle) -> object:
        """Release one hold."""

    async def async_release(self, handle: Handle) -> object:
        """Release one hold like `release`, in any event loop."""


class EnvironmentUse:
    """An environment for a `with` block, which provides its resource.

    Args:
        manager: Opens it.
        spec: A spec or its id.
        holder: Name of the caller.
    """

    def __init__(self, manager: Ensures, spec: Given, holder: str | None) -> None:
        self._manager = manager
        self._spec = spec
        self._holder = holder
        self._handles: list[Handle] = []

    def __enter__(self) -> Any:
        handle = self._manager.ensure(self._spec, holder=self._holder)
        self._handles.append(handle)
        return handle.resource

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._manager.release(self._handles.pop())

    async def __aenter__(self) -> Any:
        handle = await self._manager.async_ensure(self._spec, holder=self._holder)
        self._handles.append(handle)
        return handle.resource

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._manager.async_release(self._handles.pop())

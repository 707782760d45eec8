"""An environment as one object that its user opens and closes, without a manager.

It is the same resource of the same provider, in the same sandboxes. There is no registry. If its
process is killed, its remaining processes end with it, and its containers carry labels.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from flowengine.sdk import EnvironmentClosed
from flowengine.sdk.environments import Provider, Request, Resource, Sandbox, Spec, background
from flowengine.sdk.models import ResourceLimits
from flowengine.sdk.process_end import close_at_exit, forget
from flowengine.sdk.process_identity import this_process
from flowengine.sdk.sandboxes import with_sandboxes
from flowengine.sdk.scratch import make_scratch, remove_scratch

if TYPE_CHECKING:
    from types import TracebackType

_Live = TypeVar("_Live", bound=Resource)

_log = logging.getLogger("flowengine.environments")
_SECONDS = 120.0
"""Seconds within which it must open."""


class Unmanaged(Generic[_Live]):
    """An environment opened on first use, and again after it was lost."""

    _provider: ClassVar[type[Provider[Any]]]
    _sandbox: type[Sandbox]

    def __init__(self) -> None:
        self.generation = 0
        """Number of times that it was opened."""
        self._resource: _Live | None = None
        self._closed = False
        self._home: Path | None = None
        self._opening = asyncio.Lock()
        self.pid = os.getpid()
        """The process that opened it."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def resource(self) -> _Live:
        """The underlying resource with all its methods.

        Raises:
            EnvironmentClosed: It is not open.
        """
        if self._resource is None:
            raise EnvironmentClosed(f"{type(self).__name__} is not open: {self._how_to_open()}")
        return self._resource

    def close(self) -> None:
        """End it and all processes that it started. Closing again does nothing."""
        background().run(self._close(), "await async_close()")

    async def async_close(self) -> None:
        """Do the same as `close`, for any event loop."""
        await background().wait(self._close())

    def _how_to_open(self) -> str:
        return "use it first"

    def _workspace(self) -> str:
        """Return its working directory, created if it does not exist."""
        raise NotImplementedError

    def _config(self) -> dict[str, Any]:
        return {}

    def _policy(self) -> dict[str, Any]:
        return {}

    def _limits(self) -> ResourceLimits:
        return ResourceLimits()

    def _from_workspace(self, path: str) -> str:
        """Return a path relative to the workspace, for the resource.

        Callers may also use the path that they see themselves: `workspace/report.pdf`. An entry of
        the workspace with the given path takes precedence.
        """
        folder = os.path.abspath(os.path.expanduser(self._workspace()))
        seen = os.path.abspath(path)
        below = seen == folder or seen.startswith(f"{folder}/")
        if os.path.isabs(path) or not below or os.path.lexists(os.path.join(folder, path)):
            return path
        return os.path.relpath(seen, folder)

    async def _ready(self) -> _Live:
        async with self._opening:
            return await self._opened()

    async def _opened(self) -> _Live:
        if self._closed:
            raise EnvironmentClosed(f"{type(self).__name__} was closed")
        provider = self._provider()
        if self._resource is not None:
            if provider.health_check(self._resource):
                return self._resource
            self._resource.check_open()
            await provider.release(self._resource)
            self._resource = None
        request = self._request()
        await self._sandbox.probe(request.spec)
        await provider.probe(request.spec)
        self._resource = await provider.ensure(request)
        self.generation = request.generation
        return self._resource

    async def _close(self) -> None:
        self._closed = True
        resource, self._resource = self._resource, None
        try:
            if resource is not None:
                await resource.finish(0.0)
                await self._provider().release(resource)
        finally:
            forget(self)
            if self._home is not None:
                await asyncio.to_thread(remove_scratch, self._home)
                self._home = None

    def _request(self) -> Request:
        """Return the request that a manager would send to its provider."""
        provider = self._provider()
        config = with_sandboxes(provider.config_model(), [self._sandbox])(**self._config())
        policy = provider.policy_model()(**self._policy())
        limits = self._limits()
        name, id = type(self).__name__, uuid.uuid4().hex
        spec = Spec(
            id, provider.kind, "global", "", name, self._sandbox.name, config, policy, limits, {}
        )
        workspace = Path(os.path.abspath(os.path.expanduser(self._workspace())))
        workspace.mkdir(parents=True, exist_ok=True)
        if self._home is None:
            self._home, self.pid = make_scratch(), os.getpid()
            close_at_exit(self)
        owner = this_process()
        return Request(
            spec,
            id,
            self.generation + 1,
            config,
            policy,
            limits,
            workspace.resolve(),
            self._home,
            self._sandbox,
            {},
            owner,
            f"{name}.{owner.pid}",
            f"{id}@{name}",
            _not_written_down,
            background().loop.time() + _SECONDS,
            logging.LoggerAdapter(_log, {}),
        )


def _not_written_down(**facts: Any) -> None:
    """Do nothing: containers carry labels, and processes end with this one."""

"""Requests to an MCP server, and the errors of those that are not answered."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from flowengine.sdk import EnvironmentLost, LimitExceeded, Plain, StepError, Timeout, ToolError
from flowengine.sdk.texts.sizes import size_text
from flowengine_envs.mcp import library
from flowengine_envs.mcp.connected_client import (
    CLOSING,
    ConnectedClient,
    withdrawn,
)
from flowengine_envs.mcp.elicitation import CallInputs, OpenCall
from flowengine_envs.mcp.messages import (
    BROKEN,
    TOO_LARGE,
    brief,
    broken,
    fault,
    too_large,
    unanswered,
)

_Result = TypeVar("_Result")
_ITEMS = 10_000
"""Maximum number of entries of a list of one server."""
_PAGES = 1000
"""Maximum number of pages of such a list, because pages may be empty."""
_SESSION_ENDED = "Session terminated"
"""The protocol library's message for an HTTP session that the server has forgotten."""
_LARGE_EVENT = "Server-sent event exceeded"
"""Its message for an event that exceeds the maximum size."""
_UNREADABLE = "Failed to parse"
"""Its message for an invalid event, before long details."""
Progress = Callable[[float, float | None, str | None], None]
"""Receives the progress of a call: how much is done, of how much if known, and a message."""
_PROGRESS_SECONDS = 0.5
"""Seconds between two reports of progress that are passed on."""


class ClientRequests(ConnectedClient):
    """A client whose requests are bounded. A session that the server forgets is started again."""

    async def _ask(
        self,
        verb: Callable[[library.Client], Awaitable[_Result]],
        what: str,
        bound: float | None = None,
        inputs: CallInputs | None = None,
    ) -> _Result:
        """Send a request and wait for its answer."""
        async with self._renewing:
            client = self._client
        seconds = self._seconds if bound is None else bound
        async with self._open_calls.call(inputs) as call:
            try:
                return await self._once(client, verb, what, seconds, call)
            except _Forgotten:
                # The server does not know the session, so it has not processed the request.
                await self._renew(client)
            try:
                return await self._once(self._client, verb, what, seconds, call)
            except _Forgotten:
                message = f"{self.name}: {what}: the server forgets its sessions at once"
                raise EnvironmentLost(message, data={"ran": "no"}) from None

    async def _once(
        self,
        client: library.Client | None,
        verb: Callable[[library.Client], Awaitable[_Result]],
        what: str,
        seconds: float | None,
        call: OpenCall,
    ) -> _Result:
        owner = self._owner
        if client is None or owner is None or owner.done():
            raise self._lost(what)
        asking = asyncio.ensure_future(verb(client))
        self._asking.add(asking)
        try:
            ends: list[asyncio.Future[Any]] = [asking, owner, call.asked]
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            if call.asked.done():
                raise call.asked.exception() or self._lost(what)
            if not owner.done():
                raise self._late(what, seconds)
            raise self._lost(what)
        except library.MCPError as error:
            raise self._failure(error, what) from error
        except StepError:
            raise
        except Exception as error:  # Any error of the library about the answer.
            raise broken(f"{self.name}: {what}", fault(error)) from error
        except asyncio.CancelledError:
            # The library cancels callers that wait for a server that has ended.
            if withdrawn():
                raise
            raise self._lost(what) from None
        finally:
            self._asking.discard(asking)
            if not asking.done():
                if self._probing is None or self._probing.done():
                    self._probing = asyncio.create_task(self._probe(client))
                asking.cancel()
                with suppress(BaseException):
                    await asking

    def _failure(self, error: library.MCPError, what: str) -> Exception:
        """Return the error for the caller from an error of the library."""
        if _SESSION_ENDED in error.message and self._connection.again:
            return _Forgotten()
        if error.message == "Connection closed":
            return self._lost(what)
        if (unauthorized := self._connection.unauthorized(error.message)) is not None:
            return unauthorized
        place = f"{self.name}: {what}"
        if error.code == TOO_LARGE or _LARGE_EVENT in error.message:
            why = error.message if error.code == TOO_LARGE else too_large(self._largest)
            data: dict[str, Plain] = {"limit": "output", "value": self._largest, "ran": "maybe"}
            return LimitExceeded(f"{place}: {why}", data=data)
        if error.code == BROKEN:
            own = not error.message.startswith(_UNREADABLE)
            return broken(
                place, brief(error.message) if own else "an event of its stream is not a message"
            )
        if request := unanswered(error.message):
            message = f"{place}: {request}. It reported: {brief(error.message)}"
            return ToolError(message, retryable=False)
        refused = self.last_output() if self._connection.again else ""
        return ToolError(f"{place}: {brief(error.message)}{refused}", retryable=False)

    def _late(self, what: str, seconds: float | None) -> Timeout:
        """Return the timeout error of a call, which names the limit if there is one."""
        reason, data = f"no answer in {seconds:g} s", {}
        if seconds == self._seconds:
            reason += " (limits.time)"
            data = {"limit": "time", "value": seconds}
        return Timeout(
            f"{self.name}: {what}: {reason}{self.last_output()}", data=data, retryable=False
        )

    def _lost(self, what: str) -> EnvironmentLost:
        return EnvironmentLost(
            f"{self.name}: {what}: the server is gone, and may or may not have acted"
            f"{self.last_output()}",
            data={"ran": "maybe"},
        )

    async def _renew(self, old: library.Client | None) -> None:
        """Start a new session after the server forgot the old one, once for all callers."""
        async with self._renewing:
            if self._client is old:
                # They receive the same error, so their requests were not processed.
                if self._asking:
                    await asyncio.wait(self._asking, timeout=CLOSING)
                await self.close()
                await self.connect()

    async def _all(
        self, what: str, page: Callable[[str | None, library.Client], Awaitable[Any]]
    ) -> list[dict[str, Plain]]:
        """Return the items of all pages of a list, which ends when the server repeats a page."""
        loop = asyncio.get_running_loop()
        until = None if self._seconds is None else loop.time() + self._seconds
        items: dict[str, dict[str, Plain]] = {}
        size = 0
        cursors: set[str | None] = {None}
        cursor: str | None = None
        for _ in range(_PAGES):
            seconds = None if until is None else max(0.0, until - loop.time())
            answer = await self._ask(partial(page, cursor), f"list of {what}", seconds)
            new = {json.dumps(item): item for item in as_data(getattr(answer, what))}
            is_known = bool(new) and new.keys() <= items.keys()
            items |= new
            size = sum(map(len, items))
            if len(items) > _ITEMS:
                raise self._too_long(what, f"{_ITEMS:,} {what}", what, _ITEMS)
            if size > self._largest:
                raise self._too_long(what, size_text(self._largest), "output", self._largest)
            cursor = answer.next_cursor or None  # Some servers end a list with an empty text.
            if cursor is not None and (cursor in cursors or is_known):
                self._log.warning("the server's list of %s begins again: cut there", what)
                cursor = None
            if cursor is None:
                return [*items.values()]
            cursors.add(cursor)
        raise self._too_long(what, f"{_PAGES} pages", "pages", _PAGES)

    def _too_long(self, what: str, most: str, limit: str, value: int) -> LimitExceeded:
        named = " (limits.output)" if limit == "output" else ""
        return LimitExceeded(
            f"{self.name}: list of {what}: the server lists more than {most}{named}",
            data={"limit": limit, "value": value},
        )


class _Forgotten(Exception):
    """The server has forgotten the session."""


def as_data(items: Any) -> list[dict[str, Plain]]:
    return [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in items]


def seldom(tell: Progress) -> library.ProgressFnT:
    """Return a callback of the library that passes on the first of several reports in quick order.

    A server may report as often as it likes. Its text is shortened.
    """
    last = -math.inf

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _PROGRESS_SECONDS:
            last = now
            tell(progress, total, None if message is None else brief(message))

    return heard

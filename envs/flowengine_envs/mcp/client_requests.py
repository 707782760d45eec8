"""A client of the protocol that is connected to an MCP server, and its requests.

It belongs to the task that opened it. One task therefore owns it for its whole life. Other callers
submit requests from any task, thread or loop.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pydantic import FileUrl, ValidationError

from flowengine.sdk import (
    EnvironmentFailure,
    EnvironmentLost,
    EnvironmentStartFailed,
    LimitExceeded,
    Plain,
    StepError,
    Timeout,
    ToolError,
)
from flowengine.sdk.environments import Request, Resource
from flowengine.sdk.texts.sizes import size_text
from flowengine_envs.mcp import library
from flowengine_envs.mcp.elicitation import CallInputs, OpenCall, OpenCalls
from flowengine_envs.mcp.messages import (
    BROKEN,
    LARGEST,
    TOO_LARGE,
    CheckedStream,
    brief,
    broken,
    fault,
    too_large,
    unanswered,
)
from flowengine_envs.mcp.tool_list import ToolList

CLOSING = 8.0
"""Seconds within which a server and its processes must end."""
_ALIVE = 5.0
"""Seconds within which a server that left a call unanswered must answer another request."""
_PATIENCE = 1.0
"""Likewise, while the next call waits for it."""


class ConnectionSettings(NamedTuple):
    """The settings of a connection, and of every reconnection."""

    transport: Callable[[], Any]
    """Returns the transport of a new connection."""
    last_output: Callable[[], str]
    """Returns the server's last output outside the protocol, for messages."""
    again: bool
    """Whether a forgotten session can be started again."""
    final: Callable[[], bool]
    """Returns whether another attempt to connect would fail in the same way."""
    unauthorized: Callable[[str], StepError | None] = lambda message: None
    """Returns why a request with this error message had no usable access token, if so."""
    masked: Callable[[Any], Any] = lambda value: value
    """Returns plain data of the server without the access tokens."""


class ConnectedClient(Resource):
    """A client whose requests are bounded. It is ended when its server hangs.

    A session that the server forgets is started again.

    Args:
        request: The request to open the environment.
        config: The server's config.
        connection: Its connection.
        server: Its name among several, for messages.
    """

    _tools: ToolList
    """The server's tools. Subclasses set it."""

    def __init__(
        self, request: Request, config: Any, connection: ConnectionSettings, server: str
    ) -> None:
        super().__init__(request)
        self.name += f", server '{server}'" if server else ""
        self._connection = connection
        self.last_output = connection.last_output
        self._roots: list[str] = list(config.roots)
        self._mode: str = config.mode
        self._log = request.log
        self._client: library.Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._probing: asyncio.Task[None] | None = None
        """Checks whether a server that left a call unanswered still responds."""
        self._open_calls = OpenCalls()
        self._seconds: float | None = request.limits.time
        self._largest = request.limits.output or LARGEST
        self._asking: set[asyncio.Future[Any]] = set()
        self._renewing = asyncio.Lock()

    async def connect(self) -> None:
        """Open the session.

        Raises:
            EnvironmentFailure: The server did not start.
            EnvironmentStartFailed: It did not answer like an MCP server.
        """
        ready: asyncio.Future[library.Client] = asyncio.get_running_loop().create_future()
        self._ending = asyncio.Event()
        ready.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._owner = asyncio.create_task(self._own(ready, self._ending))
        try:
            self._client = await asyncio.shield(ready)
        except EnvironmentFailure:
            raise
        except Exception as error:
            told = str(getattr(_first(error), "message", ""))
            if (unauthorized := self._connection.unauthorized(told)) is not None:
                raise unauthorized from None
            why = _reason(error)
            raise EnvironmentStartFailed(
                f"{self.name}: {why}{self.last_output()}",
                retryable=False if self._connection.final() else None,
            ) from error

    async def close(self) -> None:
        """End the session, and the server if it was started for it."""
        self._ending.set()
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])
        if self._owner is not None:
            if self._client is not None:
                await asyncio.wait([self._owner], timeout=CLOSING)
            self._owner.cancel()
            await asyncio.wait([self._owner], timeout=CLOSING)
        self._client = None

    @property
    def connected(self) -> bool:
        """Whether the task that owns the session runs."""
        return self._owner is not None and not self._owner.done()

    async def ping(self) -> bool:
        """Return whether the server responds."""
        client, probing = self._client, self._probing
        if probing is not None and not probing.done():
            await asyncio.wait([probing], timeout=_PATIENCE)
            if not probing.done():
                self._end_hung()
        if client is None or not self.connected:
            return False
        try:
            await _ping(client)
        except asyncio.CancelledError:
            if withdrawn():
                raise
            return False
        except Exception:
            return False
        return True

    async def _own(self, ready: asyncio.Future[library.Client], ending: asyncio.Event) -> None:
        """Hold the client open, and close it in the same task."""
        try:
            async with self._made() as client:
                client.session.validate_tool_result = _unevaluated  # type: ignore[method-assign]
                ready.set_result(client)
                watching = asyncio.create_task(self._tools.watch(client))
                try:
                    await ending.wait()
                finally:
                    watching.cancel()
                    await asyncio.wait([watching])
        except BaseException as error:
            if not ready.done():
                ready.set_exception(_first(error))
            elif not ending.is_set():
                self._log.warning("the session with the server broke: %s", _reason(error))

    def _made(self) -> AbstractAsyncContextManager[library.Client]:
        options: dict[str, Any] = {"mode": self._mode}
        if self._roots:
            options["list_roots_callback"] = self._send_roots
        return library.Client(
            self._streams(),
            logging_callback=_ignore_log,
            elicitation_callback=self._elicited,
            message_handler=self._notice,
            cache=None,
            **options,
        )

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        """Yield the streams of a new connection."""
        async with self._connection.transport() as (receive, send):
            yield CheckedStream(receive, self._readable, self._connection.masked), send

    def _readable(self, answer: library.JSONRPCResponse) -> library.JSONRPCResponse:
        version = None if self._client is None else self._client.session.protocol_version
        if version is None:
            return answer
        if version in library.MODERN_PROTOCOL_VERSIONS and "resultType" not in answer.result:
            # The protocol defines this default, which the library does not know.
            result = {"resultType": "complete", **answer.result}
            answer = answer.model_copy(update={"result": result})
        return self._tools.readable(answer, version)

    async def _notice(self, message: Any) -> None:
        """Handle notifications of the server. Only changes of its tools matter."""
        if isinstance(message, library.ToolListChangedNotification):
            self._tools.forget()

    async def _elicited(self, context: Any, params: Any) -> Any:
        """Answer a request for input. In the newest revision, only prompts and resources ask so."""
        if context.session.protocol_version in library.MODERN_PROTOCOL_VERSIONS:
            return library.ErrorData(
                code=library.INVALID_REQUEST, message="Elicitation not supported"
            )
        return await self._open_calls.answer(params)

    async def _send_roots(self, context: Any) -> Any:
        return library.ListRootsResult(
            roots=[library.Root(uri=FileUrl(f"file://{root}")) for root in self._roots]
        )

    async def _probe(self, client: library.Client) -> None:
        """End a server that left a call unanswered, unless it answers another request."""
        try:
            async with asyncio.timeout(_ALIVE):
                await _ping(client)
        except TimeoutError:
            self._end_hung()
        except Exception:
            return  # an answer, or the end of the server

    def _end_hung(self) -> None:
        """End the server at once. The next use of the environment starts it again."""
        if self._owner is not None and not self._owner.done() and not self._ending.is_set():
            self._log.warning("the server hangs in a call, and is ended")
            self._ending.set()
            self._owner.cancel()

    # Requests, and the errors of those that are not answered

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


async def _ping(client: library.Client) -> None:
    """Send a request that every server answers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The newest revision has no ping.
            await client.send_ping()  # type: ignore[deprecated]
    except library.MCPError as error:
        if error.code != library.METHOD_NOT_FOUND:
            raise


async def _unevaluated(name: str, result: Any) -> None:
    """Skip validating an answer with the schema from the server.

    A schema is a program: a pattern in it may take forever to match, and would block everything.
    """


async def _ignore_log(params: Any) -> None:
    """Discard log messages of a server."""


def withdrawn() -> bool:
    """Return whether the current task itself is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _first(error: BaseException) -> BaseException:
    """Return the causing error of a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, asyncio.CancelledError):
        return EnvironmentStartFailed("the server went away before it had answered")
    return error


def _reason(error: BaseException) -> str:
    error = _first(error)
    why = fault(error) or type(error).__name__
    if isinstance(error, ValidationError) or getattr(error, "code", 0) == BROKEN:
        return f"the server's answer breaks the protocol: {why}"
    return why


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

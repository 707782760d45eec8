"""A session with an MCP server.

A client of the protocol belongs to the task that opened it. One task therefore owns it for its
whole life. Other callers submit requests from any task, thread or loop.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
from flowengine.sdk.browser_tools import OfferedTool
from flowengine.sdk.environments import Request, Resource, awaitable, blocking
from flowengine.sdk.network_hints import network_hint, reachable
from flowengine.sdk.sizes import size_text
from flowengine_envs.mcp.elicitation import (
    ROUNDS,
    URL_REQUIRED,
    CallInputs,
    OpenCall,
    OpenCalls,
    pause,
)
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
from flowengine_envs.mcp.own_tools import call_own, own_tools
from flowengine_envs.mcp.tool_list import Approved, Changed, ToolList

if TYPE_CHECKING:
    from mcp import Client, MCPError
    from mcp.shared.dispatcher import ProgressFnT
    from mcp.types import CallToolResult, JSONRPCResponse

_Result = TypeVar("_Result")
Progress = Callable[[float, float | None, str | None], None]
"""Receives the progress of a call: how much is done, of how much if known, and a message."""
_ITEMS = 10_000
"""Maximum number of entries of a list of one server."""
_PAGES = 1000
"""Maximum number of pages of such a list, because pages may be empty."""
_COMPLETED = 100
"""Maximum number of suggested values: the protocol's own limit."""
_PROGRESS_SECONDS = 0.5
"""Seconds between two reports of progress that are passed on."""
_CLOSING = 8.0
"""Seconds within which a server and its processes must end."""
_ALIVE = 5.0
"""Seconds within which a server that left a call unanswered must answer another request."""
_PATIENCE = 1.0
"""Likewise, while the next call waits for it."""
_SESSION_ENDED = "Session terminated"
"""The protocol library's message for an HTTP session that the server has forgotten."""
_LARGE_EVENT = "Server-sent event exceeded"
"""Its message for an event that exceeds the maximum size."""
_UNREADABLE = "Failed to parse"
"""Its message for an invalid event, before long details."""


class McpToolResult(NamedTuple):
    """The answer of a tool. A tool error is also an answer."""

    content: list[dict[str, Plain]]
    """Parts: `{"type": "text", "text": ...}`, images, links."""
    structured: Plain
    """The answer as data, if the tool provides it."""
    is_error: bool

    @property
    def text(self) -> str:
        """All text parts, joined by newlines."""
        return "\n".join(str(part["text"]) for part in self.content if part.get("type") == "text")


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


class McpSession(Resource):
    """A session with a server: tools, resources and prompts.

    Args:
        request: The request to open the environment.
        config: The server's config.
        connection: Its connection.
        server: Its name among several, for messages.
    """

    def __init__(
        self, request: Request, config: Any, connection: ConnectionSettings, server: str = ""
    ) -> None:
        super().__init__(request)
        self.name += f", server '{server}'" if server else ""
        self._connection = connection
        self._network = reachable(request)
        self._seconds: float | None = request.limits.time
        self._largest = request.limits.output or LARGEST
        self._roots: list[str] = list(config.roots)
        self._mode: str = config.mode
        self._log = request.log
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._asking: set[asyncio.Future[Any]] = set()
        self._probing: asyncio.Task[None] | None = None
        """Checks whether a server that left a call unanswered still responds."""
        self._open_calls = OpenCalls()
        self._tools = ToolList(request, self.name, self._read_tools)
        self._added = {str(tool["name"]): tool for tool in own_tools(config)}
        """Tools for the server's resources and prompts."""
        self._hidden: list[Plain] = []
        """Names of the server's tools that they hide."""
        self._renewing = asyncio.Lock()

    @property
    def tools_changed(self) -> Changed | None:
        """The last change of the tool list, if the server listed other tools before.

        Earlier approvals apply to the old description of a tool.
        """
        return self._tools.changed

    async def _offers(self) -> list[OfferedTool]:
        """Return the server's tools as offered to models, each with a digest.

        Tools that cannot be called have a `fault`, and no schema.

        Raises:
            LimitExceeded: It lists more than 10,000, or more than `limits.output` bytes.
            EnvironmentLost: The server has ended.
        """
        return self._tools.offers(await self._tools.all())

    @staticmethod
    def approved(source: str | None) -> Approved:
        """Return the approval of a tool, for `call_tool`.

        Args:
            source: Digest of the description shown to the approver. None: the session was not open.
        """
        return Approved(source)

    inputs = staticmethod(CallInputs)

    def tool_text(self, name: str) -> str | None:
        """Return the server's last description of a tool. None: it has not been read yet."""
        return self._tools.text(name)

    offers = blocking(_offers)
    async_offers = awaitable(_offers)

    async def _list_tools(self) -> list[dict[str, Plain]]:
        """Return the usable tools of the server: name, description, `inputSchema` and so on.

        Raises:
            LimitExceeded: It lists more than 10,000, or more than `limits.output` bytes.
            EnvironmentLost: The server has ended.
        """
        return await self._tools.all()

    list_tools = blocking(_list_tools)
    async_list_tools = awaitable(_list_tools)

    async def _call_tool(
        self,
        name: str,
        args: Mapping[str, Plain] | None = None,
        *,
        timeout: float | None = None,
        digest: str | None = None,
        approved: Approved | None = None,
        traceparent: str | None = None,
        progress: Progress | None = None,
        inputs: CallInputs | None = None,
    ) -> McpToolResult:
        """Call a tool once.

        It is never retried automatically. If the server is lost during the call, the tool may have
        taken effect.

        Args:
            name: Its name on the server.
            args: Its arguments.
            timeout: Seconds to wait for the answer. Default: `limits.time`.
            digest: Digest of the offered tool. None: the tool is called in any version.
            approved: The approval, if one was requested.
            traceparent: The header that continues the trace of the caller (W3C Trace Context).
            progress: Receives what the server reports during the call. It is called on the
                session's event loop, at most every 0.5 s, and must not block.
            inputs: The input that the server may request. None: it may request none.

        Returns:
            The answer, which may be a tool error.

        Raises:
            NeedsInput: The server requests input. The call has ended, and can be made again.
            ToolChanged: It differs from the offered tool and was not called.
            ToolError: The tool does not exist, or the server refused the call.
            Timeout: There was no answer in time. If the server does not answer other requests
                either, it is ended.
            LimitExceeded: The answer has more than `limits.output` bytes.
            EnvironmentLost: The server has ended. The outcome is unknown.
        """
        await self._tools.check(name, digest, approved)
        if name in self._added:
            content, structured = await call_own(self, name, args or {})
            return McpToolResult(content, structured, False)
        meta: Any = None if traceparent is None else {"traceparent": traceparent}
        heard = None if progress is None else _seldom(progress)
        call = partial(self._made_call, name, dict(args or {}), meta, heard, inputs)
        answer = await self._ask(call, f"tool {name}", timeout, inputs)
        result = McpToolResult(_plain(answer.content), answer.structured_content, answer.is_error)
        if result.is_error and (hint := network_hint(self._network, result.text)):
            result.content.append({"type": "text", "text": hint})
        if result.is_error and (request := unanswered(result.text)):
            result.content.append({"type": "text", "text": f"({request})"})
        return result

    async def _made_call(
        self,
        name: str,
        args: dict[str, Any],
        meta: Any,
        heard: ProgressFnT | None,
        inputs: CallInputs | None,
        client: Client,
    ) -> CallToolResult:
        """Make a call, and make it again with each input that its answers request."""
        from mcp import MCPError
        from mcp.types import HEADER_MISMATCH, INVALID_PARAMS, CallToolResult

        responses, state = (None, None) if inputs is None else inputs.begin()
        is_listed = False
        for number in range(ROUNDS):
            try:
                answer = await client.session.call_tool(
                    name,
                    args,
                    input_responses=responses,
                    request_state=state,
                    meta=meta,
                    progress_callback=heard,
                    allow_input_required=True,
                )
            except MCPError as error:
                if error.code == HEADER_MISMATCH and not is_listed:
                    await self._tools.all()
                    is_listed = True
                elif inputs is None:
                    raise
                elif error.code == URL_REQUIRED:
                    inputs.open_pages(error.data)
                elif error.code != INVALID_PARAMS or not inputs.forget_state():
                    raise
                else:
                    responses, state = inputs.begin()
                continue
            if isinstance(answer, CallToolResult):
                return answer
            if inputs is None:
                raise ToolError(
                    f"{self.name}: tool {name}: {unanswered('elicit')}", retryable=False
                )
            if not answer.input_requests:
                await pause(number)
            responses, state = inputs.responses(answer), answer.request_state
        message = f"{self.name}: tool {name}: it was not finished after {ROUNDS} requests"
        raise ToolError(message, retryable=False)

    call_tool = blocking(_call_tool)
    async_call_tool = awaitable(_call_tool)

    async def _list_resources(self) -> list[dict[str, Plain]]:
        """Return all resources of the server."""
        return await self._all("resources", lambda at, client: client.list_resources(cursor=at))

    list_resources = blocking(_list_resources)
    async_list_resources = awaitable(_list_resources)

    async def _list_resource_templates(self) -> list[dict[str, Plain]]:
        """Return all templates of addresses of resources: `name`, `uriTemplate` and so on."""
        return await self._all(
            "resource_templates", lambda at, client: client.list_resource_templates(cursor=at)
        )

    list_resource_templates = blocking(_list_resource_templates)
    async_list_resource_templates = awaitable(_list_resource_templates)

    async def _read_resource(self, uri: str) -> list[dict[str, Plain]]:
        """Return the parts of a resource.

        Args:
            uri: Its address.

        Returns:
            Parts with `text`, or `blob` in base64.
        """
        answer = await self._ask(lambda client: client.read_resource(uri), f"resource {uri}")
        return _plain(answer.contents)

    read_resource = blocking(_read_resource)
    async_read_resource = awaitable(_read_resource)

    async def _list_prompts(self) -> list[dict[str, Plain]]:
        """Return all prompts of the server."""
        return await self._all("prompts", lambda at, client: client.list_prompts(cursor=at))

    list_prompts = blocking(_list_prompts)
    async_list_prompts = awaitable(_list_prompts)

    async def _get_prompt(
        self, name: str, args: Mapping[str, str] | None = None
    ) -> list[dict[str, Plain]]:
        """Return the messages of a prompt.

        Args:
            name: Its name.
            args: Its arguments.

        Returns:
            Messages with `role` and `content`.
        """
        answer = await self._ask(
            lambda client: client.get_prompt(name, dict(args or {})), f"prompt {name}"
        )
        return _plain(answer.messages)

    get_prompt = blocking(_get_prompt)
    async_get_prompt = awaitable(_get_prompt)

    async def _complete(
        self,
        argument: str,
        value: str,
        *,
        prompt: str | None = None,
        template: str | None = None,
        given: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Return the values that the server suggests for an argument, at most 100.

        Args:
            argument: Name of an argument of the prompt, or of a variable of the template.
            value: The beginning of its value.
            prompt: Name of a prompt.
            template: The address of a resource template, instead of a prompt.
            given: Values of other arguments.

        Raises:
            ToolError: Neither a prompt nor a template is named, or both. Or the server suggests no
                values.
        """
        from mcp.types import PromptReference, ResourceTemplateReference

        if (prompt is None) == (template is None):
            message = f"{self.name}: completion needs either 'prompt' or 'template'"
            raise ToolError(message, retryable=False)
        ref: PromptReference | ResourceTemplateReference
        if prompt is not None:
            ref = PromptReference(name=prompt)
        else:
            ref = ResourceTemplateReference(uri=template or "")
        answer = await self._ask(
            lambda client: client.complete(
                ref, {"name": argument, "value": value}, dict(given) if given else None
            ),
            f"completion of {argument}",
        )
        return [str(each) for each in answer.completion.values[:_COMPLETED]]

    complete = blocking(_complete)
    async_complete = awaitable(_complete)

    async def connect(self) -> None:
        """Open the session.

        Raises:
            EnvironmentFailure: The server did not start.
            EnvironmentStartFailed: It did not answer like an MCP server.
        """
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
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
                await asyncio.wait([self._owner], timeout=_CLOSING)
            self._owner.cancel()
            await asyncio.wait([self._owner], timeout=_CLOSING)
        self._client = None

    def last_output(self) -> str:
        """Return the server's last output outside the protocol, for messages."""
        return self._connection.last_output()

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
            if _withdrawn():
                raise
            return False
        except Exception:
            return False
        return True

    async def _own(self, ready: asyncio.Future[Client], ending: asyncio.Event) -> None:
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

    def _made(self) -> AbstractAsyncContextManager[Client]:
        from mcp import Client

        options: dict[str, Any] = {"mode": self._mode}
        if self._roots:
            options["list_roots_callback"] = self._tell_roots
        return Client(
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

    def _readable(self, answer: JSONRPCResponse) -> JSONRPCResponse:
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        version = None if self._client is None else self._client.session.protocol_version
        if version is None:
            return answer
        if version in MODERN_PROTOCOL_VERSIONS and "resultType" not in answer.result:
            # The protocol defines this default, which the library does not know.
            result = {"resultType": "complete", **answer.result}
            answer = answer.model_copy(update={"result": result})
        return self._tools.readable(answer, version)

    async def _notice(self, message: Any) -> None:
        """Handle notifications of the server. Only changes of its tools matter."""
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._tools.forget()

    async def _elicited(self, context: Any, params: Any) -> Any:
        """Answer a request for input. In the newest revision, only prompts and resources ask so."""
        from mcp.types import INVALID_REQUEST, ErrorData
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        if context.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return ErrorData(code=INVALID_REQUEST, message="Elicitation not supported")
        return await self._open_calls.answer(params)

    async def _tell_roots(self, context: Any) -> Any:
        from mcp.types import ListRootsResult, Root
        from pydantic import FileUrl

        return ListRootsResult(roots=[Root(uri=FileUrl(f"file://{root}")) for root in self._roots])

    async def _ask(
        self,
        verb: Callable[[Client], Awaitable[_Result]],
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
        client: Client | None,
        verb: Callable[[Client], Awaitable[_Result]],
        what: str,
        seconds: float | None,
        call: OpenCall,
    ) -> _Result:
        from mcp import MCPError

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
        except MCPError as error:
            raise self._failure(error, what) from error
        except StepError:
            raise
        except Exception as error:  # Any error of the library about the answer.
            raise broken(f"{self.name}: {what}", fault(error)) from error
        except asyncio.CancelledError:
            # The library cancels callers that wait for a server that has ended.
            if _withdrawn():
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

    async def _probe(self, client: Client) -> None:
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

    def _failure(self, error: MCPError, what: str) -> Exception:
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

    async def _renew(self, old: Client | None) -> None:
        """Start a new session after the server forgot the old one, once for all callers."""
        async with self._renewing:
            if self._client is old:
                # They receive the same error, so their requests were not processed.
                if self._asking:
                    await asyncio.wait(self._asking, timeout=_CLOSING)
                await self.close()
                await self.connect()

    async def _read_tools(self) -> list[dict[str, Plain]]:
        client = self._client
        if self._added and client is not None and client.server_capabilities.tools is None:
            return [*self._added.values()]  # A server without tools refuses to list them.
        tools = await self._all("tools", lambda at, client: client.list_tools(cursor=at))
        hidden = [tool["name"] for tool in tools if tool["name"] in self._added]
        if hidden != self._hidden:
            self._hidden = hidden
            self._log.warning("tools for its resources and prompts hide the server's: %s", hidden)
        return [*self._added.values(), *(tool for tool in tools if tool["name"] not in self._added)]

    async def _all(
        self, what: str, page: Callable[[str | None, Client], Awaitable[Any]]
    ) -> list[dict[str, Plain]]:
        """Return the items of all pages of a list, which ends even if the server never ends it."""
        loop = asyncio.get_running_loop()
        until = None if self._seconds is None else loop.time() + self._seconds
        items: list[dict[str, Plain]] = []
        size = 0
        cursors: set[str | None] = {None}
        cursor: str | None = None
        for _ in range(_PAGES):
            seconds = None if until is None else max(0.0, until - loop.time())
            answer = await self._ask(partial(page, cursor), f"list of {what}", seconds)
            new = _plain(getattr(answer, what))
            items += new
            size += sum(len(json.dumps(item)) for item in new)
            if len(items) > _ITEMS:
                raise self._too_long(what, f"{_ITEMS:,} {what}", what, _ITEMS)
            if size > self._largest:
                raise self._too_long(what, size_text(self._largest), "output", self._largest)
            cursor = answer.next_cursor or None  # Some servers end a list with an empty text.
            if cursor is None:
                return items
            if cursor in cursors:
                raise broken(f"{self.name}: list of {what}", "the list does not end")
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


async def _ping(client: Client) -> None:
    """Send a request that every server answers."""
    from mcp import MCPError
    from mcp.types import METHOD_NOT_FOUND

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The newest revision has no ping.
            await client.send_ping()  # type: ignore[deprecated]
    except MCPError as error:
        if error.code != METHOD_NOT_FOUND:
            raise


def _seldom(tell: Progress) -> ProgressFnT:
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


async def _unevaluated(name: str, result: Any) -> None:
    """Skip validating an answer with the schema from the server.

    A schema is a program: a pattern in it may take forever to match, and would block everything.
    """


async def _ignore_log(params: Any) -> None:
    """Discard log messages of a server."""


def _withdrawn() -> bool:
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
    from pydantic import ValidationError

    error = _first(error)
    why = fault(error) or type(error).__name__
    if isinstance(error, ValidationError) or getattr(error, "code", 0) == BROKEN:
        return f"the server's answer breaks the protocol: {why}"
    return why


def _plain(items: Any) -> list[dict[str, Plain]]:
    return [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in items]

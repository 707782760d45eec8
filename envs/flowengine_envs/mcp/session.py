"""A session with an MCP server: its tools, resources and prompts.

The client of the protocol belongs to the task that opened it. One task therefore owns it for its
whole life. Other callers submit requests from any task, thread or loop.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
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
from flowengine.sdk.environments import Request, Resource, both_forms
from flowengine.sdk.environments.network_hints import network_hint, reachable
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.tools.browser_tools import OfferedTool
from flowengine_envs.mcp import library
from flowengine_envs.mcp.elicitation import (
    PAUSES,
    ROUNDS,
    URL_REQUIRED,
    CallInputs,
    OpenCall,
    OpenCalls,
)
from flowengine_envs.mcp.messages import (
    BROKEN,
    LARGEST,
    TOO_LARGE,
    CheckedStream,
    brief,
    broken,
    broken_answer,
    fault,
    too_large,
    too_many,
    unanswered,
)
from flowengine_envs.mcp.tool_list import Approved, Changed, ToolList

_COMPLETED = 100
"""Maximum number of suggested values: the protocol's own limit."""
CLOSING = 8.0
"""Seconds within which a server and its processes must end."""
_ALIVE = 4.0
"""Seconds within which a server must answer, less than the check of an environment may take."""


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


class McpSession(Resource):
    """A session with a server: tools, resources and prompts.

    Its requests are bounded. It is ended when its server hangs. A session that the server forgets
    is started again.

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
        self.last_output = connection.last_output
        self._roots: list[str] = list(config.roots)
        self._mode: Any = config.mode
        self._log = request.log
        self._client: library.Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._open_calls = OpenCalls()
        self._seconds: float | None = request.limits.time
        self._largest = request.limits.output or LARGEST
        self._asking: set[asyncio.Future[Any]] = set()
        self._renewing = asyncio.Lock()
        self._network = reachable(request)
        self._tools = ToolList(request, self.name, self._read_tools)
        self._added = {str(tool["name"]): tool for tool in own_tools(config)}
        """Tools for the server's resources and prompts."""
        self._hidden: list[Plain] = []
        """Names of the server's tools that they hide."""

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

    offers, async_offers = both_forms(_offers)

    async def _list_tools(self) -> list[dict[str, Plain]]:
        """Return the usable tools of the server: name, description, `inputSchema` and so on.

        Raises:
            LimitExceeded: It lists more than 10,000, or more than `limits.output` bytes.
            EnvironmentLost: The server has ended.
        """
        return await self._tools.all()

    list_tools, async_list_tools = both_forms(_list_tools)

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
            content, structured = await self._call_own(name, args or {})
            return McpToolResult(content, structured, False)
        meta: Any = None if traceparent is None else {"traceparent": traceparent}
        heard = None if progress is None else seldom(progress)
        call = partial(self._made_call, name, dict(args or {}), meta, heard, inputs)
        answer = await self._ask(call, f"tool {name}", timeout, inputs)
        result = McpToolResult(as_data(answer.content), answer.structured_content, answer.is_error)
        if result.is_error and (hint := network_hint(self._network, result.text)):
            result.content.append({"type": "text", "text": hint})
        if result.is_error and (request := unanswered(result.text)):
            result.content.append({"type": "text", "text": f"({request})"})
        return result

    async def _call_own(
        self, name: str, args: Mapping[str, Plain]
    ) -> tuple[Parts, dict[str, Plain] | None]:
        """Call a tool for resources or prompts: return the parts of its answer, or it as data."""

        def text(argument: str) -> str:
            value = args.get(argument)
            if not isinstance(value, str):
                raise ToolError(
                    f"{self.name}: {name}: '{argument}' must be a text", retryable=False
                )
            return value

        if name == "list_resources":
            resources = await self.async_list_resources()
            templates = await self.async_list_resource_templates()
            return [], {"resources": list(resources), "templates": list(templates)}
        if name == "list_prompts":
            return [], {"prompts": list(await self.async_list_prompts())}
        if name == "read_resource":
            found = await self.async_read_resource(text("uri"))
            form = as_file if args.get("as_file") is True else dict
            return [as_part({"type": "resource", "resource": form(one)}) for one in found], None
        given = args.get("arguments", {})
        if not isinstance(given, Mapping) or not all(
            isinstance(one, str) for one in given.values()
        ):
            raise ToolError(f"{self.name}: {name}: 'arguments' must be texts", retryable=False)
        return [said(one) for one in await self.async_get_prompt(text("name"), given)], None

    async def _made_call(
        self,
        name: str,
        args: dict[str, Any],
        meta: Any,
        heard: library.ProgressFnT | None,
        inputs: CallInputs | None,
        client: library.Client,
    ) -> library.CallToolResult:
        """Make a call, and make it again with each input that its answers request."""
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
            except library.MCPError as error:
                if error.code == library.HEADER_MISMATCH and not is_listed:
                    await self._tools.all()
                    is_listed = True
                elif inputs is None:
                    raise
                elif error.code == URL_REQUIRED:
                    inputs.open_pages(error.data)
                elif error.code != library.INVALID_PARAMS or not inputs.forget_state():
                    raise
                else:
                    responses, state = inputs.begin()
                continue
            if isinstance(answer, library.CallToolResult):
                return answer
            if inputs is None:
                raise ToolError(
                    f"{self.name}: tool {name}: {unanswered('elicit')}", retryable=False
                )
            if not answer.input_requests:
                await asyncio.sleep(PAUSES[min(number, len(PAUSES) - 1)])
            responses, state = inputs.responses(answer), answer.request_state
        message = f"{self.name}: tool {name}: it was not finished after {ROUNDS} requests"
        raise ToolError(message, retryable=False)

    call_tool, async_call_tool = both_forms(_call_tool)

    async def _list_resources(self) -> list[dict[str, Plain]]:
        """Return all resources of the server."""
        return await self._all("resources", lambda at, client: client.list_resources(cursor=at))

    list_resources, async_list_resources = both_forms(_list_resources)

    async def _list_resource_templates(self) -> list[dict[str, Plain]]:
        """Return all templates of addresses of resources: `name`, `uriTemplate` and so on."""
        return await self._all(
            "resource_templates", lambda at, client: client.list_resource_templates(cursor=at)
        )

    list_resource_templates, async_list_resource_templates = both_forms(_list_resource_templates)

    async def _read_resource(self, uri: str) -> list[dict[str, Plain]]:
        """Return the parts of a resource.

        Args:
            uri: Its address.

        Returns:
            Parts with `text`, or `blob` in base64.
        """
        answer = await self._ask(lambda client: client.read_resource(uri), f"resource {uri}")
        return as_data(answer.contents)

    read_resource, async_read_resource = both_forms(_read_resource)

    async def _list_prompts(self) -> list[dict[str, Plain]]:
        """Return all prompts of the server."""
        return await self._all("prompts", lambda at, client: client.list_prompts(cursor=at))

    list_prompts, async_list_prompts = both_forms(_list_prompts)

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
        return as_data(answer.messages)

    get_prompt, async_get_prompt = both_forms(_get_prompt)

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
        if (prompt is None) == (template is None):
            message = f"{self.name}: completion needs either 'prompt' or 'template'"
            raise ToolError(message, retryable=False)
        ref: library.PromptReference | library.ResourceTemplateReference
        if prompt is not None:
            ref = library.PromptReference(name=prompt)
        else:
            ref = library.ResourceTemplateReference(uri=template or "")
        answer = await self._ask(
            lambda client: client.complete(
                ref, {"name": argument, "value": value}, dict(given) if given else None
            ),
            f"completion of {argument}",
        )
        return [str(each) for each in answer.completion.values[:_COMPLETED]]

    complete, async_complete = both_forms(_complete)

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

    # The connection

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
        if self._owner is not None:
            if self._client is not None:
                await asyncio.wait([self._owner], timeout=CLOSING)
            self._owner.cancel()
            await asyncio.wait([self._owner], timeout=CLOSING)
        self._client = None

    async def ping(self) -> bool:
        """Return whether the server responds."""
        client, owner = self._client, self._owner
        if client is None or owner is None or owner.done():
            return False
        try:
            async with asyncio.timeout(_ALIVE):
                await _ping(client)
        except TimeoutError:
            self._log.warning("the server hangs in a call, and is ended")
            self._ending.set()
            owner.cancel()
            return False
        except asyncio.CancelledError:
            if withdrawn():
                raise
            return False
        except Exception:
            return False
        return True

    async def _own(self, ready: asyncio.Future[library.Client], ending: asyncio.Event) -> None:
        """Hold the client open, and close it in the same task."""
        options: dict[str, Any] = {"list_roots_callback": self._send_roots} if self._roots else {}
        try:
            async with library.Client(
                self._streams(),
                logging_callback=_ignore_log,
                elicitation_callback=self._elicited,
                message_handler=self._notice,
                cache=None,
                mode=self._mode,
                **options,
            ) as client:
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

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        """Yield the streams of a new connection."""
        async with self._connection.transport() as (receive, send):
            yield CheckedStream(receive, self._readable, self._connection.masked), send

    def _readable(self, answer: library.JSONRPCResponse) -> library.JSONRPCMessage:
        if why := too_many(answer):
            return broken_answer(answer.id, why)
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
        cursors: set[str | None] = {None}
        cursor: str | None = None
        for _ in range(_PAGES):
            seconds = None if until is None else max(0.0, until - loop.time())
            answer = await self._ask(partial(page, cursor), f"list of {what}", seconds)
            new = {json.dumps(item): item for item in as_data(getattr(answer, what))}
            is_known = bool(new) and new.keys() <= items.keys()
            items |= new
            if len(items) > _ITEMS:
                raise self._too_long(what, f"{_ITEMS:,} {what}", what, _ITEMS)
            if sum(map(len, items)) > self._largest:
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


# The resources and prompts of a server as tools, if its config asks for them.

Parts = list[dict[str, Plain]]
_TEXT: Mapping[str, Plain] = {"type": "string"}
_RESOURCES: Mapping[str, tuple[str, Mapping[str, Plain]]] = {
    "list_resources": (
        "List the server's resources, and the templates of addresses of further ones.",
        {},
    ),
    "read_resource": (
        "Read a resource of the server.",
        {
            "uri": {**_TEXT, "description": "Its address, from a list or made from a template."},
            "as_file": {"type": "boolean", "description": "Keep its text as a file, too."},
        },
    ),
}
_PROMPTS: Mapping[str, tuple[str, Mapping[str, Plain]]] = {
    "list_prompts": ("List the server's prompts, with the arguments of each.", {}),
    "get_prompt": (
        "Return the text of a prompt of the server.",
        {
            "name": {**_TEXT, "description": "Its name, from the list."},
            "arguments": {"type": "object", "additionalProperties": _TEXT},
        },
    ),
}


def own_tools(config: Any) -> list[dict[str, Plain]]:
    """Return the tools for the resources and prompts of a server, as servers list theirs.

    Args:
        config: Its config: `resources` and `prompts` say whether there are tools for them.
    """
    chosen = {
        **(_RESOURCES if config.resources else {}),
        **(_PROMPTS if config.prompts else {}),
    }
    return [
        {
            "name": name,
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": dict(arguments),
                "required": [each for each in arguments if each not in ("arguments", "as_file")],
                "additionalProperties": False,
            },
        }
        for name, (description, arguments) in chosen.items()
    ]


def as_part(part: Any) -> dict[str, Plain]:
    """Return a part, as a text if it is a resource that consists of text."""
    inner = part.get("resource")
    if isinstance(inner, Mapping) and isinstance(inner.get("text"), str):
        return {"type": "text", "text": inner["text"]}
    return dict(part)


def as_file(resource: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return a resource as servers send those that are not text."""
    text = resource.get("text")
    if not isinstance(text, str):
        return dict(resource)
    rest = {key: value for key, value in resource.items() if key != "text"}
    return {**rest, "blob": base64.b64encode(text.encode()).decode()}


def said(message: Any) -> dict[str, Plain]:
    """Return a message of a prompt as a part. A text names a speaker other than the user."""
    part = as_part(message["content"])
    if part["type"] == "text" and message["role"] != "user":
        part = {**part, "text": f"{message['role']}: {part['text']}"}
    return part

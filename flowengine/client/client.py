"""`Client` and `AsyncClient`: the engine's methods over HTTP, for programs beside a server.

    with flowengine.Client("https://flows.example.com", token) as client:
        execution = client.start("expense", {"amount": 80})
        for wait in client.approvals.list(execution=execution).items:
            client.approvals.approve(wait["id"], comment="as agreed")

Each method takes the arguments of the engine's method of the same name, except those about driving:
a server records, and a worker drives. It raises the same errors. A request that gets no answer is
sent again, which is safe because each change has an idempotency key.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager, suppress
from functools import partial, wraps
from os import PathLike
from ssl import SSLCertVerificationError, SSLError
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    overload,
)
from urllib.parse import urlsplit

import httpx2

from flowengine import errors
from flowengine.client import requests
from flowengine.client.event_lines import EventLines, StreamedEvent
from flowengine.client.requests import ApiRequest
from flowengine.engines.infos import StoreEvent
from flowengine.errors import FlowEngineError, StoreError, UsageError
from flowengine.flow.source.diagnostics import Diagnostic
from flowengine.journal.records import ENDED
from flowengine.sdk.python.argument_checks import check_kind, check_kinds, check_methods
from flowengine.sdk.texts.json_values import plain
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.values.validation import as_plain
from flowengine.sdk.web.urls import is_loopback
from flowengine.util.blocking import Either, finished, items, items_on_loop, on_this_loop, pause

SERVER, TOKEN = "FLOWENGINE_SERVER", "FLOWENGINE_TOKEN"
LARGEST_ANSWER = 64 * 1024 * 1024
"""Maximum number of bytes of an answer."""
_PAUSES = (0.2, 1.0)
"""Seconds before a request without an answer is sent again."""
_FOLLOW_SECONDS = 0.5
_LONGEST_TEXT = 4000
"""Number of characters of a server's message that are kept."""
_OURS = "is it a flowengine server?"
_CHUNK = 256 * 1024
STREAMED = {"accept": "text/event-stream"}
_BY_STATUS: dict[int, type[FlowEngineError]] = {
    401: errors.NotAllowed,
    403: errors.NotAllowed,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.InputError,
    422: errors.InputError,
}

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")
_Awaited = TypeVar("_Awaited")
_AnyClient = TypeVar("_AnyClient", "Client", "AsyncClient")


class ClientGroup(Generic[_AnyClient]):
    """The operations of a client on one kind of thing, as of the engine.

    Args:
        client: The client.
    """

    def __init__(self, client: _AnyClient) -> None:
        self._client: _AnyClient = client


class ClientMethod(Generic[_Args, _Result, _Awaited]):
    """A method of both clients: plain, or for an event loop.

    Args:
        function: Whose documentation it has.
        call: Takes the client or its group, and the arguments.
    """

    def __init__(self, function: Callable[..., Any], call: Callable[..., Any]) -> None:
        self._function = function
        self._call = call
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, of: None, owner: object) -> Self: ...
    @overload
    def __get__(
        self, of: Client | ClientGroup[Client], owner: object
    ) -> Callable[_Args, _Result]: ...
    @overload
    def __get__(
        self, of: AsyncClient | ClientGroup[AsyncClient], owner: object
    ) -> Callable[_Args, _Awaited]: ...
    def __get__(self, of: Any, owner: object) -> Any:
        """Return the method of a client."""
        if of is None:
            return self
        client = of._client if isinstance(of, ClientGroup) else of
        return wraps(self._function)(partial(self._call, client))


def operation(
    build: Callable[_Args, ApiRequest[_Result]],
) -> ClientMethod[_Args, _Result, Coroutine[Any, Any, _Result]]:
    """Return the method that sends a request."""
    return ClientMethod(
        build, lambda client, *args, **given: client._run(_sent(client, build(*args, **given)))
    )


def listing(
    source: Callable[Concatenate[Any, _Args], AsyncGenerator[_Result]],
) -> ClientMethod[_Args, Iterator[_Result], AsyncIterator[_Result]]:
    """Return the method that yields items."""
    return ClientMethod(
        source,
        lambda client, *args, **given: client._items(source(client.executions, *args, **given)),
    )


class ClientExecutions(ClientGroup[_AnyClient]):
    """The executions of a server."""

    list = operation(requests.executions)
    counts = operation(requests.counts)
    find = operation(requests.find)
    show = operation(requests.show)
    result = operation(requests.result)
    why = operation(requests.why)
    graph = operation(requests.graph)
    diff = operation(requests.diff)
    cancel = operation(requests.cancel)
    retry = operation(requests.retry)
    fork = operation(requests.fork)
    upgrade = operation(requests.upgrade)

    @listing
    async def events(
        self,
        execution: str,
        *,
        from_seq: int = 0,
        follow: bool = False,
        step: str | None = None,
        type: str | None = None,
        since: int | None = None,
    ) -> AsyncGenerator[dict[str, Any]]:
        """Yield the entries of a journal. See `Engine.executions.events`.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            from_seq: Number of the first entry.
            follow: Continue with new entries until the execution has ended.
            step: Address of a step, without `follow`. Only entries about it are yielded.
            type: Only entries of this type, such as `failed`.
            since: Only entries of this time or later, in milliseconds since 1970.
        """
        has_ended, wanted = False, requests.filters_of_events(step, type, since)
        while True:
            part = await _sent(self._client, requests.part_of_journal(execution, from_seq, wanted))
            for entry in part:
                yield entry
            if part:
                from_seq = part[-1]["seq"] + 1
            elif has_ended or not follow:
                return
            else:
                has_ended = (await _sent(self._client, requests.result(execution))).status in ENDED
                await pause(0 if has_ended else _FOLLOW_SECONDS)

    @listing
    async def all_events(
        self,
        *,
        after: int | None = None,
        flow: str | None = None,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        since: int | None = None,
        follow: bool = False,
    ) -> AsyncGenerator[StoreEvent]:
        """Yield the events of all executions that the user may see. See the engine's.

        Without the right `content`, an entry has only `seq`, `at` and `type`.
        """
        filters = requests.filters_of(flow, status, labels, since)
        while True:
            events, following = await _sent(
                self._client, requests.part_of_all_events(after, filters)
            )
            for event in events:
                yield event
            if events or following != after:
                after = following
            elif not follow:
                return
            else:
                await pause(_FOLLOW_SECONDS)

    @listing
    async def stream(self, execution: str, *, from_seq: int = 0) -> AsyncGenerator[StreamedEvent]:
        """Yield the entries of a journal, and parts of replies that models are writing.

        It ends with the execution. A stream that breaks off is continued behind the last entry.
        Parts can be missed, but the journal has the complete replies.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            from_seq: Number of the first entry.
        """
        path, lines = requests.path_in(execution, "events"), EventLines(from_seq)
        while True:
            given: dict[str, Any] = {"params": {"from_seq": lines.next}, "headers": STREAMED}
            try:
                async with _answered(
                    self._client._http, method="GET", url=path, **given
                ) as response:
                    await _check_kind(
                        response, "content-type", STREAMED["accept"], "a stream of events"
                    )
                    async for part in _parts(response):
                        for event in lines.feed(part):
                            yield event
            except httpx2.TransportError as error:
                if lines.failed():
                    raise _unreachable(self._client.url, error) from None
            if lines.has_ended:
                return
            lines.break_off()
            await pause(_FOLLOW_SECONDS)

    @listing
    async def download(self, execution: str, sha256: str) -> AsyncGenerator[bytes]:
        """Yield the content of a file that an execution keeps. See `Engine.executions.download`."""
        path = requests.path_in(
            await _sent(self._client, requests.find(execution)), "artifacts", sha256
        )
        try:
            async with _answered(self._client._http, method="GET", url=path) as response:
                await _check_kind(response, "content-disposition", "attachment", "a file")
                async for part in _parts(response):
                    yield part
        except httpx2.TransportError as error:
            raise _unreachable(self._client.url, error) from None


class ClientApprovals(ClientGroup[_AnyClient]):
    """The approvals and questions of executions, and all else that they wait for."""

    list = operation(requests.waits)
    show = operation(requests.wait)
    decide = operation(requests.decide)
    approve = operation(requests.approve)
    reject = operation(requests.reject)
    respond = operation(requests.respond)
    claim = operation(requests.claim)
    release = operation(requests.release)
    delegate = operation(requests.delegate)
    grants = operation(requests.grants)
    revoke = operation(requests.revoke)


class ClientBudgets(ClientGroup[_AnyClient]):
    """The budgets that executions of a server share."""

    list = operation(requests.budgets)


class ClientFlows(ClientGroup[_AnyClient]):
    """The deployed flows of a server."""

    list = operation(requests.flows)
    show = operation(requests.flow)
    graph = operation(requests.flow_graph)
    versions = operation(requests.deployed)
    pause = operation(requests.pause_schedules)
    resume = operation(requests.resume_schedules)
    definition = operation(requests.definition)
    check = operation(requests.check)
    deploy = operation(requests.deploy)
    deploy_version = operation(requests.deploy_version)
    undeploy = operation(requests.undeploy)
    starts = operation(requests.starts)
    trigger = operation(requests.trigger)
    record_past = operation(requests.record_past)


class ServerOperations:
    """The operations of a server: its groups, and those in no group."""

    url: str
    _http: Any

    user = operation(requests.user)
    upload = operation(requests.upload)
    start = operation(requests.start)
    resume = operation(requests.resume)
    signal = operation(requests.signal)
    tokens = operation(requests.tokens)
    create_token = operation(requests.create_token)
    revoke_token = operation(requests.revoke_token)
    open_environments = operation(requests.open_environments)
    open_environment = operation(requests.open_environment)
    look_into_environment = operation(requests.look_into_environment)
    release_environment = operation(requests.release_environment)

    @property
    def executions(self: _AnyClient) -> ClientExecutions[_AnyClient]:
        """The executions."""
        return ClientExecutions(self)

    @property
    def approvals(self: _AnyClient) -> ClientApprovals[_AnyClient]:
        """The approvals and questions of executions, and all else that they wait for."""
        return ClientApprovals(self)

    @property
    def budgets(self: _AnyClient) -> ClientBudgets[_AnyClient]:
        """The budgets that executions share."""
        return ClientBudgets(self)

    @property
    def flows(self: _AnyClient) -> ClientFlows[_AnyClient]:
        """The deployed flows."""
        return ClientFlows(self)


class Client(ServerOperations):
    """A server, for plain code. A context manager.

    Args:
        url: Address of the server. Default: `$FLOWENGINE_SERVER`.
        token: A token of `flowengine tokens create`. Default: `$FLOWENGINE_TOKEN`.
        timeout: Seconds without a byte of the answer after which a request has failed.
        transport: Sends the requests, instead of the network.

    Raises:
        UsageError: The address or the token is missing, or the token would be sent to another
            machine in plain text.
    """

    _run = staticmethod(finished)
    _items = staticmethod(items)

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.url, given = _checked(url, token, timeout)
        check_methods("transport", transport, "handle_request")
        self._http = httpx2.Client(**given, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class AsyncClient(ServerOperations):
    """A server, for code on an event loop: the methods of `Client` as coroutines.

    Args:
        url: As for `Client`.
        token: As for `Client`.
        timeout: As for `Client`.
        transport: As for `Client`.

    Raises:
        UsageError: As for `Client`.
    """

    _run = staticmethod(on_this_loop)
    _items = staticmethod(items_on_loop)

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.url, given = _checked(url, token, timeout)
        check_methods("transport", transport, "handle_async_request")
        self._http = httpx2.AsyncClient(**given, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


async def _sent(client: ServerOperations, request: ApiRequest[_Result]) -> _Result:
    """Send a request, and those that follow, and return the result."""
    while True:
        result = request.result(await _data(client, request))
        if not isinstance(result, ApiRequest):
            return result
        request = result


async def _data(client: ServerOperations, request: ApiRequest[Any]) -> Any:
    """Return the data of the answer to a request, which is repeated if there is none."""
    query = {name: value for name, value in (request.query or {}).items() if value is not None}
    given: dict[str, Any] = {"method": request.method, "url": request.path, "params": query}
    if request.body is not None:
        body = as_plain(dict(request.body), "the request")
        given["json"] = json.loads(json.dumps(body, default=plain))
        given["headers"] = {"idempotency-key": os.urandom(16).hex()}
    for seconds in (*_PAUSES, None):
        try:
            async with _answered(client._http, **given, file=request.file) as response:
                return _read(response, await _content(response))
        except httpx2.TransportError as error:
            if seconds is None or _of_tls(error) is not None:
                raise _unreachable(client.url, error) from None
            await pause(seconds)
    raise AssertionError


@asynccontextmanager
async def _answered(
    http: Any, *, file: PathLike[str] | None = None, **given: Any
) -> AsyncIterator[httpx2.Response]:
    """Send a request whose body may be a file, and close its answer in the end."""
    if file is not None:
        is_plain = isinstance(http, httpx2.Client)
        given["content"] = _chunks(file) if is_plain else _async_chunks(file)
    send = partial(http.send, http.build_request(**given), stream=True)
    response: httpx2.Response = await Either(send, send)
    try:
        yield response
    finally:
        await Either(response.close, response.aclose)


async def _parts(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the bytes of an answer as they arrive."""
    plain, awaited = response.iter_bytes(), response.aiter_bytes()
    either = Either(partial(next, plain, None), partial(anext, awaited, None))
    while (part := await either) is not None:
        yield part


async def _content(response: httpx2.Response) -> bytes:
    """Return all bytes of an answer.

    Raises:
        StoreError: It is too large, or compressed: a small part of it could become large.
    """
    content = bytearray()
    if not _is_plain(response):
        raise StoreError("the server's answer is compressed, which was not asked for")
    async for part in _parts(response):
        content += part
        if len(content) > LARGEST_ANSWER:
            raise StoreError(f"the server's answer has more than {size_text(LARGEST_ANSWER)}")
    return bytes(content)


def _chunks(path: PathLike[str]) -> Iterator[bytes]:
    """Yield the parts of a file.

    Raises:
        InputError: It cannot be read.
    """
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise errors.InputError(f"cannot read {os.fspath(path)}: {error.strerror}") from None


async def _async_chunks(path: PathLike[str]) -> AsyncIterator[bytes]:
    """Yield the same for an event loop, which reading does not block."""
    chunks = _chunks(path)
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def _is_plain(response: httpx2.Response) -> bool:
    return response.headers.get("content-encoding", "identity").lower() == "identity"


async def _check_kind(response: httpx2.Response, header: str, kind: str, what: str) -> None:
    """Check that an answer is of the kind that was asked for.

    Raises:
        FlowEngineError: The server refused the request.
        StoreError: It is something else.
    """
    found = response.headers.get(header, "").partition(";")[0].strip()
    if response.status_code != 200 or found != kind or not _is_plain(response):
        _read(response, await _content(response))  # raises its error
        raise StoreError(f"the server's answer is not {what}", hint=_OURS)


def _checked(url: str | None, token: str | None, timeout: float) -> tuple[str, dict[str, Any]]:
    """Return the address of a server, and the arguments of the HTTP client for it.

    Raises:
        UsageError: One is missing or wrong, or the token would be sent in plain text.
    """
    check_kinds(str, url=url, token=token)
    check_kind("timeout", timeout, float)
    url = (url or os.environ.get(SERVER, "")).rstrip("/")
    token = token or os.environ.get(TOKEN, "")
    try:
        parts = urlsplit(url)
        host = httpx2.URL(url).host
        is_address = bool(host) and host == (parts.hostname or "") and parts.port != 0
    except (ValueError, httpx2.InvalidURL):
        is_address = False
    more = "" if not is_address else f"{parts.username or parts.password or ''}{parts.query}"
    if not is_address or parts.scheme not in ("http", "https") or more or "#" in url:
        raise UsageError(
            f"{url!r} is not the address of a server", hint=f"set {SERVER}=https://HOST"
        )
    assert parts.hostname is not None
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UsageError(
            f"the token would be sent to {parts.hostname} in plain text", hint="use https://"
        )
    if not token.isascii() or not token.isprintable() or not token:
        raise UsageError(
            "the server needs a token",
            hint=f"set {TOKEN} to a token of: flowengine tokens create NAME",
        )
    headers = {
        "authorization": f"Bearer {token}",
        "accept": "application/json",
        "accept-encoding": "identity",
    }
    # A proxy of the environment would receive the token in plain text.
    trusts = parts.scheme == "https"
    return url, {"base_url": url, "headers": headers, "trust_env": trusts, "timeout": timeout}


def _read(response: httpx2.Response, content: bytes) -> Any:
    """Return the data of an answer.

    Raises:
        FlowEngineError: The server refused the request.
    """
    status = response.status_code
    if 300 <= status < 400:
        to = response.headers.get("location", "nowhere")[:_LONGEST_TEXT]
        hint = "redirects are not followed: give the address of the server itself"
        raise StoreError(f"the server redirects to {to}", hint=hint)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        raise StoreError(f"the server answered {status} without JSON", hint=_OURS) from None
    if status < 300:
        return data
    raise _error(status, data if isinstance(data, dict) else {})


def _error(status: int, problem: dict[str, Any]) -> FlowEngineError:
    """Return the error that a problem describes, of the same type as in the engine."""
    message, hint, of_cli = (
        None if problem.get(name) is None else str(problem[name])[:_LONGEST_TEXT]
        for name in ("detail", "hint", "cli_hint")
    )
    message = message or f"the server answered {status}"
    if of_cli is not None:
        hint = errors.Hint(hint or of_cli, of_cli)
    error_type = getattr(errors, str(problem.get("code")), None)
    if not (isinstance(error_type, type) and issubclass(error_type, errors.FlowEngineError)):
        error_type = _BY_STATUS.get(status, errors.StoreError if status >= 500 else UsageError)
    if issubclass(error_type, errors.FlowFileError):
        data = problem.get("errors")
        diagnostics = []
        for item in data if isinstance(data, list) else ():
            with suppress(TypeError):
                diagnostics.append(Diagnostic(**item))
        return error_type(message, diagnostics)
    if issubclass(error_type, errors.InputError):
        return error_type(message, field=str(problem.get("field", "")), hint=hint)
    if issubclass(error_type, errors.Conflict):
        return error_type(message, standing=problem.get("standing"), hint=hint)
    return error_type(message, hint=hint)


def _unreachable(url: str, error: Exception) -> StoreError:
    if (of_tls := _of_tls(error)) is not None:
        hint = "does it speak TLS? If not, its address begins with http://"
        if isinstance(of_tls, SSLCertVerificationError):
            hint = "SSL_CERT_FILE names the file of the authority that its certificate is of"
        return StoreError(f"no protected connection to {url}: {of_tls}", hint=hint)
    return StoreError(f"no answer from {url}: {error}", hint="is the server running?")


def _of_tls(error: BaseException | None) -> SSLError | None:
    """Return the TLS error that caused a failed request, if any."""
    while error is not None and not isinstance(error, SSLError):
        error = error.__cause__ or error.__context__
    return error

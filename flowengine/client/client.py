"""`Client` and `AsyncClient`: the engine's methods over HTTP, for programs beside a server.

    with flowengine.Client("https://flows.example.com", token) as client:
        execution = client.start("expense", {"amount": 80})
        for wait in client.waits(execution=execution).items:
            client.approve(wait["id"], comment="as agreed")

Each method takes the arguments of the engine's method of the same name, except those about driving:
a server records, and a worker drives. It raises the same errors. A request that gets no answer is
sent again, which is safe because each change has an idempotency key.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from ipaddress import ip_address
from os import PathLike
from ssl import SSLCertVerificationError, SSLError
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar, cast
from urllib.parse import urlsplit

import httpx2

from flowengine import errors
from flowengine.client import requests
from flowengine.client.event_lines import EventLines, StreamedEvent
from flowengine.client.requests import ApiRequest
from flowengine.engines.results import StoreEvent
from flowengine.errors import FlowEngineError, StoreError, UsageError
from flowengine.journal.records import ENDED
from flowengine.sdk.argument_checks import check_kind, check_kinds, check_methods
from flowengine.sdk.json_values import plain
from flowengine.sdk.sizes import size_text
from flowengine.sdk.validation import as_plain

if TYPE_CHECKING:
    from flowengine.flow.source.diagnostics import Diagnostic

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


def _blocking(
    build: Callable[_Args, ApiRequest[_Result]],
) -> Callable[Concatenate[Client, _Args], _Result]:
    @wraps(build)
    def send(self: Client, *args: _Args.args, **given: _Args.kwargs) -> _Result:
        return self._send(build(*args, **given))

    return cast("Callable[Concatenate[Client, _Args], _Result]", send)


def _async(
    build: Callable[_Args, ApiRequest[_Result]],
) -> Callable[Concatenate[AsyncClient, _Args], Coroutine[Any, Any, _Result]]:
    @wraps(build)
    async def send(self: AsyncClient, *args: _Args.args, **given: _Args.kwargs) -> _Result:
        return await self._send(build(*args, **given))

    return cast("Callable[Concatenate[AsyncClient, _Args], Coroutine[Any, Any, _Result]]", send)


class Client:
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

    user = _blocking(requests.user)
    tokens = _blocking(requests.tokens)
    create_token = _blocking(requests.create_token)
    revoke_token = _blocking(requests.revoke_token)
    upload = _blocking(requests.upload)
    flows = _blocking(requests.flows)
    check = _blocking(requests.check)
    deploy = _blocking(requests.deploy)
    deploy_version = _blocking(requests.deploy_version)
    undeploy = _blocking(requests.undeploy)
    deployed = _blocking(requests.deployed)
    starts = _blocking(requests.starts)
    pause_schedules = _blocking(requests.pause_schedules)
    resume_schedules = _blocking(requests.resume_schedules)
    trigger = _blocking(requests.trigger)
    record_past = _blocking(requests.record_past)
    flow = _blocking(requests.flow)
    flow_graph = _blocking(requests.flow_graph)
    definition = _blocking(requests.definition)
    start = _blocking(requests.start)
    executions = _blocking(requests.executions)
    counts = _blocking(requests.counts)
    find = _blocking(requests.find)
    show = _blocking(requests.show)
    result = _blocking(requests.result)
    why = _blocking(requests.why)
    graph = _blocking(requests.graph)
    diff = _blocking(requests.diff)
    cancel = _blocking(requests.cancel)
    resume = _blocking(requests.resume)
    retry = _blocking(requests.retry)
    fork = _blocking(requests.fork)
    upgrade = _blocking(requests.upgrade)
    signal = _blocking(requests.signal)
    waits = _blocking(requests.waits)
    wait = _blocking(requests.wait)
    decide = _blocking(requests.decide)
    approve = _blocking(requests.approve)
    reject = _blocking(requests.reject)
    respond = _blocking(requests.respond)
    claim = _blocking(requests.claim)
    release = _blocking(requests.release)
    delegate = _blocking(requests.delegate)
    grants = _blocking(requests.grants)
    revoke = _blocking(requests.revoke)
    open_environments = _blocking(requests.open_environments)
    open_environment = _blocking(requests.open_environment)
    look_into_environment = _blocking(requests.look_into_environment)
    release_environment = _blocking(requests.release_environment)

    def events(
        self, execution: str, *, from_seq: int = 0, follow: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the entries of a journal. See `Engine.events`.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            from_seq: Number of the first entry.
            follow: Continue with new entries until the execution has ended.
        """
        has_ended = False
        while True:
            part = self._send(requests.part_of_journal(execution, from_seq))
            yield from part
            if part:
                from_seq = part[-1]["seq"] + 1
            elif has_ended or not follow:
                return
            else:
                has_ended = self.result(execution).status in ENDED
                time.sleep(0 if has_ended else _FOLLOW_SECONDS)

    def all_events(
        self,
        *,
        after: int | None = None,
        flow: str | None = None,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        since: int | None = None,
        follow: bool = False,
    ) -> Iterator[StoreEvent]:
        """Yield the events of all executions that the user may see. See `Engine.all_events`.

        Without the right `content`, an entry has only `seq`, `at` and `type`.
        """
        filters = requests.filters_of(flow, status, labels, since)
        while True:
            events, following = self._send(requests.part_of_all_events(after, filters))
            yield from events
            if events or following != after:
                after = following
            elif not follow:
                return
            else:
                time.sleep(_FOLLOW_SECONDS)

    def stream(self, execution: str, *, from_seq: int = 0) -> Iterator[StreamedEvent]:
        """Yield the entries of a journal, and parts of replies that models are writing.

        It ends with the execution. A stream that breaks off is continued behind the last entry.
        Parts can be missed, but the journal has the complete replies.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            from_seq: Number of the first entry.
        """
        path, lines = requests.stream_of(execution), EventLines(from_seq)
        while True:
            query = {"from_seq": lines.next}
            try:
                with self._http.stream("GET", path, params=query, headers=STREAMED) as response:
                    if not _streams(response):
                        _refuse_stream(response, _Bounded(response).all(response.iter_bytes()))
                    for part in response.iter_bytes():
                        yield from lines.take(part)
            except httpx2.TransportError as error:
                if lines.failed():
                    raise _unreachable(self.url, error) from None
            if lines.has_ended:
                return
            lines.break_off()
            time.sleep(_FOLLOW_SECONDS)

    def download(self, execution: str, sha256: str) -> Iterator[bytes]:
        """Yield the content of a file that an execution keeps. See `Engine.download`."""
        path = requests.kept_file(self.find(execution), sha256)
        try:
            with self._http.stream("GET", path) as response:
                if not _is_file(response):
                    _refuse_file(response, _Bounded(response).all(response.iter_bytes()))
                yield from response.iter_bytes()
        except httpx2.TransportError as error:
            raise _unreachable(self.url, error) from None

    def _send(self, request: ApiRequest[_Result]) -> _Result:
        while True:
            result = request.result(self._answer(request))
            if not isinstance(result, ApiRequest):
                return result
            request = result

    def _answer(self, request: ApiRequest[Any]) -> Any:
        given = _arguments(request)
        for pause in (*_PAUSES, None):
            try:
                with self._http.stream(**given, content=_pieces(request)) as response:
                    return _read(response, _Bounded(response).all(response.iter_bytes()))
            except httpx2.TransportError as error:
                if pause is None or _of_tls(error) is not None:
                    raise _unreachable(self.url, error) from None
                time.sleep(pause)
        raise AssertionError


class AsyncClient:
    """A server, for code on an event loop: the methods of `Client` as coroutines.

    Args:
        url: As for `Client`.
        token: As for `Client`.
        timeout: As for `Client`.
        transport: As for `Client`.

    Raises:
        UsageError: As for `Client`.
    """

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

    user = _async(requests.user)
    tokens = _async(requests.tokens)
    create_token = _async(requests.create_token)
    revoke_token = _async(requests.revoke_token)
    upload = _async(requests.upload)
    flows = _async(requests.flows)
    check = _async(requests.check)
    deploy = _async(requests.deploy)
    deploy_version = _async(requests.deploy_version)
    undeploy = _async(requests.undeploy)
    deployed = _async(requests.deployed)
    starts = _async(requests.starts)
    pause_schedules = _async(requests.pause_schedules)
    resume_schedules = _async(requests.resume_schedules)
    trigger = _async(requests.trigger)
    record_past = _async(requests.record_past)
    flow = _async(requests.flow)
    flow_graph = _async(requests.flow_graph)
    definition = _async(requests.definition)
    start = _async(requests.start)
    executions = _async(requests.executions)
    counts = _async(requests.counts)
    find = _async(requests.find)
    show = _async(requests.show)
    result = _async(requests.result)
    why = _async(requests.why)
    graph = _async(requests.graph)
    diff = _async(requests.diff)
    cancel = _async(requests.cancel)
    resume = _async(requests.resume)
    retry = _async(requests.retry)
    fork = _async(requests.fork)
    upgrade = _async(requests.upgrade)
    signal = _async(requests.signal)
    waits = _async(requests.waits)
    wait = _async(requests.wait)
    decide = _async(requests.decide)
    approve = _async(requests.approve)
    reject = _async(requests.reject)
    respond = _async(requests.respond)
    claim = _async(requests.claim)
    release = _async(requests.release)
    delegate = _async(requests.delegate)
    grants = _async(requests.grants)
    revoke = _async(requests.revoke)
    open_environments = _async(requests.open_environments)
    open_environment = _async(requests.open_environment)
    look_into_environment = _async(requests.look_into_environment)
    release_environment = _async(requests.release_environment)

    async def events(
        self, execution: str, *, from_seq: int = 0, follow: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the entries of a journal. See `Client.events`."""
        has_ended = False
        while True:
            part = await self._send(requests.part_of_journal(execution, from_seq))
            for entry in part:
                yield entry
            if part:
                from_seq = part[-1]["seq"] + 1
            elif has_ended or not follow:
                return
            else:
                has_ended = (await self.result(execution)).status in ENDED
                await asyncio.sleep(0 if has_ended else _FOLLOW_SECONDS)

    async def all_events(
        self,
        *,
        after: int | None = None,
        flow: str | None = None,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        since: int | None = None,
        follow: bool = False,
    ) -> AsyncIterator[StoreEvent]:
        """Yield the events of all executions that the user may see. See `Engine.all_events`.

        Without the right `content`, an entry has only `seq`, `at` and `type`.
        """
        filters = requests.filters_of(flow, status, labels, since)
        while True:
            events, following = await self._send(requests.part_of_all_events(after, filters))
            for event in events:
                yield event
            if events or following != after:
                after = following
            elif not follow:
                return
            else:
                await asyncio.sleep(_FOLLOW_SECONDS)

    async def stream(self, execution: str, *, from_seq: int = 0) -> AsyncIterator[StreamedEvent]:
        """Yield entries and parts of replies as they arrive. See `Client.stream`."""
        path, lines = requests.stream_of(execution), EventLines(from_seq)
        while True:
            query = {"from_seq": lines.next}
            try:
                async with self._http.stream(
                    "GET", path, params=query, headers=STREAMED
                ) as response:
                    if not _streams(response):
                        _refuse_stream(response, await _all(response))
                    async for part in response.aiter_bytes():
                        for event in lines.take(part):
                            yield event
            except httpx2.TransportError as error:
                if lines.failed():
                    raise _unreachable(self.url, error) from None
            if lines.has_ended:
                return
            lines.break_off()
            await asyncio.sleep(_FOLLOW_SECONDS)

    async def download(self, execution: str, sha256: str) -> AsyncIterator[bytes]:
        """Yield the content of a file that an execution keeps. See `Client.download`."""
        path = requests.kept_file(await self.find(execution), sha256)
        try:
            async with self._http.stream("GET", path) as response:
                if not _is_file(response):
                    _refuse_file(response, await _all(response))
                async for part in response.aiter_bytes():
                    yield part
        except httpx2.TransportError as error:
            raise _unreachable(self.url, error) from None

    async def _send(self, request: ApiRequest[_Result]) -> _Result:
        while True:
            result = request.result(await self._answer(request))
            if not isinstance(result, ApiRequest):
                return result
            request = result

    async def _answer(self, request: ApiRequest[Any]) -> Any:
        given = _arguments(request)
        for pause in (*_PAUSES, None):
            try:
                async with self._http.stream(**given, content=_later(request)) as response:
                    return _read(response, await _all(response))
            except httpx2.TransportError as error:
                if pause is None or _of_tls(error) is not None:
                    raise _unreachable(self.url, error) from None
                await asyncio.sleep(pause)
        raise AssertionError


def _pieces(request: ApiRequest[Any]) -> Iterator[bytes] | None:
    """Return the parts of a file to upload. None: the request has none.

    Raises:
        InputError: It cannot be read.
    """
    return None if request.file is None else _chunks(request.file)


def _later(request: ApiRequest[Any]) -> AsyncIterator[bytes] | None:
    """Return the same for an event loop, which reading does not block."""
    return None if request.file is None else _async_chunks(request.file)


def _chunks(path: PathLike[str]) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise errors.InputError(f"cannot read {os.fspath(path)}: {error.strerror}") from None


async def _async_chunks(path: PathLike[str]) -> AsyncIterator[bytes]:
    chunks = _chunks(path)
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


class _Bounded:
    """The bytes of an answer, up to the largest size.

    Args:
        response: The answer. A compressed one is refused: a small part of it could become large.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self._content = bytearray()
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise StoreError("the server's answer is compressed, which was not asked for")

    def add(self, part: bytes) -> None:
        """Add a part.

        Raises:
            StoreError: The answer is too large.
        """
        self._content += part
        if len(self._content) > LARGEST_ANSWER:
            raise StoreError(f"the server's answer has more than {size_text(LARGEST_ANSWER)}")

    def all(self, parts: Iterator[bytes]) -> bytes:
        """Add all parts, and return them."""
        for part in parts:
            self.add(part)
        return self.joined()

    def joined(self) -> bytes:
        """Return all parts."""
        return bytes(self._content)


async def _all(response: httpx2.Response) -> bytes:
    """Return all bytes of an answer."""
    parts = _Bounded(response)
    async for part in response.aiter_bytes():
        parts.add(part)
    return parts.joined()


def _streams(response: httpx2.Response) -> bool:
    """Return whether an answer is a stream of events."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    is_plain = response.headers.get("content-encoding", "identity").lower() == "identity"
    return response.status_code == 200 and kind == STREAMED["accept"] and is_plain


def _is_file(response: httpx2.Response) -> bool:
    """Return whether an answer is the content of a file."""
    is_plain = response.headers.get("content-encoding", "identity").lower() == "identity"
    is_attached = response.headers.get("content-disposition", "").startswith("attachment")
    return response.status_code == 200 and is_attached and is_plain


def _refuse_file(response: httpx2.Response, content: bytes) -> NoReturn:
    """Raise the error that an answer describes instead of a file."""
    _read(response, content)
    raise StoreError("the server's answer is not a file", hint=_OURS)


def _refuse_stream(response: httpx2.Response, content: bytes) -> NoReturn:
    """Raise the error that an answer describes instead of a stream."""
    _read(response, content)
    raise StoreError("the server's answer is no stream of events", hint=_OURS)


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
    if parts.scheme == "http" and not _is_here(parts.hostname):
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


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _arguments(request: ApiRequest[Any]) -> dict[str, Any]:
    """Return the arguments of the HTTP client for a request."""
    query = {name: value for name, value in (request.query or {}).items() if value is not None}
    given: dict[str, Any] = {"method": request.method, "url": request.path, "params": query}
    if request.body is not None:
        body = as_plain(dict(request.body), "the request")
        given["json"] = json.loads(json.dumps(body, default=plain))
        given["headers"] = {"idempotency-key": os.urandom(16).hex()}
    return given


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
        return error_type(message, _diagnostics(problem.get("errors")))
    if issubclass(error_type, errors.InputError):
        return error_type(message, field=str(problem.get("field", "")), hint=hint)
    if issubclass(error_type, errors.Conflict):
        return error_type(message, standing=problem.get("standing"), hint=hint)
    return error_type(message, hint=hint)


def _diagnostics(data: Any) -> list[Diagnostic]:
    """Return the errors of a flow file, without those of another form."""
    from flowengine.flow.source.diagnostics import Diagnostic

    diagnostics = []
    for item in data if isinstance(data, list) else ():
        with suppress(TypeError):
            diagnostics.append(Diagnostic(**item))
    return diagnostics


def _unreachable(url: str, error: Exception) -> StoreError:
    if (of_tls := _of_tls(error)) is not None:
        hint = "does it speak TLS? If not, its address begins with http://"
        if isinstance(of_tls, SSLCertVerificationError):
            hint = "SSL_CERT_FILE names the file of the authority that its certificate is of"
        return StoreError(f"no protected connection to {url}: {of_tls}", hint=hint)
    return StoreError(f"no answer from {url}: {error}", hint="is the server running?")


def _of_tls(error: BaseException | None) -> SSLError | None:
    """Return the error of TLS because of which a request failed, if any."""
    while error is not None and not isinstance(error, SSLError):
        error = error.__cause__ or error.__context__
    return error

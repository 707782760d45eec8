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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from ipaddress import ip_address
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast
from urllib.parse import urlsplit

import httpx2

from flowengine import errors
from flowengine.client import requests
from flowengine.client.requests import Request
from flowengine.errors import FlowEngineError, StoreError, UsageError
from flowengine.journal.records import ENDED

SERVER, TOKEN = "FLOWENGINE_SERVER", "FLOWENGINE_TOKEN"
LARGEST_ANSWER = 64 * 1024 * 1024
"""Maximum number of bytes of an answer."""
_PAUSES = (0.2, 1.0)
"""Seconds before a request without an answer is sent again."""
_FOLLOW_SECONDS = 0.5
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
    build: Callable[_Args, Request[_Result]],
) -> Callable[Concatenate[Client, _Args], _Result]:
    @wraps(build)
    def send(self: Client, *args: _Args.args, **given: _Args.kwargs) -> _Result:
        return self._send(build(*args, **given))

    return cast("Callable[Concatenate[Client, _Args], _Result]", send)


def _async(
    build: Callable[_Args, Request[_Result]],
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
        self.url, headers = _checked(url, token)
        self._http = httpx2.Client(
            base_url=self.url, headers=headers, timeout=timeout, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    user = _blocking(requests.user)
    flows = _blocking(requests.flows)
    flow = _blocking(requests.flow)
    start = _blocking(requests.start)
    executions = _blocking(requests.executions)
    find = _blocking(requests.find)
    show = _blocking(requests.show)
    result = _blocking(requests.result)
    why = _blocking(requests.why)
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
            found = self._send(requests.part_of_journal(execution, from_seq))
            yield from found
            if found:
                from_seq = found[-1]["seq"] + 1
            elif has_ended or not follow:
                return
            else:
                has_ended = self.result(execution).status in ENDED
                time.sleep(0 if has_ended else _FOLLOW_SECONDS)

    def _send(self, request: Request[_Result]) -> _Result:
        while True:
            found = request.read(self._answer(request))
            if not isinstance(found, Request):
                return found
            request = found

    def _answer(self, request: Request[Any]) -> Any:
        given = _arguments(request)
        for pause in (*_PAUSES, None):
            try:
                with self._http.stream(**given) as response:
                    return _read(response.status_code, _Bounded().all(response.iter_bytes()))
            except httpx2.TransportError as error:
                if pause is None:
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
        self.url, headers = _checked(url, token)
        self._http = httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=timeout, transport=transport
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    user = _async(requests.user)
    flows = _async(requests.flows)
    flow = _async(requests.flow)
    start = _async(requests.start)
    executions = _async(requests.executions)
    find = _async(requests.find)
    show = _async(requests.show)
    result = _async(requests.result)
    why = _async(requests.why)
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
    release_environment = _async(requests.release_environment)

    async def events(
        self, execution: str, *, from_seq: int = 0, follow: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the entries of a journal. See `Client.events`."""
        has_ended = False
        while True:
            found = await self._send(requests.part_of_journal(execution, from_seq))
            for entry in found:
                yield entry
            if found:
                from_seq = found[-1]["seq"] + 1
            elif has_ended or not follow:
                return
            else:
                has_ended = (await self.result(execution)).status in ENDED
                await asyncio.sleep(0 if has_ended else _FOLLOW_SECONDS)

    async def _send(self, request: Request[_Result]) -> _Result:
        while True:
            found = request.read(await self._answer(request))
            if not isinstance(found, Request):
                return found
            request = found

    async def _answer(self, request: Request[Any]) -> Any:
        given = _arguments(request)
        for pause in (*_PAUSES, None):
            try:
                async with self._http.stream(**given) as response:
                    parts = _Bounded()
                    async for part in response.aiter_bytes():
                        parts.add(part)
                    return _read(response.status_code, parts.joined())
            except httpx2.TransportError as error:
                if pause is None:
                    raise _unreachable(self.url, error) from None
                await asyncio.sleep(pause)
        raise AssertionError


class _Bounded:
    """The bytes of an answer, up to the largest size."""

    def __init__(self) -> None:
        self._content = bytearray()

    def add(self, part: bytes) -> None:
        """Add a part.

        Raises:
            StoreError: The answer is too large.
        """
        self._content += part
        if len(self._content) > LARGEST_ANSWER:
            raise StoreError(f"the server's answer has more than {LARGEST_ANSWER} bytes")

    def all(self, parts: Iterator[bytes]) -> bytes:
        """Add all parts, and return them."""
        for part in parts:
            self.add(part)
        return self.joined()

    def joined(self) -> bytes:
        """Return all parts."""
        return bytes(self._content)


def _checked(url: str | None, token: str | None) -> tuple[str, dict[str, str]]:
    """Return the address and the headers of a server.

    Raises:
        UsageError: One is missing, or the token would be sent in plain text.
    """
    url = (url or os.environ.get(SERVER, "")).rstrip("/")
    token = token or os.environ.get(TOKEN, "")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"{url!r} is not the address of a server", hint=f"set {SERVER}=https://HOST"
        )
    if parts.scheme == "http" and not _is_here(parts.hostname):
        raise UsageError(
            f"the token would be sent to {parts.hostname} in plain text", hint="use https://"
        )
    if not token.isascii() or not token.isprintable() or not token:
        raise UsageError(
            "the server needs a token",
            hint=f"set {TOKEN} to a token of: flowengine tokens create NAME",
        )
    return url, {"authorization": f"Bearer {token}", "accept": "application/json"}


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _arguments(request: Request[Any]) -> dict[str, Any]:
    """Return the arguments of the HTTP client for a request."""
    query = {name: value for name, value in (request.query or {}).items() if value is not None}
    given: dict[str, Any] = {"method": request.method, "url": request.path, "params": query}
    if request.body is not None:
        given["json"] = dict(request.body)
        given["headers"] = {"idempotency-key": os.urandom(16).hex()}
    return given


def _read(status: int, content: bytes) -> Any:
    """Return the data of an answer.

    Raises:
        FlowEngineError: The server refused the request.
    """
    try:
        data = json.loads(content)
    except ValueError:
        raise StoreError(f"the server answered {status} without JSON", hint="is it ours?") from None
    if status < 400:
        return data
    raise _error(status, data if isinstance(data, dict) else {})


def _error(status: int, problem: dict[str, Any]) -> FlowEngineError:
    """Return the error that a problem describes, of the same type as in the engine."""
    message, hint = str(problem.get("detail", f"status {status}")), problem.get("hint")
    found = getattr(errors, str(problem.get("code")), None)
    if not (isinstance(found, type) and issubclass(found, errors.FlowEngineError)):
        found = _BY_STATUS.get(status, errors.StoreError if status >= 500 else UsageError)
    if issubclass(found, errors.FlowFileError):
        return found(message, list(problem.get("errors", ())))
    if issubclass(found, errors.InputError):
        return found(message, field=str(problem.get("field", "")), hint=hint)
    if issubclass(found, errors.Conflict):
        return found(message, standing=problem.get("standing"), hint=hint)
    return found(message, hint=hint)


def _unreachable(url: str, error: Exception) -> StoreError:
    return StoreError(f"no answer from {url}: {error}", hint="is the server running?")

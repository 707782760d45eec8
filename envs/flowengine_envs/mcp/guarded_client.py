"""HTTP requests to an MCP server, whose responses are untrusted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from flowengine_envs.mcp import library
from flowengine_envs.mcp.authorization import SessionTokens
from flowengine_envs.mcp.messages import (
    BROKEN,
    CLOSED,
    TOO_LARGE,
    PendingRequests,
    as_meant,
    broken_answer,
    too_large,
)

_PAGE = "application/json"
_DATA = b"data:"
_DISCOVERY = "server/discover"
_OPENING = frozenset({"initialize", _DISCOVERY})
_REFUSED = 400


class GuardedClient(httpx2.AsyncClient):
    """Limits the size of responses, and supplies an error response if the server sends none.

    The protocol library reads responses of any size, waits forever for a response to the request if
    one does not match it, and ends the whole session if a single connection fails.

    Args:
        largest: Maximum bytes of a response.
        tokens: Adds access tokens to requests. None: they need none.
        options: Options of the client.
    """

    def __init__(self, largest: int, tokens: SessionTokens | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._largest = largest
        self._tokens = tokens
        self.refused: int | None = None
        """Status of the last response, if it was an error."""
        self._unopened: httpx2.Response | None = None
        """The response to the first request, if that had no usable token."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request.

        Args:
            request: A request of the protocol library.
            options: Options of the base class.

        Returns:
            The response, or an error response if it is missing or invalid.

        Raises:
            TransportError: No connection could be opened for a session.
        """
        asked, send = await _message(request), super().send
        if self._unopened is not None and asked is not None:
            # After any error of `server/discover`, the library tries the older generation.
            return self._unopened
        try:
            response = await (
                send(request, **options)
                if self._tokens is None
                else self._tokens.send(request, lambda: send(request, **options))
            )
            self.refused = response.status_code if response.status_code >= _REFUSED else None
            if asked is None or response.next_request is not None:
                return response
            if response.is_closed:  # it was made here, for a request without a token
                self._unopened = response if asked["method"] == _DISCOVERY else None
                return response
            return await self._answer(request, asked, response)
        except httpx2.TransportError as error:
            if asked is None or asked["method"] in _OPENING:
                raise
            why = "Connection closed"
            if isinstance(error, httpx2.ReadTimeout):
                why = f"no word for {request.extensions['timeout']['read']:g} s"
            return _broken(request, asked["id"], why, CLOSED)

    async def _answer(
        self, request: httpx2.Request, asked: dict[str, Any], response: httpx2.Response
    ) -> httpx2.Response:
        """Read and check a JSON response. Return any other one unchanged."""
        number = asked["id"]
        kind = response.headers.get("content-type", "").lower()
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            await response.aclose()
            return _broken(request, number, f"its encoding is {encoding}, which was not asked for")
        if kind.startswith("text/event-stream"):
            response.stream = _EventLines(response.stream, self._largest)
        if not kind.startswith(_PAGE):
            return response
        body = bytearray()
        async for block in response.aiter_raw():
            body += block
            if len(body) > self._largest:
                await response.aclose()
                return _broken(request, number, too_large(self._largest), TOO_LARGE)
        if response.status_code < _REFUSED:
            body = bytearray(_checked(asked, bytes(body)))
        headers = {
            name: value
            for name, value in response.headers.items()
            if name not in {"content-length", "transfer-encoding"}
        }
        return httpx2.Response(
            response.status_code, headers=headers, content=bytes(body), request=request
        )


class _EventLines(httpx2.AsyncByteStream):
    """A stream of events, whose messages are as the protocol library can read them.

    Args:
        stream: The stream of the response.
        largest: Maximum bytes of a message. The end of a larger one is not awaited.
    """

    def __init__(self, stream: Any, largest: int) -> None:
        self._stream = stream
        self._largest = largest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield whole lines, as far as they are not too large."""
        parts: list[bytes] = []
        size = 0
        async for block in self._stream:
            whole, end, rest = block.rpartition(b"\n")
            if end:
                text = b"".join([*parts, whole])
                yield b"".join(_event_line(line) + b"\n" for line in text.split(b"\n"))
                parts, size = [], 0
            parts.append(rest)
            size += len(rest)
            if size > self._largest:
                yield b"".join(parts)
                parts, size = [], 0
        yield b"".join(parts)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _event_line(line: bytes) -> bytes:
    """Return a line of a stream of events, with the message in it as it is meant."""
    if not line.startswith(_DATA):
        return line
    end = b"\r" if line.endswith(b"\r") else b""
    return _DATA + b" " + as_meant(line[len(_DATA) :].strip()) + end


async def _message(request: httpx2.Request) -> dict[str, Any] | None:
    """Return the message in a request, if it expects an answer."""
    if request.method != "POST":
        return None
    message = json.loads(await request.aread())
    return message if "id" in message and "method" in message else None


def _checked(asked: dict[str, Any], body: bytes) -> bytes:
    """Return the body of an answer, or an error answer if it does not match the request."""
    requests = PendingRequests()
    requests.sent(library.JSONRPCRequest(jsonrpc="2.0", id=asked["id"], method=asked["method"]))
    message = next(iter(requests.received(body)), None)
    if isinstance(message, library.JSONRPCResponse | library.JSONRPCError):
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    why = (
        f"it is not a message: {requests.last_noise}" if message is None else "it is not an answer"
    )
    return broken_answer(asked["id"], why).model_dump_json(by_alias=True).encode()


def _broken(request: httpx2.Request, number: Any, why: str, code: int = BROKEN) -> httpx2.Response:
    body = broken_answer(number, why, code).model_dump_json(by_alias=True).encode()
    return httpx2.Response(200, headers={"content-type": _PAGE}, content=body, request=request)

"""Checks messages from a server, which are untrusted.

A request that receives an invalid answer must not wait for another one. The invalid message is
replaced by an error answer, if its request can be identified.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

from pydantic import ValidationError

from flowengine.sdk import ToolError, printable
from flowengine.sdk.texts.received import is_unusual, received_json
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.texts.visible_text import printable_lines
from flowengine_envs.mcp import library

LARGEST = 10 * 1024 * 1024
"""Maximum bytes of a message, if the spec sets no `output`."""
ENDS = 1024
"""Bytes at both ends of an unreadable message that are searched for its id."""
BROKEN = -32700
"""Error code for invalid messages: JSON-RPC's parse error."""
CLOSED = -32000
"""Error code of the protocol library for a closed connection."""
TOO_LARGE = -32099
"""Our error code for messages larger than `limits.output`."""
UNAUTHORIZED = -32098
"""Our error code for requests without a usable access token."""
_ANSWERING = 100
"""Number of unanswered requests of a server beyond which its output is not read."""
_ENTRIES = 10_000
_VALUES = 100_000
"""Maximum items of a list or map in an answer, and of the whole answer, except free data."""
_FREE = frozenset({"structuredContent", "inputSchema", "outputSchema", "_meta", "data"})
"""Parts of an answer with free data, which need no validation."""
_SHOWN = 1000
"""Characters of a server's text quoted in a message."""
_ID = rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,200}")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb"[,}]")
_NAMED = r"{0}/|\b{0}\b.*\b(?:support|capability)|support.*\b{0}\b"
_UNANSWERED = {
    r"\belicit": "input from a user (elicitation), which this client does not answer: call it as a "
    "tool of a flow, or pass the input as arguments",
    _NAMED.format("sampling"): "a text from a model (sampling), which this client does not answer: "
    "use a tool that needs no model, or configure the server's own",
    _NAMED.format("roots"): "the client's directories (roots), which this client does not answer: "
    "list them in 'roots' of the server, with 'mode: legacy'",
}
"""Requests by how a failure names them."""
_LAST = re.compile(_ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*$")


class PendingRequests:
    """The pending requests of both sides."""

    def __init__(self) -> None:
        self._ours: set[library.RequestId] = set()
        self._sent: set[library.RequestId] = set()
        """Ids of all requests: an answer may come after its request was given up."""
        self._theirs: set[library.RequestId] = set()
        self.room = asyncio.Event()
        """Set unless too many of the server's own requests are unanswered."""
        self.room.set()
        self.noise = 0
        """Number of messages that belong to no request."""
        self.last_noise = ""
        """The beginning of the last such message."""

    def sent(self, message: library.JSONRPCMessage) -> None:
        """Record a message to the server."""
        if isinstance(message, library.JSONRPCRequest):
            self._ours.add(_key(message.id))
            self._sent.add(_key(message.id))
        elif isinstance(message, library.JSONRPCNotification):
            if message.method == "notifications/cancelled":
                self._ours.discard(_cancelled(message.params))
        else:
            self._finish(message.id)

    def received(self, line: bytes) -> list[library.JSONRPCMessage]:
        """Return the messages that replace a line for the session.

        Args:
            line: One message, if the server is correct.

        Returns:
            The message itself. If it is invalid or answers no request, error answers, or nothing if
            its request cannot be identified.
        """
        try:
            message = library.jsonrpc_message_adapter.validate_json(as_meant(line))
        except ValueError as error:
            return self.failed(line[:ENDS], line[-ENDS:], fault(error))
        if isinstance(message, library.JSONRPCRequest):
            self._theirs.add(_key(message.id))
            if len(self._theirs) >= _ANSWERING:
                self.room.clear()
        elif isinstance(message, library.JSONRPCNotification):
            if message.method == "notifications/cancelled":
                self._finish(_cancelled(message.params))
        elif message.id is None or _key(message.id) not in self._sent:
            why = f"it answers a request that was never made: {printable(str(message.id)[:50])}"
            if isinstance(message, library.JSONRPCError):
                why += f" ({brief(message.error.message)})"
            failed = [broken_answer(number, why) for number in self._ours]
            self._ours.clear()
            return failed
        else:
            self._ours.discard(_key(message.id))
        return [message]

    def failed(
        self, head: bytes, tail: bytes, why: str, code: int = BROKEN
    ) -> list[library.JSONRPCMessage]:
        """Return the error answer to the request of an unreadable message.

        Args:
            head: The message's beginning.
            tail: Its end.
            why: The reason.
            code: The error code.
        """
        match = _FIRST.match(head) or _LAST.search(tail)
        number = _key(json.loads(match[1])) if match else None
        if number is None or number not in self._ours:
            self.noise += 1
            self.last_noise = printable(head[:200].decode("utf-8", "replace"))
            return []
        self._ours.discard(number)
        return [broken_answer(number, why, code)]

    def _finish(self, number: library.RequestId | None) -> None:
        if number is not None:
            self._theirs.discard(_key(number))
        if len(self._theirs) < _ANSWERING:
            self.room.set()


class CheckedStream:
    """The messages from a server, each checked before the protocol library validates it.

    Args:
        stream: A stream of the protocol library.
        check: Returns the message that takes the place of an answer.
        mask: Replaces secrets in the plain data of an answer.
    """

    def __init__(
        self,
        stream: Any,
        check: Callable[[library.JSONRPCResponse], library.JSONRPCMessage],
        mask: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self._stream = stream
        self._check = check
        self._mask = mask

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._stream.__aexit__(*exc_info)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the messages."""
        async for item in self._stream:
            message = item.message if isinstance(item, library.SessionMessage) else None
            if isinstance(message, library.JSONRPCResponse):
                message.result = self._mask(message.result)
                item.message = self._check(message)
            elif isinstance(message, library.JSONRPCError):
                message.error.message = self._mask(message.error.message)
                message.error.data = self._mask(message.error.data)
            yield item


def as_meant(line: bytes) -> bytes:
    """Return a message without values that the library refuses or that cannot be kept.

    The call that it answers was made, so its answer must not be lost.
    """
    if not is_unusual(line):
        return line
    try:
        return json.dumps(received_json(line, lenient=True)).encode()
    except ValueError:
        return line


def too_many(message: library.JSONRPCResponse) -> str:
    """Return the error of an answer with too many parts, or an empty string.

    The library lists every error of every part. For a few megabytes of invalid data, this takes
    minutes and gigabytes, and blocks the event loop.
    """
    values = 0
    waiting: list[Any] = [message.result]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            parts: list[Any] = [part for key, part in value.items() if key not in _FREE]
        elif isinstance(value, list):
            parts = value
        else:
            continue
        values += len(parts)
        if len(parts) > _ENTRIES or values > _VALUES:
            return f"it has too many parts, more than {_ENTRIES} in one list or {_VALUES} in all"
        waiting += parts
    return ""


def unanswered(text: str) -> str | None:
    """Return what a server requests from its client that is not answered here, or None.

    Args:
        text: The text of a failure, in which the server or its library names the request.
    """
    found = (what for named, what in _UNANSWERED.items() if re.search(named, text, re.IGNORECASE))
    return next((f"the server requests {what}" for what in found), None)


def broken_answer(
    number: library.RequestId, why: str, code: int = BROKEN
) -> library.JSONRPCMessage:
    """Return an error that replaces the answer to a request.

    Args:
        number: Its id.
        why: The error of the answer.
        code: The error code.
    """
    return library.JSONRPCError(
        jsonrpc="2.0", id=number, error=library.ErrorData(code=code, message=why)
    )


def too_large(most: int, size: int | None = None) -> str:
    """Return the error of an oversized message.

    Args:
        most: Maximum bytes.
        size: Its bytes, if they are known.
    """
    known = "" if size is None else f"{size_text(size)}, "
    return f"the message has {known}more than {size_text(most)} (limits.output)"


def broken(place: str, why: str) -> ToolError:
    """Return the error for the caller of a request with an invalid answer.

    Args:
        place: Names the server and the request.
        why: The error of the answer.
    """
    return ToolError(
        f"{place}: the server's answer breaks the protocol: {why}; "
        "update the server, or report it to its authors",
        data={"ran": "maybe"},
        retryable=False,
    )


def fault(error: BaseException) -> str:
    """Return a short description of a validation error.

    Args:
        error: If it contains several errors, one is described.
    """
    if not isinstance(error, ValidationError):
        return brief(error)
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    chosen = max(faults, key=lambda each: len(each["loc"]))  # of the fitting kind of message
    place = ".".join(
        str(part) for part in chosen["loc"] if part not in ("JSONRPCResponse", "JSONRPCError")
    )
    return brief(f"{place}: {chosen['msg']}" if place else chosen["msg"])


def brief(text: object) -> str:
    """Return a server's text, shortened for quoting in a message.

    Args:
        text: Any object.
    """
    whole = str(text)
    return printable_lines(whole[:_SHOWN]).strip() + ("…" if len(whole) > _SHOWN else "")


def _key(number: library.RequestId) -> library.RequestId:
    """Return an id as the library compares it: `"7"` is 7."""
    return library.coerce_request_id(number)


def _cancelled(params: dict[str, Any] | None) -> library.RequestId | None:
    number = (params or {}).get("requestId")
    return _key(number) if isinstance(number, int | str) else None

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
_UNANSWERED = (
    (
        re.compile(r"\belicit", re.IGNORECASE),
        "input from a user (elicitation)",
        "call it as a tool of a flow, or pass the input as arguments",
    ),
    (
        re.compile(
            r"sampling/|\bsampling\b.*\b(?:support|capability)|support.*\bsampling\b", re.IGNORECASE
        ),
        "a text from a model (sampling)",
        "use a tool that needs no model, or configure the server's own",
    ),
    (
        re.compile(
            r"roots/list|\broots\b.*\b(?:support|capability)|support.*\broots\b", re.IGNORECASE
        ),
        "the client's directories (roots)",
        "list them in 'roots' of the server, with 'mode: legacy'",
    ),
)
_VARIANTS = {"JSONRPCResponse": "result", "JSONRPCError": "error"}
_LAST = re.compile(_ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*$")


class PendingRequests:
    """The pending requests of both sides."""

    def __init__(self) -> None:
        self._ours: set[library.RequestId] = set()
        self._highest = 0
        self._named: set[library.RequestId] = set()
        """Non-numeric ids that were used."""
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
            number = _key(message.id)
            self._ours.add(number)
            if isinstance(number, int):
                self._highest = max(self._highest, number)
            else:
                self._named.add(number)
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
        elif message.id is None or not self._was_ours(message.id):
            why = f"it answers a request that was never made: {printable(str(message.id)[:50])}"
            if isinstance(message, library.JSONRPCError):
                why += f" ({brief(message.error.message)})"
            failed = [broken_answer(number, why) for number in self._ours]
            self._ours.clear()
            return failed
        else:
            self._ours.discard(_key(message.id))
            if why := too_many(message, line):
                return [broken_answer(message.id, why)]
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

    def _was_ours(self, number: library.RequestId) -> bool:
        key = _key(number)
        return 0 < key <= self._highest if isinstance(key, int) else key in self._named


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


def small_enough(answer: library.JSONRPCResponse) -> library.JSONRPCMessage:
    """Return an answer, or an error in its place if it would take too long to validate."""
    why = too_many(answer)
    return broken_answer(answer.id, why) if why else answer


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


def too_many(message: library.JSONRPCMessage, line: bytes = b"") -> str:
    """Return the error of an answer with too many parts, or an empty string.

    The library lists every error of every part. For a few megabytes of invalid data, this takes
    minutes and gigabytes, and blocks the event loop.

    Args:
        message: The message.
        line: Its original text, if known. With few commas, no further check is needed.
    """
    if line and line.count(b",") < _ENTRIES:
        return ""
    values = 0
    waiting: list[Any] = [getattr(message, "result", None)]
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
    for request, what, remedy in _UNANSWERED:
        if request.search(text):
            return f"the server requests {what}, which this client does not answer: {remedy}"
    return None


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
    chosen = _chosen(error.errors(include_url=False, include_context=False, include_input=False))
    place = ".".join(str(part) for part in chosen["loc"] if part not in _VARIANTS)
    return brief(f"{place}: {chosen['msg']}" if place else chosen["msg"])


def _chosen(faults: list[Any]) -> Any:
    """Return the most informative error, which belongs to the intended kind of answer."""
    for variant, part in _VARIANTS.items():
        of_it = [each for each in faults if each["loc"][:1] == (variant,)]
        if of_it and not any(
            (each["loc"][1:], each["type"]) == ((part,), "missing") for each in of_it
        ):
            return of_it[0]
    return faults[0]


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

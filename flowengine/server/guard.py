"""Checks in front of the router, the same for every path: host, origin, size and time of a body."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from threading import Lock
from time import monotonic
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowengine.sdk.texts.sizes import size_text
from flowengine.server.places import HELD
from flowengine.server.problems import problem_response
from flowengine.server.refusals import RequestRefused

_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
        b"img-src 'self' data:; connect-src 'self'; form-action 'self'; "
        b"frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # With `no-referrer` browsers send `Origin: null` with the forms of this page, too.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

BODY_SECONDS = 30.0
"""Seconds for which the server waits for a body in all, and for any part of it."""
BODY_RATE = 8 * 1024
"""So many bytes of a body defer its end by a second."""

Note = Callable[["Scope", RequestRefused], Awaitable[None]]
"""Records a refusal."""


class Hosts(NamedTuple):
    """The names under which the server is reached."""

    names: frozenset[str]
    """Values of the header `Host`, in lower case: `127.0.0.1:8383`, `flows.example.com`."""
    pages: tuple[str, ...] = ()
    """Origins of other pages that may call open paths: `https://temporal.example.com`."""

    def is_own_origin(self, origin: str) -> bool:
        """Return whether a page of this server sent a request."""
        scheme, _, name = origin.lower().partition("://")
        return scheme in ("http", "https") and name in self.names


class RequestGuard:
    """Refuses requests before any route sees them, and adds the headers that protect browsers.

    Args:
        app: The router.
        hosts: The names of the server.
        largest: Returns the maximum number of bytes of a body, by path.
        note: Records a refusal.
        open_paths: Paths that pages of the origins in `hosts` may call.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Hosts,
        largest: Callable[[str], int],
        note: Note,
        open_paths: Collection[str],
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._largest = largest
        self._note = note
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def send_protected(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                given = [(name.lower(), value) for name, value in message.get("headers", ())]
                names = {name for name, _ in given}
                added = [header for header in _HEADERS if header[0] not in names]
                message = {**message, "headers": [*given, *added]}
            await send(message)

        largest = self._largest(scope["path"])
        try:
            self._check(scope, largest)
            async with AsyncExitStack() as scope[HELD]:
                await self._app(scope, self._bounded(receive, largest), send_protected)
        except RequestRefused as error:
            refused = error
        else:
            return
        await self._note(scope, refused)
        if not started:
            await problem_response(refused)(scope, receive, send_protected)

    def _check(self, scope: Scope, largest: int) -> None:
        """Check the host, the origin and the declared size of a request.

        Raises:
            RequestRefused: The host or the origin is another one, or the body is too large.
        """
        headers = {n.decode("latin-1"): value.decode("latin-1") for n, value in scope["headers"]}
        host = headers.get("host", "")
        if host.lower() not in self._hosts.names:
            raise RequestRefused(
                421,
                f"this server is not {host!r}",
                hint="the operator adds a name with: flowengine serve --hostname NAME",
                headers={"connection": "close"},
            )
        if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            origin = headers.get("origin")
            is_named = scope["path"] in self._open_paths and origin in self._hosts.pages
            foreign = origin is not None and not self._hosts.is_own_origin(origin)
            foreign |= headers.get("sec-fetch-site") in ("cross-site", "same-site")
            if foreign and not is_named:
                raise RequestRefused(403, "the request was sent by a page of another origin")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > largest:
            raise _too_large(largest)

    def _bounded(self, receive: Receive, largest: int) -> Receive:
        """Return a `receive` that counts the bytes of the body, and the time that it takes.

        The body may have no length. Only the time counts in which the server waits for it.
        """
        size, patience, is_whole = 0, BODY_SECONDS, False

        async def bounded() -> Message:
            nonlocal size, patience, is_whole
            if is_whole:  # what comes now is the end of the connection
                return await receive()
            began = monotonic()
            try:
                message = await asyncio.wait_for(receive(), patience)
            except TimeoutError:
                raise _refused(408, "the body did not arrive in time") from None
            arrived = len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            patience = min(BODY_SECONDS, patience - (monotonic() - began) + arrived / BODY_RATE)
            size += arrived
            if size > largest:
                raise _too_large(largest)
            return message

        return bounded


def _too_large(largest: int) -> RequestRefused:
    return _refused(413, f"the body has more than {size_text(largest)}")


def _refused(status: int, why: str) -> RequestRefused:
    return RequestRefused(status, why, headers={"connection": "close"})


# Limits of the requests of each identity.

PER_MINUTE = 3000
"""Requests of an identity in a minute, by default."""
_MOST = 10_000
"""Identities that are remembered. One that was forgotten has its whole allowance again."""


class Rates:
    """Counts requests. Each identity has an allowance that grows with time, up to a maximum.

    Args:
        per_minute: Requests in a minute.
        what: What they are, for messages.
        at_once: How many may come at once. Default: a third of those of a minute.
        now: The monotonic time, in seconds.
    """

    def __init__(
        self,
        per_minute: int = PER_MINUTE,
        what: str = "requests",
        at_once: float = 0,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._rate = per_minute / 60
        self._what = what
        self._most = at_once or max(1.0, per_minute / 3)
        self._now = now
        self._left: OrderedDict[tuple[str, ...], tuple[float, float]] = OrderedDict()
        """Identity → its allowance, and when that was computed."""
        self._lock = Lock()

    def count(self, *identity: str) -> None:
        """Count a request.

        Args:
            identity: The user and the name of the credential, or an address.

        Raises:
            RequestRefused: The allowance is used up (RFC 6585, 4).
        """
        with self._lock:
            now = self._now()
            left, at = self._left.pop(identity, (self._most, now))
            left = min(self._most, left + (now - at) * self._rate)
            is_over = left < 1
            self._left[identity] = (left if is_over else left - 1), now
            if len(self._left) > _MOST:
                self._left.popitem(last=False)
        if is_over:
            wait = max(1, math.ceil((1 - left) / self._rate))
            raise RequestRefused(429, f"too many {self._what}", headers={"retry-after": str(wait)})

"""Logins on the command line: a page in the user's browser, which redirects to this machine.

The redirect goes to a port of the loopback interface (RFC 8252, section 7.3).
"""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from urllib.parse import parse_qsl, urlsplit

from flowengine import Engine
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err
from flowengine.engines import asking
from flowengine.engines.results import WaitInfo
from flowengine.errors import FlowEngineError, UsageError
from flowengine.sdk import StepError
from flowengine.sdk.environments.resources import background
from flowengine.sdk.files.logins import LoginKey, read_login
from flowengine.sdk.texts.visible_text import printable

SECONDS = 600.0
"""How long to wait for the user."""
_PATH = "/callback"
_LARGEST = 16 * 1024
"""Maximum bytes of the head of a request."""
_REQUEST = 10.0
"""Seconds within which a browser must send its request."""
_DONE = "You are logged in. You can close this page."
_OTHER = "This is not the redirect of the login that is waited for."


class LoginFailed(FlowEngineError):
    """A user did not log in."""


class LoopbackPage:
    """Receives the redirect of one login. See `flowengine.sdk.environments.LoginPage`.

    Args:
        known: Redirect URIs of an earlier login. Their port is used again if it is free, so that
            no new client has to be registered.
    """

    def __init__(self, known: list[str]) -> None:
        self._ports = [port for uri in known if (port := urlsplit(uri).port) is not None]
        self._server: asyncio.Server | None = None
        self._state = ""
        self._answer: asyncio.Future[Mapping[str, str]] | None = None
        self.redirect_uri = ""
        """The address to which the server redirects the user."""

    async def open(self) -> None:
        """Begin to listen."""
        for port in [*self._ports, 0]:
            with suppress(OSError):
                self._server = await asyncio.start_server(
                    self._received, "127.0.0.1", port, limit=_LARGEST
                )
                break
        if self._server is None:
            raise LoginFailed("no port of 127.0.0.1 is free for the redirect of the login")
        port = self._server.sockets[0].getsockname()[1]
        self.redirect_uri = f"http://127.0.0.1:{port}{_PATH}"

    async def close(self) -> None:
        """End listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def visit(self, url: str) -> Mapping[str, str]:
        """Show the page to the user, and return the parameters of the redirect."""
        self._answer = asyncio.get_running_loop().create_future()
        parts = urlsplit(url)
        self._state = dict(parse_qsl(parts.query)).get("state", "")
        err(f"log in at {printable(parts.netloc)}. Open this page in a browser on this machine:")
        err(f"  {printable(url)}")
        shown = ("DISPLAY", "WAYLAND_DISPLAY")
        has_window = sys.platform == "darwin" or any(map(os.environ.get, shown))
        if has_window and sys.stderr.isatty():
            await asyncio.to_thread(webbrowser.open, url)
        return await self._answer

    async def _received(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_REQUEST):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, *_ = head.split(" ", 2)
            status, text = self._answered(method, target)
            body = text.encode()
            writer.write(
                f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n"
                "cache-control: no-store\r\nreferrer-policy: no-referrer\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        writer.close()

    def _answered(self, method: str, target: str) -> tuple[str, str]:
        parts = urlsplit(target)
        given = dict(parse_qsl(parts.query, max_num_fields=20))
        answer = self._answer
        if method != "GET" or parts.path != _PATH or answer is None or answer.done():
            return "404 Not Found", _OTHER
        if not self._state or given.get("state") != self._state:
            return "400 Bad Request", _OTHER
        answer.set_result(given)
        return "200 OK", _DONE if "code" in given else "You are not logged in."


def log_in_first(session: CliSession, wait: WaitInfo, user: str) -> None:
    """Let a user log in, if a wait is about a login that has not taken place.

    Args:
        session: The session.
        wait: The wait, which the user is about to approve.
        user: `user:NAME`.

    Raises:
        UsageError: The login has to take place on the server's page.
        LoginFailed: The user did not log in.
    """
    if session.is_served:
        if "login" not in wait.get("found", {}):
            return
        page = f"{session.place.rstrip('/')}/approvals/{wait['id']}"
        raise UsageError("the server keeps the logins of its users", hint=f"log in there: {page}")
    if session.engine.approvals.needs_login(wait):
        background().run(_logged_in(session.engine, wait, user))


def log_in_ahead(key: LoginKey, scopes: Sequence[str]) -> None:
    """Let a user log in before an execution needs it.

    Args:
        key: The login.
        scopes: The scopes to request. Empty: those that the server names.

    Raises:
        LoginFailed: The user did not log in.
    """
    background().run(_with_page(key, partial(asking.logins.log_in_ahead, key, scopes)))


async def _logged_in(engine: Engine, wait: WaitInfo, user: str) -> None:
    key = LoginKey.of(wait["found"]["login"])._replace(user=user)
    log_in = partial(engine.approvals.log_in_async, wait["id"], by=user)
    try:
        await _with_page(key, log_in)
    except LoginFailed as error:
        error.message += ". The execution still waits"
        raise


async def _with_page(key: LoginKey, log_in: Callable[[LoopbackPage], Awaitable[None]]) -> None:
    known = (read_login(key).registration or {}).get("redirect_uris") or ()
    page = LoopbackPage([str(uri) for uri in known])
    await page.open()
    try:
        async with asyncio.timeout(SECONDS):
            await log_in(page)
    except TimeoutError:
        raise LoginFailed(f"there was no login within {SECONDS / 60:g} minutes") from None
    except StepError as error:
        raise LoginFailed(error.message) from None
    finally:
        await page.close()

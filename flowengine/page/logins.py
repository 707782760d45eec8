"""Logins on the page: a user goes to the page of an authorization server, and comes back.

A login that has begun is in memory only. It belongs to the browser that began it, by a cookie, and
is used once. The tokens stay on the server: see `flowengine.sdk.files.logins`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import Future
from hmac import compare_digest
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from flowengine import Engine
from flowengine.sdk import StepError
from flowengine.sdk.python.user_code import on_thread
from flowengine.server.refusals import RequestRefused
from flowengine.server.rights import Principal

COOKIE = "flowengine_login"
SECONDS = 600.0
"""How long a user may take at the authorization server."""
PATH = "/logins/callback"
_OF_USER = 10
"""Logins of one user that have begun. More drop the user's oldest ones."""
_BYTES = 32
_UNKNOWN = "this login is unknown or too old"
_AGAIN = "begin again on the page of the approval"


class ServerPage:
    """Leads one user to an authorization server. See `flowengine.sdk.environments.LoginPage`.

    It belongs to the loop of the server. `visit` is awaited on the loop of environments.

    Args:
        redirect_uri: The address of `PATH` on this server.
    """

    def __init__(self, redirect_uri: str) -> None:
        self.redirect_uri = redirect_uri
        self._loop = asyncio.get_running_loop()
        self.address: asyncio.Future[str] = self._loop.create_future()
        """The address of the authorization server's page."""
        self._answer: Future[Mapping[str, str]] = Future()

    async def visit(self, url: str) -> Mapping[str, str]:
        """Hand over the address, and return the parameters of the redirect."""
        self._loop.call_soon_threadsafe(self._show, url)
        return await asyncio.wrap_future(self._answer)

    def answer(self, given: Mapping[str, str]) -> None:
        """Hand over the parameters of the redirect."""
        if not self._answer.done():
            self._answer.set_result(given)

    def _show(self, url: str) -> None:
        if not self.address.done():
            self.address.set_result(url)


class BegunLogin(NamedTuple):
    """A login that has begun."""

    wait: str
    """Full id of the approval that it is for."""
    principal: Principal
    browser: str
    """The secret in the cookie."""
    page: ServerPage
    task: asyncio.Future[None]
    at: float


class PendingLogins:
    """The logins that have begun on the page of one server."""

    def __init__(self) -> None:
        self._begun: dict[str, BegunLogin] = {}

    async def begin(
        self,
        engine: Engine,
        wait: str,
        principal: Principal,
        redirect_uri: str,
    ) -> tuple[str, str]:
        """Begin a login.

        Args:
            engine: Acts as the user.
            wait: Full id of the approval of a login.
            principal: The user.
            redirect_uri: The address of `PATH` on this server.

        Returns:
            The address of the authorization server's page, and the secret for the cookie.

        Raises:
            RequestRefused: It cannot begin.
        """
        page = ServerPage(redirect_uri)
        task = asyncio.ensure_future(self._ended(engine, wait, page))
        # The failure of a login that its user has left is accepted.
        task.add_done_callback(lambda left: left.cancelled() or left.exception())
        first: list[asyncio.Future[Any]] = [task, page.address]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not page.address.done():
            await _result(task)
            raise RequestRefused(409, "the login ended at once", hint=_AGAIN)
        url, browser = page.address.result(), secrets.token_urlsafe(_BYTES)
        state = dict(parse_qsl(urlsplit(url).query)).get("state", "")
        self._begun[state] = BegunLogin(wait, principal, browser, page, task, time.monotonic())
        oldest = time.monotonic() - SECONDS
        old = [state for state, begun in self._begun.items() if begun.at < oldest]
        own = [key for key, begun in self._begun.items() if begun.principal.user == principal.user]
        for dropped in {*old, *own[:-_OF_USER]}:
            self._begun.pop(dropped).task.cancel()
        return url, browser

    async def finish(self, given: Mapping[str, str], browser: str) -> BegunLogin:
        """Finish a login.

        Args:
            given: The parameters with which the browser came back.
            browser: The secret in its cookie.

        Returns:
            The login, whose tokens are stored.

        Raises:
            RequestRefused: This browser did not begin it, its user has other rights now, or it
                failed.
        """
        begun = self._begun.get(given.get("state", ""))
        if begun is None or not compare_digest(begun.browser.encode(), browser.encode()):
            raise RequestRefused(401, _UNKNOWN, hint=_AGAIN)
        del self._begun[given["state"]]
        await on_thread(lambda: begun.principal.check(anew=True))
        begun.page.answer(given)
        await _result(begun.task)
        return begun

    async def _ended(self, engine: Engine, wait: str, page: ServerPage) -> None:
        async with asyncio.timeout(SECONDS):
            await engine.approvals.log_in_async(wait, page)


async def _result(task: asyncio.Future[None]) -> None:
    """Wait for the end of a login.

    Raises:
        RequestRefused: It failed.
    """
    try:
        await task
    except StepError as error:
        raise RequestRefused(502, error.message, hint=_AGAIN) from None
    except TimeoutError:
        raise RequestRefused(401, _UNKNOWN, hint=_AGAIN) from None

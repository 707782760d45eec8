"""Tokens for the requests of a session (OAuth 2.1), and the question when there is none.

No step opens a browser. A session without a usable token asks for a login: it raises
`NeedsApproval`, and the step waits for a user. Tokens are where `sdk.files.logins` says.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx2

from flowengine.sdk import NeedsApproval, Plain, StepError
from flowengine.sdk.environments import LoginPage, Request
from flowengine.sdk.files.logins import (
    Login,
    LoginKey,
    Masker,
    held,
    usable,
    write_login,
)
from flowengine.sdk.texts.visible_text import printable
from flowengine_envs.mcp import library, oauth
from flowengine_envs.mcp.messages import UNAUTHORIZED, brief, broken_answer
from flowengine_envs.mcp.oauth_requests import OAuthRequests, protected_url, scopes_of
from flowengine_envs.mcp.server_config import MACHINE, OAuth, auth_of

_EARLY = 30.0
"""Seconds before its expiry at which a token is replaced."""
_LONGEST = 500
"""Characters of a server's text in a question."""
_MOST_FAILURES = 100
"""Failed requests whose reason is kept until it is read."""
_refreshing: set[asyncio.Task[Any]] = set()
"""Refreshes that must end even if the request that needs them is cancelled."""


class SessionTokens:
    """Adds an access token to each request of a session.

    Args:
        request: The request to open the environment.
        config: The config of the server.
        place: Names the server, for messages.
    """

    def __init__(self, request: Request, config: Any, place: str) -> None:
        auth, spec = auth_of(config), request.spec
        assert auth is not None
        protected_url(config.url, f"{place}: 'auth' is not possible: the address")
        self._auth = auth
        self._url: str = config.url
        self._place = place
        self._name = spec.resource_key
        self._secret = None if auth.client_secret is None else auth.client_secret.reveal()
        self._key = LoginKey(spec.user, config.url, auth.client_id or "")
        shared = spec.scope == "session"
        self._borrower = "" if shared else spec.owner_id.partition("/")[0]
        """Time of the directory of logins when it was read, unless a later change can have it."""
        self._settings = _settings(auth, _declared(request, config), spec.sources)
        self._machine: Login | None = None
        if auth.grant == MACHINE:
            scopes = [*auth.scope]
            self._machine = Login("", config.url, scopes=scopes, settings=self._settings)
        self._failures: dict[str, StepError] = {}
        """Message of an error response → why the request had no usable token."""
        self._used = Masker()
        """The tokens of its requests."""

    async def send(
        self,
        request: httpx2.Request,
        forward: Callable[[], Awaitable[httpx2.Response]],
    ) -> httpx2.Response:
        """Send a request with a token, once more with a new token if the server refuses it.

        Args:
            request: The request.
            forward: Sends it.

        Returns:
            The response. Without a usable token, it has the error code `UNAUTHORIZED`, and
            `failure` returns the reason.
        """
        try:
            login = await self._current()
            response = await self._sent(request, forward, login)
            if (challenge := _challenge(response)) is not None:
                await response.aclose()
                login = await self._renewed(login, response.status_code, challenge)
                response = await self._sent(request, forward, login)
                if (challenge := _challenge(response)) is not None:
                    await response.aclose()
                    raise await self._question(response.status_code, challenge, login)
        except httpx2.HTTPError as error:
            error.args = (self.masked(str(error)),)
            raise error from None
        except StepError as error:
            return self._failed(request, error)
        except Exception as error:  # such as files of logins that cannot be used
            return self._failed(request, oauth.refused(self._place, brief(self.masked(str(error)))))
        return response

    def failure(self, message: str) -> StepError | None:
        """Return why a request had no usable token. `NeedsApproval`: a user has to log in.

        Args:
            message: The message of its error response.
        """
        return self._failures.pop(message, None)

    def masked(self, value: Any) -> Any:
        """Return plain data without the tokens, which a server may send back."""
        return self._used.mask(value)

    def _failed(self, request: httpx2.Request, error: StepError) -> httpx2.Response:
        message = f"no access token: {os.urandom(8).hex()}"
        self._failures[message] = error
        while len(self._failures) > _MOST_FAILURES:  # those of notifications have no reader
            del self._failures[next(iter(self._failures))]
        body = broken_answer(1, message, UNAUTHORIZED).model_dump_json(by_alias=True)
        headers = {"content-type": "application/json"}
        return httpx2.Response(401, headers=headers, content=body.encode(), request=request)

    async def _sent(
        self,
        request: httpx2.Request,
        forward: Callable[[], Awaitable[httpx2.Response]],
        login: Login | None,
    ) -> httpx2.Response:
        request.headers.pop("authorization", None)
        if login is not None and login.token is not None:
            token = login.token["access_token"]
            self._used.learn(token, "token")
            request.headers["authorization"] = f"Bearer {token}"
        return await forward()

    async def _current(self) -> Login | None:
        """Return the login to use, refreshed if it expires soon. None: there is none."""
        if self._machine is not None:
            return self._machine if self._machine.token is not None else None
        login = usable(self._key, self._borrower)
        if login is None:
            return None
        missing = [scope for scope in self._auth.scope if scope not in login.requested]
        if missing:
            raise await self._question(403, f'Bearer scope="{" ".join(missing)}"')
        if login.expires is not None and login.expires - _EARLY < time.time():
            return await self._refreshed(login)
        return login

    async def _renewed(self, used: Login | None, status: int, challenge: str) -> Login:
        """Return a login whose token the server has not refused yet.

        Raises:
            NeedsApproval: A user has to log in.
            StepError: The authorization server does not answer.
        """
        if self._machine is not None:
            requests = self._requests()
            await oauth.request_token(self._machine, self._secret or "", requests)
            return self._machine
        if used is None or status != 401:
            raise await self._question(status, challenge, used)
        return await self._refreshed(used, challenge)

    async def _refreshed(self, used: Login, challenge: str = "") -> Login:
        task = asyncio.create_task(self._refresh(used))
        _refreshing.add(task)
        task.add_done_callback(_refreshing.discard)
        # The server may have replaced the refresh token when this request is cancelled.
        login = await asyncio.shield(task)
        if login is None:
            raise await self._question(401, challenge)
        return login

    async def _refresh(self, used: Login) -> Login | None:
        """Refresh a token, unless another process has. None: the server refused."""
        assert used.token is not None
        async with held(used.key) as login:
            if login.token is None:
                return None
            if login.token["access_token"] != used.token["access_token"]:
                return login
            requests = self._requests()
            if login.token.get("refresh_token") and await oauth.refresh(
                login, self._secret, requests
            ):
                write_login(login)
                return login
            login.token = login.expires = None
            write_login(login)
            return None

    async def _question(self, status: int, challenge: str, used: Login | None = None) -> StepError:
        """Return the question that asks a user to log in, after preparing the login.

        Args:
            status: Status of the server's response. 403: the token needs more scopes.
            challenge: Its `WWW-Authenticate`.
            used: The login whose token was refused.
        """
        if self._machine is not None:
            return oauth.refused(self._place, "the server refuses the token of the client")
        if not self._key.user:
            return oauth.refused(
                self._place,
                "the user is unknown. 'auth: oauth' needs an execution that a user started, on an "
                "engine with a store in a directory",
            )
        if status == 403 and used is not None:
            self._check_grant(used, scopes_of(_parameter(challenge, "scope")))
        requests = self._requests()
        probed = await requests.challenge()
        async with held(self._key) as login:
            if status == 403:
                more = [*self._auth.scope, *scopes_of(_parameter(challenge, "scope"))]
                login.scopes = list(dict.fromkeys([*login.requested, *login.scopes, *more]))
            elif self._auth.scope:
                login.scopes = list(dict.fromkeys([*self._auth.scope, *login.scopes]))
            if status != 403 and used is not None and used.token == login.token:
                login.token = login.expires = None
            login.settings = self._settings
            kept = login.metadata, login.resource
            await oauth.discover(login, requests, challenge or probed)
            server = login.metadata or {}
            if login.token is not None:
                login.metadata, login.resource = kept  # those of the token
            write_login(login)
        return self._asked(login, server)

    def _check_grant(self, used: Login, needed: list[str]) -> None:
        """Check that a login could add a scope to those of a refused token.

        Args:
            used: The login with the token.
            needed: The scopes that the server names. Empty: it names none.

        Raises:
            EnvironmentStartFailed: The token has all of them, so every login would be refused.
        """
        assert used.token is not None
        # Without `scope`, the token has what was requested (RFC 6749, section 5.1).
        granted = scopes_of(used.token.get("scope")) or used.requested
        if {*(needed or used.requested)} <= {*granted}:
            scopes = _brief(" ".join(needed)) or "that it does not name"
            raise oauth.refused(
                self._place,
                f"the server requires the scopes {scopes}, and refuses a token that has them. To "
                "use another account, remove the login with 'flowengine logins --remove' first",
            )

    def _asked(self, login: Login, server: Mapping[str, Any]) -> NeedsApproval:
        shown = urlsplit(self._url)._replace(query="", fragment="").geturl()
        target: dict[str, Plain] = {
            "server": shown,
            "scopes": _brief(" ".join(login.scopes)) or "those that the server chooses",
            "authorization server": _brief(server.get("issuer", "")),
            "page": _brief(server.get("authorization_endpoint", "")),
            "user": self._key.user,
        }
        found: dict[str, Plain] = {
            "action": f"log in to {shown}",
            "title": f"Log in to {shown} for {self._key.user.removeprefix('user:')}?",
            "target": target,
            "environment": self._name,
            "login": {
                "kind": "mcp",
                **self._key._asdict(),
                "scopes": [*login.scopes],
                "borrower": self._borrower,
            },
        }
        return NeedsApproval(found)

    def _requests(self) -> OAuthRequests:
        return OAuthRequests(self._url, self._auth.issuer or "", self._place)


async def log_in(login: Login, secret: str | None, page: LoginPage) -> Login:
    """Let a user log in, as `Provider.log_in` does."""
    place = f"login to {login.url}"
    requests = OAuthRequests(login.url, login.settings.get("issuer") or "", place)
    done = replace(login)
    await oauth.authorize(done, secret, page, requests)
    return done


def _challenge(response: httpx2.Response) -> str | None:
    """Return `WWW-Authenticate` of a response that refuses the token. None: it does not."""
    challenge = str(response.headers.get("www-authenticate", ""))
    if response.status_code == 401:
        return challenge
    is_short = _parameter(challenge, "error") == "insufficient_scope"
    return challenge if response.status_code == 403 and is_short else None


def _parameter(challenge: str, name: str) -> str | None:
    response = httpx2.Response(401, headers={"www-authenticate": challenge})
    return library.extract_field_from_www_auth(response, name)


def _declared(request: Request, config: Any) -> OAuth | None:
    """Return `auth` of a server as declared, with a reference in place of its secret."""
    declared = request.spec.config
    if config is not request.config:
        [name] = [name for name, each in request.config.servers.items() if each is config]
        declared = declared.servers[name]
    return auth_of(declared)


def _settings(
    auth: OAuth, declared: OAuth | None, sources: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    settings: dict[str, Any] = {"grant": auth.grant}
    settings |= {"client_id": auth.client_id} if auth.client_id else {}
    settings |= {"issuer": auth.issuer} if auth.issuer else {}
    if declared is not None and declared.client_secret is not None:
        name = str(declared.client_secret).removeprefix("secret:")
        settings["client_secret"] = {"name": name, **sources.get(name, {})}
    return settings


def _brief(text: object) -> str:
    return printable(str(text)[:_LONGEST])

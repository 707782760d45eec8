"""OAuth 2.1 for servers over HTTP: discovery, registration, logins and refreshes.

The protocol library performs them. It gets the responses through `OAuthRequests`, because every
address comes from the server: from its metadata, or from that of the authorization server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from flowengine.sdk import EnvironmentStartFailed, Refused, StepError
from flowengine.sdk.environments import LoginPage
from flowengine.sdk.logins import Login, expires_at
from flowengine.sdk.web.urls import read_url
from flowengine_envs.mcp.messages import brief
from flowengine_envs.mcp.oauth_requests import (
    ERROR_CODE,
    OAuthRequests,
    is_protected,
    protected_url,
    scopes_of,
)

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

MACHINE = "client_credentials"
"""The grant of clients without a user."""


class _Stop(Exception):
    """The flow of the library has found out enough."""


class _LoginStorage:
    """A login in the form in which the protocol library stores it."""

    def __init__(self, login: Login, secret: str | None, redirect: str | None) -> None:
        self.login = login
        self._secret = secret
        self._redirect = redirect

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken

        return OAuthToken.model_validate(self.login.token) if self.login.token else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.login.token = tokens.model_dump(mode="json", exclude_none=True)
        self.login.expires = expires_at(self.login.token)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull

        client = self.login.settings.get("client_id")
        if client and not _is_document(client):
            uris: Any = [self._redirect] if self._redirect else None
            method = "none" if self._secret is None else _method(self.login.metadata)
            return OAuthClientInformationFull(
                client_id=client,
                client_secret=self._secret,
                redirect_uris=uris,
                token_endpoint_auth_method=method,
                issuer=self.login.settings.get("issuer") or None,
            )
        known = self.login.registration
        if known is None or (self._redirect and not self._fits(known)):
            return None  # a new client is registered
        return OAuthClientInformationFull.model_validate(known)

    def _fits(self, registration: Mapping[str, Any]) -> bool:
        """Return whether a registered client may request this login."""
        allowed = registration.get("scope")
        is_allowed = not allowed or {*self.login.scopes} <= {*str(allowed).split()}
        return is_allowed and self._redirect in _uris(registration)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.login.registration = client_info.model_dump(mode="json", exclude_none=True)


def _uris(registration: Mapping[str, Any]) -> list[str]:
    """Return the redirect URIs of a registered client."""
    return [str(uri) for uri in registration.get("redirect_uris") or ()]


def _is_document(client: str) -> bool:
    """Return whether a client id is the address of a client metadata document."""
    return client.startswith("https://") and urlsplit(client).path not in ("", "/")


def _method(metadata: Mapping[str, Any] | None) -> str:
    """Return how a client with a secret identifies itself at the token endpoint."""
    supported = (metadata or {}).get("token_endpoint_auth_methods_supported") or []
    basic, post = "client_secret_basic", "client_secret_post"
    return post if post in supported and basic not in supported else basic


def _library(login: Login, secret: str | None, redirect: str | None = None) -> OAuthClientProvider:
    """Return the flow of the protocol library for a login, which it updates."""
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
    from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata

    settings, storage = login.settings, _LoginStorage(login, secret, redirect)
    if settings.get("grant") == MACHINE:
        return ClientCredentialsOAuthProvider(
            login.url,
            storage,
            settings["client_id"],
            secret or "",
            scope=" ".join(login.scopes) or None,
            issuer=settings["issuer"],
        )
    uris: Any = [redirect] if redirect else (_uris(login.registration or {}) or [_NOWHERE])
    client = settings.get("client_id", "")
    metadata = OAuthClientMetadata(
        redirect_uris=uris,
        client_name="flowengine",
        token_endpoint_auth_method="none",
        application_type="native" if is_protected(read_url(str(uris[0]))) else "web",
    )
    document = client if _is_document(client) else None
    library = OAuthClientProvider(
        login.url,
        metadata,
        storage,
        client_metadata_url=document,
        redirect_handler=_stop,
        callback_handler=_unanswered,
    )
    if login.metadata is not None:
        library.context.oauth_metadata = OAuthMetadata.model_validate(login.metadata)
        library.context.auth_server_url = str(library.context.oauth_metadata.issuer)
    if login.resource is not None:
        library.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
            login.resource
        )
    return library


_NOWHERE = "http://127.0.0.1/"
"""A redirect URI of a flow that ends before it is used."""


async def _stop(url: str) -> None:
    raise _Stop


async def _unanswered() -> AuthorizationCodeResult:
    raise _Stop


async def _drive(
    library: OAuthClientProvider,
    requests: OAuthRequests,
    challenge: str | None,
    *,
    registers: bool = True,
) -> None:
    """Run the flow of the library over a response of the server.

    Args:
        library: The flow.
        requests: Sends what the library requests.
        challenge: `WWW-Authenticate` of the response. None: nothing was refused.
        registers: Whether it may register a client. Otherwise it stops there.
    """
    from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
    from mcp.types import LATEST_PROTOCOL_VERSION

    headers = {MCP_PROTOCOL_VERSION_HEADER: LATEST_PROTOCOL_VERSION}
    request = httpx2.Request("POST", library.context.server_url, headers=headers)
    flow = library.async_auth_flow(request)
    try:
        sent = await anext(flow)
        while True:
            if sent is not request:
                if sent.method == "POST" and not registers:
                    raise _Stop
                response = await requests.send(sent)
            elif challenge is None:
                response = httpx2.Response(200, request=request)
            else:
                told = {"www-authenticate": challenge} if challenge else {}
                response, challenge = httpx2.Response(401, headers=told, request=request), None
            sent = await flow.asend(response)
    except StopAsyncIteration:
        return
    finally:
        await flow.aclose()


@cache
def _expected() -> tuple[type[Exception], ...]:
    from mcp.client.auth import OAuthFlowError, OAuthRegistrationError, OAuthTokenError
    from pydantic import ValidationError

    return OAuthFlowError, OAuthRegistrationError, OAuthTokenError, ValidationError


def _reported(error: Exception, requests: OAuthRequests, what: str) -> StepError:
    """Return the error of a flow. Bodies of responses are not quoted: they can contain tokens."""
    from mcp.client.auth import OAuthFlowError
    from pydantic import ValidationError

    why = requests.refusal
    if not why and type(error) is OAuthFlowError:
        why = brief(error)
    if not why:
        kind = "response" if isinstance(error, ValidationError) else "flow"
        why = f"the {kind} of the authorization server is not valid"
    return refused(requests.place, f"{what}: {why}")


def refused(place: str, why: str) -> EnvironmentStartFailed:
    """Return the error of a session that another attempt would not open either."""
    return EnvironmentStartFailed(f"{place}: {why}", retryable=False)


async def discover(login: Login, requests: OAuthRequests, challenge: str) -> None:
    """Find out which authorization server a server uses, and which scopes it requests.

    Args:
        login: Receives the metadata and the scopes.
        requests: Sends the requests.
        challenge: `WWW-Authenticate` of the response that required a login.

    Raises:
        StepError: The metadata cannot be read, or are invalid.
    """
    login.metadata = login.resource = None
    library = _library(login, None)
    try:
        await _drive(library, requests, challenge, registers=False)
    except _Stop:
        pass
    except _expected() as error:
        raise _reported(error, requests, "the login cannot be prepared") from None
    context = library.context
    if context.oauth_metadata is None:
        why = "the server requires a login, and its authorization server publishes no metadata"
        raise refused(requests.place, f"{why} (RFC 8414)")
    _keep_metadata(login, library)
    login.challenge = challenge
    login.scopes = login.scopes or scopes_of(context.client_metadata.scope)


def _keep_metadata(login: Login, library: OAuthClientProvider) -> None:
    context = library.context
    if context.oauth_metadata is not None:
        login.metadata = context.oauth_metadata.model_dump(mode="json", exclude_none=True)
    if context.protected_resource_metadata is not None:
        login.resource = context.protected_resource_metadata.model_dump(
            mode="json", exclude_none=True
        )


async def refresh(login: Login, secret: str | None, requests: OAuthRequests) -> bool:
    """Replace the access token of a login.

    Args:
        login: The login, with a refresh token. Hold its lock.
        secret: The secret of the client that the flow names, if it has one.
        requests: Sends the request.

    Returns:
        Whether there is a new one. Otherwise the authorization server refused for good.

    Raises:
        StepError: The authorization server did not answer, or failed.
    """
    library, before = _library(login, secret), login.token
    library.context.token_expiry_time = 1.0
    try:
        await requests.challenge()
        await _drive(library, requests, None)
    except _expected() as error:
        raise _reported(error, requests, "the token cannot be refreshed") from None
    if login.token is not before:
        return True
    if requests.refusal and not requests.is_final:
        message = f"{requests.place}: the token cannot be refreshed: {requests.refusal}"
        raise EnvironmentStartFailed(message)
    return False


async def request_token(login: Login, secret: str, requests: OAuthRequests) -> None:
    """Request a token for a client without a user (`client_credentials`).

    Raises:
        StepError: The authorization server refused, or did not answer.
    """
    try:
        await _drive(_library(login, secret), requests, await requests.challenge())
    except _expected() as error:
        raise _reported(error, requests, "there is no token for the client") from None


async def authorize(
    login: Login, secret: str | None, page: LoginPage, requests: OAuthRequests
) -> None:
    """Let a user log in.

    Args:
        login: The prepared login, which receives the tokens.
        secret: The secret of the client that the flow names, if it has one.
        page: Where the user logs in.
        requests: Sends the requests.

    Raises:
        Refused: The user declined.
        StepError: The login failed.
    """
    challenge = await requests.challenge() or login.challenge
    if login.scopes:
        at = re.search(r'resource_metadata="([^"\s]+)"', challenge)
        more = f', resource_metadata="{at[1]}"' if at else ""
        challenge = f'Bearer scope="{" ".join(login.scopes)}"{more}'
    login.metadata = login.resource = login.token = None
    library = _library(login, secret, page.redirect_uri)
    context, answers = library.context, list[Mapping[str, str]]()

    async def visit(url: str) -> None:
        _check_server(library, login, requests.place)
        if secret is not None and context.client_info is not None:
            assert context.oauth_metadata is not None  # it is checked above
            published = context.oauth_metadata.model_dump(mode="json")
            context.client_info.token_endpoint_auth_method = _method(published)
        login.requested = scopes_of(context.client_metadata.scope)
        address = str(protected_url(url, f"{requests.place}: the page of the login"))
        answers.append(_checked(await page.visit(address), address, requests.place))

    async def answer() -> AuthorizationCodeResult:
        from mcp.shared.auth import AuthorizationCodeResult

        given = answers[0]
        return AuthorizationCodeResult(
            code=given.get("code", ""), state=given.get("state"), iss=given.get("iss")
        )

    context.redirect_handler, context.callback_handler = visit, answer
    try:
        await _drive(library, requests, challenge)
    except _expected() as error:
        raise _reported(error, requests, "the login failed") from None
    _keep_metadata(login, library)
    if login.token is None:
        raise refused(requests.place, "the authorization server issued no token")


def _check_server(library: OAuthClientProvider, login: Login, place: str) -> None:
    """Check what the authorization server publishes before a user is sent there.

    Raises:
        Refused: It publishes no metadata, not the named issuer, or does not support PKCE.
    """
    metadata, named = library.context.oauth_metadata, login.settings.get("issuer")
    if metadata is None:
        why = "it publishes no metadata (RFC 8414)"
    elif "S256" not in (metadata.code_challenge_methods_supported or []):
        why = "it does not support PKCE with S256"
    elif named and str(metadata.issuer).rstrip("/") != named.rstrip("/"):
        why = f"it is {brief(metadata.issuer)}, and 'auth.issuer' is {named}"
    else:
        return
    raise Refused(f"{place}: the authorization server is not used: {why}", retryable=False)


def _checked(answer: Mapping[str, str], page: str, place: str) -> Mapping[str, str]:
    """Return the parameters of a redirect that belongs to a page.

    Raises:
        Refused: It belongs to another login, or reports an error.
    """
    [state] = parse_qs(urlsplit(page).query)["state"]
    if answer.get("state") != state:
        raise Refused(f"{place}: the redirect belongs to another login", retryable=False)
    if "error" in answer:
        code = answer["error"] if ERROR_CODE.fullmatch(answer["error"]) else "an unknown error"
        raise Refused(f"{place}: the login was refused: {code}", retryable=False)
    return answer

"""OAuth 2.1 for servers over HTTP: discovery, registration, logins and refreshes.

The protocol library performs them. It gets the responses through `OAuthRequests`, because every
address comes from the server: from its metadata, or from that of the authorization server.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from pydantic import ValidationError

from flowengine.sdk import EnvironmentStartFailed, Refused, StepError
from flowengine.sdk.environments import LoginPage
from flowengine.sdk.files.logins import Login, check_tokens, expires_at
from flowengine.sdk.web.urls import read_url
from flowengine_envs.mcp import library
from flowengine_envs.mcp.messages import brief
from flowengine_envs.mcp.oauth_requests import (
    ERROR_CODE,
    OAuthRequests,
    is_protected,
    protected_url,
    scopes_of,
)
from flowengine_envs.mcp.server_config import MACHINE


async def _drive(
    provider: library.OAuthClientProvider,
    requests: OAuthRequests,
    challenge: str | None,
    *,
    registers: bool = True,
) -> None:
    """Run the flow of the library over a response of the server.

    Args:
        provider: The flow.
        requests: Sends the requests of the library.
        challenge: `WWW-Authenticate` of the response. None: nothing was refused.
        registers: Whether it may register a client. Otherwise it stops there.
    """
    headers = {library.MCP_PROTOCOL_VERSION_HEADER: library.LATEST_PROTOCOL_VERSION}
    request = httpx2.Request("POST", provider.context.server_url, headers=headers)
    flow = provider.async_auth_flow(request)
    try:
        sent = await anext(flow)
        while True:
            if sent is not request:
                if sent.method == "POST" and not registers:
                    raise Stopped
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
    return (
        library.OAuthFlowError,
        library.OAuthRegistrationError,
        library.OAuthTokenError,
        ValidationError,
    )


def _reported(error: Exception, requests: OAuthRequests, what: str) -> StepError:
    """Return the error of a flow. Bodies of responses are not quoted: they can contain tokens."""
    why = requests.refusal
    if not why and type(error) is library.OAuthFlowError:
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
    provider = library_of(login, None)
    try:
        await _drive(provider, requests, challenge, registers=False)
    except Stopped:
        pass
    except _expected() as error:
        raise _reported(error, requests, "the login cannot be prepared") from None
    context = provider.context
    if context.oauth_metadata is None:
        why = "the server requires a login, and its authorization server publishes no metadata"
        raise refused(requests.place, f"{why} (RFC 8414)")
    _keep_metadata(login, provider)
    login.challenge = challenge
    login.scopes = login.scopes or scopes_of(context.client_metadata.scope)


def _keep_metadata(login: Login, provider: library.OAuthClientProvider) -> None:
    context = provider.context
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
    provider, before = library_of(login, secret), login.token
    if not _is_named(provider, requests):
        return False  # it was of another server, which must not receive the secret
    provider.context.token_expiry_time = 1.0
    try:
        await requests.challenge()
        await _drive(provider, requests, None)
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
        await _drive(library_of(login, secret), requests, await requests.challenge())
    except _expected() as error:
        raise _reported(error, requests, "the client gets no token") from None


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
    methods = (login.metadata or {}).get("token_endpoint_auth_methods_supported") or ["none"]
    login.metadata = login.resource = login.token = None
    provider = library_of(login, secret, page.redirect_uri)
    if "none" not in methods:  # the server decides, and may issue a secret
        provider.context.client_metadata.token_endpoint_auth_method = None
    context, answers = provider.context, list[Mapping[str, str]]()

    async def visit(url: str) -> None:
        _check_server(provider, requests)
        if secret is not None and context.client_info is not None:
            assert context.oauth_metadata is not None  # it is checked above
            published = context.oauth_metadata.model_dump(mode="json")
            context.client_info.token_endpoint_auth_method = auth_method(published)
        login.requested = scopes_of(context.client_metadata.scope)
        address = str(protected_url(url, f"{requests.place}: the page of the login"))
        answers.append(_checked(await page.visit(address), address, requests.place))

    async def answer() -> library.AuthorizationCodeResult:
        given = answers[0]
        return library.AuthorizationCodeResult(
            code=given.get("code", ""), state=given.get("state"), iss=given.get("iss")
        )

    context.redirect_handler, context.callback_handler = visit, answer
    try:
        await _drive(provider, requests, challenge)
    except _expected() as error:
        raise _reported(error, requests, "the login failed") from None
    _keep_metadata(login, provider)
    if login.token is None:
        raise refused(requests.place, "the authorization server issued no token")


def _check_server(provider: library.OAuthClientProvider, requests: OAuthRequests) -> None:
    """Check the metadata of an authorization server before a user is sent there.

    Raises:
        Refused: It publishes no metadata, not the named issuer, or does not support PKCE.
    """
    metadata, place = provider.context.oauth_metadata, requests.place
    if metadata is None:
        why = "it publishes no metadata (RFC 8414)"
    elif "S256" not in (metadata.code_challenge_methods_supported or []):
        why = "it does not support PKCE with S256"
    elif not _is_named(provider, requests):
        why = f"it is {brief(metadata.issuer)}, and 'auth.issuer' is {requests.issuer}"
    else:
        return
    raise Refused(f"{place}: the authorization server is not used: {why}", retryable=False)


def _is_named(provider: library.OAuthClientProvider, requests: OAuthRequests) -> bool:
    """Return whether an authorization server is the one that the flow names, if it names one."""
    metadata, named = provider.context.oauth_metadata, requests.issuer.rstrip("/")
    return not named or (metadata is not None and str(metadata.issuer).rstrip("/") == named)


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


# The OAuth flow of the protocol library, with a login as its storage.


class Stopped(Exception):
    """The flow of the library has found out enough."""


class _LoginStorage:
    """A login in the form in which the protocol library stores it."""

    def __init__(self, login: Login, secret: str | None, redirect: str | None) -> None:
        self.login = login
        self._secret = secret
        self._redirect = redirect

    async def get_tokens(self) -> library.OAuthToken | None:
        return library.OAuthToken.model_validate(self.login.token) if self.login.token else None

    async def set_tokens(self, tokens: library.OAuthToken) -> None:
        token = tokens.model_dump(mode="json", exclude_none=True)
        try:
            check_tokens(token)
        except ValueError as error:
            raise library.OAuthFlowError(str(error)) from None
        self.login.token = token
        self.login.expires = expires_at(self.login.token)

    async def get_client_info(self) -> library.OAuthClientInformationFull | None:
        client = self.login.settings.get("client_id")
        if client and not _is_document(client):
            uris: Any = [self._redirect] if self._redirect else None
            method = "none" if self._secret is None else auth_method(self.login.metadata)
            return library.OAuthClientInformationFull(
                client_id=client,
                client_secret=self._secret,
                redirect_uris=uris,
                token_endpoint_auth_method=method,
                issuer=self.login.settings.get("issuer") or None,
            )
        known = self.login.registration
        if known is None or (self._redirect and not self._fits(known)):
            return None  # a new client is registered
        return library.OAuthClientInformationFull.model_validate(known)

    def _fits(self, registration: Mapping[str, Any]) -> bool:
        """Return whether a registered client may request this login."""
        allowed = registration.get("scope")
        is_allowed = not allowed or {*self.login.scopes} <= {*str(allowed).split()}
        return is_allowed and self._redirect in _uris(registration)

    async def set_client_info(self, client_info: library.OAuthClientInformationFull) -> None:
        self.login.registration = client_info.model_dump(mode="json", exclude_none=True)


def _uris(registration: Mapping[str, Any]) -> list[str]:
    """Return the redirect URIs of a registered client."""
    return [str(uri) for uri in registration.get("redirect_uris") or ()]


def _is_document(client: str) -> bool:
    """Return whether a client id is the address of a client metadata document."""
    return client.startswith("https://") and urlsplit(client).path not in ("", "/")


def auth_method(metadata: Mapping[str, Any] | None) -> str:
    """Return how a client with a secret identifies itself at the token endpoint."""
    supported = (metadata or {}).get("token_endpoint_auth_methods_supported") or []
    basic, post = "client_secret_basic", "client_secret_post"
    return post if post in supported and basic not in supported else basic


def library_of(
    login: Login, secret: str | None, redirect: str | None = None
) -> library.OAuthClientProvider:
    """Return the flow of the protocol library for a login, which it updates."""
    # Its log has whole responses, with tokens. Its errors are reported without them.
    logging.getLogger(library.OAuthClientProvider.__module__).setLevel(logging.CRITICAL)
    settings, storage = login.settings, _LoginStorage(login, secret, redirect)
    if settings.get("grant") == MACHINE:
        return library.ClientCredentialsOAuthProvider(
            login.url,
            storage,
            settings["client_id"],
            secret or "",
            scope=" ".join(login.scopes) or None,
            issuer=settings["issuer"],
        )
    uris: Any = [redirect] if redirect else (_uris(login.registration or {}) or [_NOWHERE])
    client = settings.get("client_id", "")
    metadata = library.OAuthClientMetadata(
        redirect_uris=uris,
        client_name="flowengine",
        token_endpoint_auth_method="none",
        application_type="native" if is_protected(read_url(str(uris[0]))) else "web",
    )
    document = client if _is_document(client) else None
    provider = library.OAuthClientProvider(
        login.url,
        metadata,
        storage,
        client_metadata_url=document,
        redirect_handler=_stop,
        callback_handler=_unanswered,
    )
    if login.metadata is not None:
        provider.context.oauth_metadata = library.OAuthMetadata.model_validate(login.metadata)
        provider.context.auth_server_url = str(provider.context.oauth_metadata.issuer)
    if login.resource is not None:
        provider.context.protected_resource_metadata = (
            library.ProtectedResourceMetadata.model_validate(login.resource)
        )
    return provider


_NOWHERE = "http://127.0.0.1/"
"""A redirect URI of a flow that ends before it is used."""


async def _stop(url: str) -> None:
    raise Stopped


async def _unanswered() -> library.AuthorizationCodeResult:
    raise Stopped

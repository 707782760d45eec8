"""The OAuth flow of the protocol library, with a login as its storage."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from flowengine.sdk.files.logins import Login, check_tokens, expires_at
from flowengine.sdk.web.urls import read_url
from flowengine_envs.mcp import library
from flowengine_envs.mcp.oauth_requests import is_protected
from flowengine_envs.mcp.server_config import MACHINE


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

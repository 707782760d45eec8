"""Users whom an OpenID provider names: JWTs as bearer tokens (RFC 7519, RFC 9068).

A token is checked offline, with the keys that the provider publishes (OpenID Connect Discovery 1.0,
RFC 7517). They are read again after an hour, and once a minute at most if a token names a new key.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from hmac import compare_digest
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from flowengine.sdk import SecretMissing
from flowengine.secrets import resolve
from flowengine.server.refusals import RequestRefused
from flowengine.server.rights import USER_NAME
from flowengine.server_settings import OidcSignIn

if TYPE_CHECKING:
    from jwt import PyJWK


ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Signatures with a key that only the provider has. `none` and those with shared secrets are not
among them."""
LEEWAY = 60
"""Seconds by which the clocks of provider and server may differ."""
_FRESH, _PAUSE, _RETRY = 3600.0, 60.0, 5.0
_SECONDS = 5.0
_LARGEST = 512 * 1024
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_EMAIL = "email"
"""The claim that providers let users choose. `email_verified` means that it is theirs (OpenID
Connect Core 1.0, section 5.1)."""
_INVALID = "the token of the provider is not valid"


class TokenUser(NamedTuple):
    """The user whom a token names."""

    user: str
    groups: tuple[str, ...]


class OidcProvider:
    """Checks the tokens of one provider.

    Args:
        rules: The provider, as the settings declare it.
        read: Returns the JSON at an address.
        now: The monotonic time, in seconds.
    """

    def __init__(
        self,
        rules: OidcSignIn,
        read: Callable[[str], Any] | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._rules = rules
        self._read = read or answer_of
        self._now = now
        self._keys: dict[str | None, PyJWK] = {}
        self._asked: float | None = None
        self._endpoints: dict[str, Any] = {}
        self._endpoints_at = -math.inf
        self._lock = Lock()

    def endpoint(self, name: str) -> str:
        """Return an address that the provider publishes: `token_endpoint`.

        Raises:
            RequestRefused: It cannot be read (503).
        """
        with self._lock:
            age = self._now() - self._endpoints_at
            if age > (_FRESH if self._endpoints else _RETRY):
                self._endpoints_at = self._now()
                try:
                    self._endpoints = self._document()
                except (OSError, ValueError, KeyError, TypeError, RecursionError):
                    self._endpoints = {}
            address = self._endpoints.get(name)
        if not isinstance(address, str) or not is_protected(address):
            raise RequestRefused(503, "the OpenID provider cannot be read")
        return address

    def named_by(self, token: str, *, audience: str | None = None, nonce: str = "") -> TokenUser:
        """Return the user whom a token names.

        Args:
            token: The token.
            audience: For whom it is. Default: this server.
            nonce: The `nonce` that a sign-in began with. Empty: the token needs none.

        Raises:
            RequestRefused: It is not valid (401), or the provider's keys cannot be read (503).
        """
        import jwt

        if len(token) > 16 * 1024:
            raise RequestRefused(401, _INVALID)
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kid = header.get("alg"), header.get("kid")
            key = self._key(kid if isinstance(kid, str) else None)
            if algorithm not in ALGORITHMS or key is None:
                raise RequestRefused(401, _INVALID)
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=audience or self._rules.audience,
                issuer=self._rules.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (ValueError, RecursionError):  # invalid JSON, or nested too deeply
            raise RequestRefused(401, _INVALID) from None
        except jwt.PyJWTError as error:
            why = "it has expired" if isinstance(error, jwt.ExpiredSignatureError) else None
            raise RequestRefused(401, _INVALID if why is None else f"{_INVALID}: {why}") from None
        if nonce:
            # Check what only the token of a sign-in has.
            client = audience or ""
            given, party = claims.get("nonce"), claims.get("azp", client)
            is_same = isinstance(given, str) and compare_digest(given.encode(), nonce.encode())
            is_shared = (
                isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and "azp" not in claims
            )
            if not is_same or party != client or is_shared:
                raise RequestRefused(401, f"{_INVALID}: it is of another sign-in")
        user, groups = claims.get(self._rules.user_claim), claims.get(self._rules.groups_claim, [])
        if not isinstance(user, str) or not isinstance(groups, list):
            user, groups = "", []
        if self._rules.user_claim == _EMAIL and claims.get(f"{_EMAIL}_verified") is not True:
            raise RequestRefused(401, f"{_INVALID}: its email address is not verified")
        if USER_NAME.fullmatch(user) is None:
            raise RequestRefused(401, f"{_INVALID}: it names no valid user")
        return TokenUser(user, tuple(group for group in groups if isinstance(group, str)))

    def _key(self, kid: str | None) -> PyJWK | None:
        """Return the key with an id, or the only key if the token names none."""
        with self._lock:
            age = None if self._asked is None else self._now() - self._asked
            is_known = kid in self._keys or (kid is None and len(self._keys) == 1)
            if age is None or age > _FRESH or (not is_known and age > _PAUSE):
                self._asked = self._now()
                self._keys = self._published() or self._keys
            if not self._keys:
                raise RequestRefused(503, "the keys of the OpenID provider cannot be read")
            if kid is None and len(self._keys) == 1:
                return next(iter(self._keys.values()))
            return self._keys.get(kid)

    def _published(self) -> dict[str | None, PyJWK]:
        """Return the keys that the provider publishes now. Empty if they cannot be read."""
        import jwt

        try:
            keys = jwt.PyJWKSet.from_dict(self._read(self._document()["jwks_uri"])).keys
        except (OSError, ValueError, KeyError, TypeError, AttributeError, jwt.PyJWTError):
            return {}
        return {key.key_id: key for key in keys if key.public_key_use in (None, "sig")}

    def _document(self) -> dict[str, Any]:
        """Return the published metadata of the provider.

        Raises:
            ValueError: It is another provider.
        """
        issuer = self._rules.issuer
        configuration = self._read(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if configuration["issuer"] != issuer:
            raise ValueError("the document is of another provider")
        return dict(configuration)


def is_protected(url: str) -> bool:
    """Return whether an address is protected by TLS, or on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def answer_of(
    url: str, fields: Mapping[str, str] | None = None, headers: Mapping[str, str] = {}
) -> Any:
    """Return the JSON that an address answers, to a form if there are fields.

    Redirects are not followed: keys and tokens come from the named address.

    Raises:
        OSError: The provider does not answer, or answers with an error.
        ValueError: The address is not protected by TLS, or the answer is too large or no JSON.
    """
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Refusing(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    if not is_protected(url):
        raise ValueError("the address of a provider begins with https://")
    body = None if fields is None else urlencode(fields).encode()
    request = Request(url, body, dict(headers))
    try:
        with build_opener(Refusing).open(request, timeout=_SECONDS) as answer:
            content = answer.read(_LARGEST + 1)
    except HTTPError as error:
        error.close()
        raise
    if len(content) > _LARGEST:
        raise ValueError("the answer is too large")
    return json.loads(content)


# Secrets that the host's settings name: of the proxy, of the OpenID client, of hooks.

_log = logging.getLogger("flowengine.server")


def host_secret(
    whose: str, source: Mapping[str, str], read: Callable[[str], bytes] = str.encode
) -> bytes:
    """Return a secret, without white space around it.

    Args:
        whose: Whose it is, for messages: `the proxy`.
        source: `{"env": VARIABLE}` or `{"file": PATH}`.
        read: Returns the bytes that its text stands for. A `ValueError` has the reason.

    Raises:
        RequestRefused: It is missing or blank, or its text stands for nothing.
    """
    try:
        secret = read(resolve(f"of {whose}", source).strip())
        why = "it is blank"
    except SecretMissing as error:
        secret, why = b"", error.message
    except ValueError as error:
        secret, why = b"", str(error)
    if not secret:
        _log.error("the secret of %s cannot be used: %s", whose, why)
        raise RequestRefused(503, f"the secret of {whose} is not available on the server")
    return secret

"""Sign-in of browsers with an OpenID provider: authorization code with PKCE, `state` and `nonce`.

OpenID Connect Core 1.0, section 3.1, with RFC 7636 and RFC 9207. The values of
a sign-in stay on the server, are bound to its browser by a cookie, and are used once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from flowengine.server.oidc import OidcProvider, TokenUser, answer_of, host_secret
from flowengine.server.refusals import RequestRefused
from flowengine.server_settings import OidcSignIn

COOKIE = "flowengine_sign_in"
SECONDS = 600.0
"""How long a user may take at the provider."""
_MOST = 10_000
"""Sign-ins that have begun. More drop the oldest ones."""
_OF_ADDRESS = 1_000
"""Those of an address. More drop its oldest ones."""
_BYTES = 32
_AGAIN = "begin again on the page of this server"


class _Begun(NamedTuple):
    browser: bytes
    """Digest of the secret in the cookie."""
    verifier: str
    nonce: str
    redirect: str
    following: str
    at: float
    address: str


class CodeFlow:
    """The sign-ins of browsers with one provider.

    Args:
        provider: Checks its tokens.
        rules: The provider, as the settings declare it, with a `client`.
        ask: Returns the JSON that an address answers to a form: `(url, fields, headers)`.
        now: The monotonic time, in seconds.
    """

    def __init__(
        self,
        provider: OidcProvider,
        rules: OidcSignIn,
        ask: Callable[[str, Mapping[str, str], Mapping[str, str]], Any] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._rules = rules
        self._ask = ask or answer_of
        self._now = now
        self._begun: OrderedDict[str, _Begun] = OrderedDict()
        self._lock = Lock()

    def begin(self, redirect: str, following: str, client: str) -> tuple[str, str]:
        """Begin a sign-in, and return the address at the provider and the secret for the cookie.

        Args:
            redirect: Where the provider sends the browser back to.
            following: The path to show then.
            client: The address of the browser.

        Raises:
            RequestRefused: The provider cannot be read (503).
        """
        address = self._provider.endpoint("authorization_endpoint")
        state, browser, nonce, verifier = (secrets.token_urlsafe(_BYTES) for _ in range(4))
        with self._lock:
            self._begun[state] = _Begun(
                _digest(browser), verifier, nonce, redirect, following, self._now(), client
            )
            own = [key for key, begun in self._begun.items() if begun.address == client]
            for key in own[:-_OF_ADDRESS]:
                del self._begun[key]
            while len(self._begun) > _MOST:
                self._begun.popitem(last=False)
        asked = {
            "response_type": "code",
            "client_id": self._rules.client,
            "redirect_uri": redirect,
            "scope": self._rules.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(_digest(verifier)).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(asked)}", browser

    def finish(self, given: Mapping[str, str], browser: str) -> tuple[TokenUser, str]:
        """Return the user whom the provider names, and the path to show.

        Args:
            given: The parameters with which the browser came back.
            browser: The secret in its cookie.

        Raises:
            RequestRefused: The browser did not begin this sign-in, or the provider names no user.
        """
        with self._lock:
            begun = self._begun.pop(given.get("state", ""), None)
        if begun is None or self._now() - begun.at > SECONDS:
            raise RequestRefused(401, "this sign-in is unknown or too old", hint=_AGAIN)
        if not hmac.compare_digest(begun.browser, _digest(browser)):
            raise RequestRefused(401, "another browser began this sign-in", hint=_AGAIN)
        if given.get("iss", self._rules.issuer) != self._rules.issuer:
            raise RequestRefused(401, "another provider answered", hint=_AGAIN)
        if "error" in given or not given.get("code"):
            raise RequestRefused(401, "the provider did not sign you in", hint=_AGAIN)
        token = self._token(begun, given["code"])
        named = self._provider.named_by(token, audience=self._rules.client, nonce=begun.nonce)
        return named, begun.following

    def _token(self, begun: _Begun, code: str) -> str:
        """Return the token with which the provider names the user.

        Raises:
            RequestRefused: It gives none for this code (401), or does not answer (503).
        """
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": begun.redirect,
            "client_id": self._rules.client,
            "code_verifier": begun.verifier,
        }
        if self._rules.client_secret is not None:
            secret = host_secret("the OpenID client", self._rules.client_secret)
            fields["client_secret"] = secret.decode()
        address = self._provider.endpoint("token_endpoint")
        try:
            answer = self._ask(address, fields, {"accept": "application/json"})
            token = answer["id_token"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise RequestRefused(
                401, "the provider does not accept this sign-in", hint=_AGAIN
            ) from None
        if not isinstance(token, str):
            raise RequestRefused(401, "the provider does not accept this sign-in", hint=_AGAIN)
        return token


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()

"""How users sign in to a server besides with tokens, as the host's settings declare it.

    sign_in:
      proxy: {user_header: X-Forwarded-User, secret_header: X-Proxy-Secret, secret: {env: PROXY}}

      oidc: {issuer: "https://id.example.com", audience: flowengine, groups_claim: groups}

A proxy that authenticates users names them in a header, and proves itself by a secret in another.
An OpenID provider signs tokens that name them. With `client`, browsers sign in there.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from flowengine.errors import UsageError

_SOURCES = {"env", "file"}
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_EXAMPLE = (
    "sign_in: {proxy: {user_header: X-Forwarded-User, secret_header: X-Proxy-Secret, "
    "secret: {env: PROXY_SECRET}}}"
)
_OIDC_EXAMPLE = 'sign_in: {oidc: {issuer: "https://id.example.com", audience: flowengine}}'
_ISSUER = re.compile(r"https://[^\s/]|http://(127\.0\.0\.1|localhost)[:/]")
_TAKEN = frozenset({"authorization", "cookie", "host", "x-forwarded-for", "x-forwarded-proto"})


class ProxySignIn(NamedTuple):
    """A proxy that authenticates users."""

    user_header: str
    """The header with the name of the user, in lower case."""
    secret_header: str
    """The header with the proxy's secret, in lower case."""
    secret: dict[str, str]
    """Where the secret is: `{env: VARIABLE}` or `{file: PATH}`."""


class OidcSignIn(NamedTuple):
    """An OpenID provider."""

    issuer: str
    """Its identifier, exactly as in its tokens: an address that begins with https://."""
    audience: str
    """The value of `aud` in tokens for this server."""
    user_claim: str = "sub"
    """The claim with the name of the user."""
    groups_claim: str = "groups"
    """The claim with a list of groups, for the entries of `access`."""
    client: str = ""
    """The id under which the provider knows the page. Empty: the page has no sign-in with it."""
    client_secret: dict[str, str] | None = None
    """Where its secret is: `{env: VARIABLE}` or `{file: PATH}`. None: it is a public client."""
    scope: str = "openid profile"
    """What the page asks the provider for."""


class SignIn(NamedTuple):
    """How users sign in besides with tokens."""

    proxy: ProxySignIn | None = None
    oidc: OidcSignIn | None = None


def read_sign_in(path: str, value: Any) -> SignIn:
    """Read the setting `sign_in`.

    Args:
        path: The settings file, for messages.
        value: The value in it.

    Raises:
        UsageError: It is not valid.
    """
    place = f"{path}: sign_in"
    if not isinstance(value, dict) or not value or value.keys() - {*SignIn._fields}:
        raise UsageError(f"{place} is a map with 'proxy', 'oidc' or both", hint=_EXAMPLE)
    proxy = _proxy(place, value["proxy"]) if "proxy" in value else None
    return SignIn(proxy, _oidc(place, value["oidc"]) if "oidc" in value else None)


def _oidc(place: str, given: Any) -> OidcSignIn:
    is_map = isinstance(given, dict) and {"issuer", "audience"} <= given.keys()
    if not is_map or given.keys() - {*OidcSignIn._fields}:
        keys = ", ".join(OidcSignIn._fields)
        raise UsageError(f"{place}.oidc has the keys {keys}", hint=_OIDC_EXAMPLE)
    secret = given.get("client_secret")
    if secret is not None and (not _is_source(secret) or "client" not in given):
        raise UsageError(
            f"{place}.oidc: client_secret names where the secret of 'client' is",
            hint="client_secret: {env: OIDC_SECRET}",
        )
    texts = [value for name, value in given.items() if name != "client_secret"]
    if not all(isinstance(text, str) and text for text in texts):
        raise UsageError(f"{place}.oidc: the values are texts", hint=_OIDC_EXAMPLE)
    if not _ISSUER.match(given["issuer"]):
        raise UsageError(f"{place}.oidc: issuer begins with https://", hint=_OIDC_EXAMPLE)
    if "openid" not in given.get("scope", "openid").split():
        raise UsageError(f"{place}.oidc: scope contains openid", hint=_OIDC_EXAMPLE)
    return OidcSignIn(**given)


def _is_source(value: Any) -> bool:
    """Return whether a value names where a secret is."""
    is_map = isinstance(value, dict) and len(value) == 1 and not value.keys() - _SOURCES
    return is_map and all(isinstance(one, str) for one in value.values())


def _proxy(place: str, given: Any) -> ProxySignIn:
    if not isinstance(given, dict) or given.keys() != {*ProxySignIn._fields}:
        keys = ", ".join(ProxySignIn._fields)
        raise UsageError(f"{place}.proxy has the keys {keys}", hint=_EXAMPLE)
    headers = [given["user_header"], given["secret_header"]]
    if not all(isinstance(name, str) and _HEADER.fullmatch(name) for name in headers):
        raise UsageError(f"{place}.proxy: a header has letters, digits and -", hint=_EXAMPLE)
    user, secret = (name.lower() for name in headers)
    if user == secret or _TAKEN & {user, secret}:
        raise UsageError(f"{place}.proxy needs two headers that nothing else uses", hint=_EXAMPLE)
    source = given["secret"]
    if not _is_source(source):
        raise UsageError(f"{place}.proxy: secret names where it is", hint=_EXAMPLE)
    return ProxySignIn(user, secret, source)

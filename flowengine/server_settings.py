"""The settings of a server, which only the user's own `settings.yaml` may contain.

    access:
      - {who: [ana, "group:finance"], role: approver, flows: ["expense*"], content: true}
    hooks:
      - {name: orders, scheme: github, secret: {env: ORDERS_SECRET}, signal: placed, key: order.id}
      - {name: erp, scheme: hmac, header: X-Signature, secret: {file: /etc/erp.key}, signal: booked,
         key: number}
    sign_in:
      proxy: {user_header: X-Forwarded-User, secret_header: X-Proxy-Secret, secret: {env: PROXY}}
      oidc: {issuer: "https://id.example.com", audience: flowengine, groups_claim: groups}
    uploads: {mebibytes: 50, types: [pdf, png, jpg]}
    deploys: {modules: ["reports.*"], host: false}

`folders: [/srv/reports]` in `deploys` lists directories of the host. The user who runs the server
has all rights. Any other user has only those that an entry of `access` gives. Without `deploys`, a
server takes no flows: a flow controls the workers of the store, with the secrets and
environments of their machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from flowengine.errors import InputError, UsageError
from flowengine.sdk.files.file_names import SIGNATURES
from flowengine.sdk.tools.schemas import FLAG, TEXT, WHOLE, listed, record
from flowengine.sdk.values.validation import validate

ROLES = ("viewer", "starter", "approver", "operator", "admin")
_ISSUER = re.compile(r"https://[^\s/]|http://(127\.0\.0\.1|localhost)[:/]")
_TAKEN = frozenset({"authorization", "cookie", "host", "x-forwarded-for", "x-forwarded-proto"})
_EXAMPLES = {
    "access": 'access: [{who: [ana, "group:finance"], role: approver, flows: ["expense*"]}]',
    "hooks": "hooks: [{name: orders, scheme: github, secret: {env: ORDERS_SECRET}, signal: placed, "
    "key: order.id}]",
    "sign_in": "sign_in: {proxy: {user_header: X-Forwarded-User, secret_header: X-Proxy-Secret, "
    "secret: {env: PROXY_SECRET}}}",
    "uploads": "uploads: {mebibytes: 50, types: [pdf, png]}",
    "deploys": 'deploys: {modules: ["reports.*"], host: false}',
}


class AccessEntry(NamedTuple):
    """One entry of `access`: the role of some users, for some flows."""

    who: list[str]
    """`user:NAME` and `group:NAME`."""
    role: str
    """One of `ROLES`."""
    flows: list[str]
    """Patterns of flow ids: `*` matches anything, `?` one character."""
    content: bool
    """Whether inputs, outputs, events and files are shown. An `admin` sees them always."""


class HookEntry(NamedTuple):
    """One entry of `hooks`: what another service sends, and the signal that it becomes."""

    name: str
    """The last part of its path."""
    scheme: str
    """How a delivery is signed: `standard`, `github`, `stripe`, `slack` or `hmac`."""
    secret: dict[str, str]
    """`{"env": VARIABLE}` or `{"file": PATH}`."""
    signal: str
    """The signal that a delivery becomes."""
    key: str
    """Dotted path of the signal's key in the body: `order.id`."""
    header: str
    """With `hmac`: the header that has the signature, in hex."""


class ProxySignIn(NamedTuple):
    """A proxy that authenticates users, and proves itself by a secret in a header."""

    user_header: str
    """The header with the name of the user, in lower case."""
    secret_header: str
    """The header with the proxy's secret, in lower case."""
    secret: dict[str, str]
    """Where the secret is: `{env: VARIABLE}` or `{file: PATH}`."""


class OidcSignIn(NamedTuple):
    """An OpenID provider, which signs tokens that name users. With `client`, browsers sign in."""

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
    """The scopes that the page requests from the provider."""


class SignIn(NamedTuple):
    """How users sign in besides with tokens."""

    proxy: ProxySignIn | None = None
    oidc: OidcSignIn | None = None


class UploadRules(NamedTuple):
    """The files that users of a server may upload."""

    mebibytes: int = 20
    """Maximum size of a file."""
    types: tuple[str, ...] = ()
    """Endings of names, in lower case: `.pdf`. Empty: any."""

    @property
    def most_bytes(self) -> int:
        """Maximum size of a file in bytes."""
        return self.mebibytes * 1024 * 1024

    def check(self, name: str, start: bytes) -> None:
        """Check the type of a file.

        Args:
            name: Its name.
            start: Its first 8 bytes or more.

        Raises:
            InputError: Such files are not accepted, or its content does not match its name.
        """
        ending = os.path.splitext(name)[1].lower()
        if self.types and ending not in self.types:
            known = ", ".join(type_name.removeprefix(".") for type_name in self.types)
            raise InputError(
                f"files such as {name!r} are not accepted", field="name", hint=f"accepted: {known}"
            )
        if not start.startswith(SIGNATURES.get(ending, (b"",))):
            raise InputError(f"the content of {name!r} does not match its name", field="name")


class DeployRules(NamedTuple):
    """The names that flows may contain which administrators deploy through a server."""

    modules: tuple[str, ...] = ()
    """Patterns of the names of Python modules."""
    host: bool = False
    """Whether it may run programs and use files on the host, outside of sandboxes."""
    folders: tuple[str, ...] = ()
    """Absolute paths of directories of the host that its environments may name anyway."""

    def allows(self, path: str | None) -> bool:
        """Return whether a flow may name a path of the host. None: it is not known yet."""
        if self.host:
            return True
        if path is None or not os.path.isabs(path):
            return False
        real = os.path.realpath(path)
        return any(
            real == folder or real.startswith(os.path.join(folder, ""))
            for folder in map(os.path.realpath, self.folders)
        )


_TEXT = {**TEXT, "minLength": 1}
_TEXTS = listed(_TEXT)
_HEADER = {**TEXT, "pattern": "^[A-Za-z][A-Za-z0-9-]{0,63}$"}
_SCHEMAS: dict[str, Any] = {
    "access": listed(
        record(
            {"who": _TEXTS, "role": {"enum": [*ROLES]}, "flows": _TEXTS, "content": FLAG},
            ["who", "role"],
        )
    ),
    "hooks": listed(
        record(
            {
                "name": {**TEXT, "pattern": "^[A-Za-z0-9_-]{1,64}$"},
                "scheme": {"enum": ["standard", "github", "stripe", "slack", "hmac"]},
                "secret": {},
                "signal": _TEXT,
                "key": _TEXT,
                "header": _TEXT,
            },
            ["name", "scheme", "secret", "signal", "key"],
        )
    ),
    "sign_in": {
        **record(
            {
                "proxy": record({"user_header": _HEADER, "secret_header": _HEADER, "secret": {}}),
                "oidc": record(
                    {**dict.fromkeys(OidcSignIn._fields, _TEXT), "client_secret": {}},
                    ["issuer", "audience"],
                ),
            },
            [],
        ),
        "minProperties": 1,
    },
    "uploads": record(
        {"mebibytes": {**WHOLE, "minimum": 1, "maximum": 10_000}, "types": _TEXTS}, []
    ),
    "deploys": record(
        {"modules": _TEXTS, "host": FLAG, "folders": listed({**TEXT, "pattern": "^/"})}, []
    ),
}


def _access(given: Any) -> tuple[AccessEntry, ...]:
    return tuple(
        AccessEntry(
            [who if who.startswith(("user:", "group:")) else f"user:{who}" for who in entry["who"]],
            entry["role"],
            entry.get("flows", ["*"]),
            entry.get("content", False),
        )
        for entry in given
    )


def _hooks(given: Any) -> tuple[HookEntry, ...]:
    found: dict[str, HookEntry] = {}
    for entry in given:
        name, header = entry["name"], entry.get("header", "")
        if (entry["scheme"] == "hmac") != bool(header):
            raise ValueError("'header' is for the scheme hmac, which needs it")
        if name in found:
            raise ValueError(f"two hooks have the name '{name}'")
        _check_source(entry["secret"])
        found[name] = HookEntry(**{**entry, "header": header.lower()})
    return tuple(found.values())


def _sign_in(given: Any) -> SignIn:
    proxy, oidc = given.get("proxy"), given.get("oidc")
    if proxy is not None:
        user, secret = proxy["user_header"].lower(), proxy["secret_header"].lower()
        if user == secret or _TAKEN & {user, secret}:
            raise ValueError("proxy needs two headers that nothing else uses")
        _check_source(proxy["secret"])
        proxy = ProxySignIn(user, secret, proxy["secret"])
    if oidc is not None:
        if "client_secret" in oidc:
            _check_source(oidc["client_secret"])
            if "client" not in oidc:
                raise ValueError("client_secret needs a client")
        if not _ISSUER.match(oidc["issuer"]):
            raise ValueError("issuer begins with https://")
        if "openid" not in oidc.get("scope", "openid").split():
            raise ValueError("scope contains openid")
        oidc = OidcSignIn(**oidc)
    return SignIn(proxy, oidc)


def _check_source(value: Any) -> None:
    """Check that a value names where a secret is. It may be the secret, and is not quoted."""
    is_map = isinstance(value, dict) and len(value) == 1 and not value.keys() - {"env", "file"}
    if not is_map or not all(isinstance(one, str) for one in value.values()):
        raise ValueError("secret names where it is: {env: VARIABLE} or {file: PATH}")


def _uploads(given: Any) -> UploadRules:
    types = tuple(f".{ending.lower().removeprefix('.')}" for ending in given.pop("types", ()))
    return UploadRules(types=types, **given)


def _deploys(given: Any) -> DeployRules:
    return DeployRules(
        tuple(given.get("modules", ())), given.get("host", False), tuple(given.get("folders", ()))
    )


_READ: dict[str, Callable[[Any], Any]] = {
    "access": _access,
    "hooks": _hooks,
    "sign_in": _sign_in,
    "uploads": _uploads,
    "deploys": _deploys,
}


def read(setting: str, path: str, value: Any) -> Any:
    """Read a setting of a server: its rules, or a tuple of its entries.

    Raises:
        UsageError: It is not valid.
    """
    place = f"{path}: {setting}"
    try:
        return _READ[setting](validate(_SCHEMAS[setting], value, place))
    except InputError as error:
        raise UsageError(error.message, hint=error.hint or _EXAMPLES[setting]) from None
    except ValueError as error:
        raise UsageError(f"{place}: {error}", hint=_EXAMPLES[setting]) from None

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
from typing import Any, NamedTuple

from flowengine.errors import InputError, UsageError
from flowengine.sdk.files.file_names import SIGNATURES
from flowengine.sdk.python.argument_checks import known_words

ROLES = ("viewer", "starter", "approver", "operator", "admin")
_SCHEMES = ("standard", "github", "stripe", "slack", "hmac")
_SOURCES = {"env", "file"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_ISSUER = re.compile(r"https://[^\s/]|http://(127\.0\.0\.1|localhost)[:/]")
_TAKEN = frozenset({"authorization", "cookie", "host", "x-forwarded-for", "x-forwarded-proto"})
_MOST_MEBIBYTES = 10_000
_EXAMPLES = {
    "access": 'access: [{who: [ana, "group:finance"], role: approver, flows: ["expense*"]}]',
    "hooks": "hooks: [{name: orders, scheme: github, secret: {env: ORDERS_SECRET}, signal: placed, "
    "key: order.id}]",
    "sign_in": "sign_in: {proxy: {user_header: X-Forwarded-User, secret_header: X-Proxy-Secret, "
    "secret: {env: PROXY_SECRET}}}",
    "oidc": 'sign_in: {oidc: {issuer: "https://id.example.com", audience: flowengine}}',
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


class _Reader(NamedTuple):
    """Reads one setting, and raises `UsageError` if it is not valid."""

    path: str
    place: str
    """Begins each message."""
    example: str

    def fail(self, what: str, hint: str | None = "") -> UsageError:
        """Return the error, with an example as the hint by default."""
        return UsageError(f"{self.place}{what}", hint=self.example if hint == "" else hint)

    def entries(self, value: Any, keys: tuple[str, ...]) -> list[tuple[_Reader, dict[str, Any]]]:
        """Return the maps of a list, each with its reader."""
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self.fail(" must be a list of maps")
        found = [
            (self._replace(place=f"{self.place}[{n}]: "), entry) for n, entry in enumerate(value)
        ]
        for reader, entry in found:
            unknown = next((str(key) for key in entry if key not in keys), None)
            if unknown is not None:
                raise reader.fail(f"unknown key '{unknown}'", known_words(unknown, keys))
        return found

    def map_of(self, value: Any, keys: tuple[str, ...], what: str) -> dict[str, Any]:
        """Return a map that has no other keys."""
        if not isinstance(value, dict) or not value.keys() <= {*keys}:
            raise self.fail(what)
        return value

    def switch(self, given: dict[str, Any], key: str, dot: str = "") -> bool:
        """Return true or false, which is the default."""
        value = given.get(key, False)
        if not isinstance(value, bool):
            raise self.fail(f"{dot}{key} is {value!r}", "write true or false")
        return value

    def texts(self, value: Any, what: str, *, absolute: bool = False) -> list[str]:
        """Return a list of texts that are not empty."""
        if not isinstance(value, list) or not all(
            isinstance(text, str) and text and (not absolute or os.path.isabs(text))
            for text in value
        ):
            raise self.fail(what)
        return value

    def choice(self, given: dict[str, Any], key: str, known: tuple[str, ...], hint: str) -> str:
        """Return one of several texts."""
        value = given.get(key)
        if value not in known:
            raise self.fail(f"{key} is {value!r}", hint or known_words(str(value), known))
        return str(value)


def _access(read: _Reader, value: Any) -> tuple[AccessEntry, ...]:
    found = []
    for at, entry in read.entries(value, AccessEntry._fields):
        role, content = at.choice(entry, "role", ROLES, ""), at.switch(entry, "content")
        who = at.texts(entry.get("who"), "who must be a list of names")
        flows = at.texts(entry.get("flows", ["*"]), "flows must be a list of names")
        users = [name if name.startswith(("user:", "group:")) else f"user:{name}" for name in who]
        found.append(AccessEntry(users, role, flows, content))
    return tuple(found)


def _hooks(read: _Reader, value: Any) -> tuple[HookEntry, ...]:
    found: list[HookEntry] = []
    for at, entry in read.entries(value, HookEntry._fields):
        for key in ("name", "scheme", "secret", "signal", "key"):
            if not entry.get(key):
                raise at.fail(f"'{key}' is missing")
        scheme = at.choice(entry, "scheme", _SCHEMES, f"one of: {', '.join(_SCHEMES)}")
        header = entry.get("header", "")
        if (scheme == "hmac") != bool(header):
            raise at.fail("'header' is for the scheme hmac, which needs it", None)
        name, signal, key = entry["name"], entry["signal"], entry["key"]
        are_texts = all(isinstance(text, str) for text in (name, signal, key, header))
        if not are_texts or not _NAME.fullmatch(name):
            raise at.fail("name, signal, key and header are texts")
        if not _is_source(entry["secret"]):
            raise at.fail("secret names where it is", "secret: {env: VARIABLE}")
        if name in [hook.name for hook in found]:
            raise UsageError(f"{read.path}: two hooks have the name '{name}'")
        found.append(HookEntry(name, scheme, entry["secret"], signal, key, header.lower()))
    return tuple(found)


def _sign_in(read: _Reader, value: Any) -> SignIn:
    given = read.map_of(value or None, SignIn._fields, " is a map with 'proxy', 'oidc' or both")
    proxy = read._replace(place=f"{read.place}.proxy")
    oidc = _Reader(read.path, f"{read.place}.oidc", _EXAMPLES["oidc"])
    return SignIn(
        _proxy(proxy, given["proxy"]) if "proxy" in given else None,
        _oidc(oidc, given["oidc"]) if "oidc" in given else None,
    )


def _proxy(read: _Reader, value: Any) -> ProxySignIn:
    keys = ProxySignIn._fields
    if not isinstance(value, dict) or value.keys() != {*keys}:
        raise read.fail(f" has the keys {', '.join(keys)}")
    headers = [value["user_header"], value["secret_header"]]
    if not all(isinstance(name, str) and _HEADER.fullmatch(name) for name in headers):
        raise read.fail(": a header has letters, digits and -")
    user, secret = (name.lower() for name in headers)
    if user == secret or _TAKEN & {user, secret}:
        raise read.fail(" needs two headers that nothing else uses")
    if not _is_source(value["secret"]):
        raise read.fail(": secret names where it is")
    return ProxySignIn(user, secret, value["secret"])


def _oidc(read: _Reader, value: Any) -> OidcSignIn:
    keys = OidcSignIn._fields
    given = read.map_of(value, keys, f" has the keys {', '.join(keys)}")
    if not {"issuer", "audience"} <= given.keys():
        raise read.fail(f" has the keys {', '.join(keys)}")
    secret = given.get("client_secret")
    if secret is not None and (not _is_source(secret) or "client" not in given):
        raise read.fail(
            ": client_secret names where the secret of 'client' is",
            "client_secret: {env: OIDC_SECRET}",
        )
    texts = [text for name, text in given.items() if name != "client_secret"]
    read.texts(texts, ": the values are texts")
    if not _ISSUER.match(given["issuer"]):
        raise read.fail(": issuer begins with https://")
    if "openid" not in given.get("scope", "openid").split():
        raise read.fail(": scope contains openid")
    return OidcSignIn(**given)


def _is_source(value: Any) -> bool:
    """Return whether a value names where a secret is."""
    is_map = isinstance(value, dict) and len(value) == 1 and not value.keys() - _SOURCES
    return is_map and all(isinstance(one, str) for one in value.values())


def _uploads(read: _Reader, value: Any) -> UploadRules:
    keys = UploadRules._fields
    given = read.map_of(value, keys, f" must be a map of {', '.join(keys)}")
    size = given.get("mebibytes", UploadRules().mebibytes)
    if type(size) is not int or not 0 < size <= _MOST_MEBIBYTES:
        raise read.fail(f".mebibytes is {size!r}", f"write 1 to {_MOST_MEBIBYTES}")
    types = read.texts(given.get("types", []), ".types must be a list of endings")
    return UploadRules(size, tuple(f".{ending.lower().removeprefix('.')}" for ending in types))


def _deploys(read: _Reader, value: Any) -> DeployRules:
    keys = DeployRules._fields
    given = read.map_of(value, keys, f" must be a map of {', '.join(keys)}")
    modules = read.texts(given.get("modules", []), ".modules must be a list of names")
    host = read.switch(given, "host", ".")
    what = ".folders must be a list of absolute paths"
    folders = read.texts(given.get("folders", []), what, absolute=True)
    return DeployRules(tuple(modules), host, tuple(folders))


_READ = {
    "access": _access,
    "hooks": _hooks,
    "sign_in": _sign_in,
    "uploads": _uploads,
    "deploys": _deploys,
}


def read(setting: str, path: str, value: Any) -> Any:
    """Read a setting of a server: its rules, or a tuple of its entries."""
    return _READ[setting](_Reader(path, f"{path}: {setting}", _EXAMPLES[setting]), value)

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
from collections import Counter
from typing import Any, NamedTuple

from flowengine.errors import InputError, UsageError
from flowengine.sdk.files.file_names import SIGNATURES
from flowengine.sdk.values.validation import validate

ROLES = ("viewer", "starter", "approver", "operator", "admin")
_EXAMPLES = {
    "access": 'access: [{who: [ana, "group:finance"], role: approver, flows: ["expense*"]}]',
    "hooks": "hooks: [{name: orders, scheme: github, secret: {env: ORDERS_SECRET}, signal: placed, "
    "key: order.id}]",
    "sign_in": "sign_in: {proxy: {user_header: X-Forwarded-User, secret_header: X-Proxy-Secret, "
    "secret: {env: PROXY_SECRET}}}",
    "uploads": "uploads: {mebibytes: 50, types: [pdf, png]}",
    "deploys": 'deploys: {modules: ["reports.*"], host: false}',
}
_TAKEN = frozenset({"authorization", "cookie", "host", "x-forwarded-for", "x-forwarded-proto"})


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


_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT}
_SWITCH = {"type": "boolean"}
_HEADER = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9-]{0,63}$"}


def _map(*required: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of a map that has no other keys."""
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": [*required]}


_SOURCE = {**_map(env=_TEXT, file=_TEXT), "minProperties": 1, "maxProperties": 1}
"""The schema of a map that names where a secret is."""
_PROXY = _map(*ProxySignIn._fields, user_header=_HEADER, secret_header=_HEADER, secret=_SOURCE)
_OIDC = _map(
    "issuer",
    "audience",
    issuer={"type": "string", "pattern": r"^https://[^\s/]|^http://(127\.0\.0\.1|localhost)[:/]"},
    audience=_TEXT,
    user_claim=_TEXT,
    groups_claim=_TEXT,
    client=_TEXT,
    client_secret=_SOURCE,
    scope={"type": "string", "pattern": "(^| )openid( |$)"},
)
_ACCESS = _map("who", "role", who=_TEXTS, role={"enum": [*ROLES]}, flows=_TEXTS, content=_SWITCH)
_HOOK = _map(
    *HookEntry._fields[:-1],
    name={"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
    scheme={"enum": ["standard", "github", "stripe", "slack", "hmac"]},
    secret=_SOURCE,
    signal=_TEXT,
    key=_TEXT,
    header=_TEXT,
)
_SCHEMAS = {
    "access": {"type": "array", "items": _ACCESS},
    "hooks": {"type": "array", "items": _HOOK},
    "sign_in": {
        **_map(proxy=_PROXY, oidc={**_OIDC, "dependentRequired": {"client_secret": ["client"]}}),
        "minProperties": 1,
    },
    "uploads": _map(mebibytes={"type": "integer", "minimum": 1, "maximum": 10_000}, types=_TEXTS),
    "deploys": _map(
        modules=_TEXTS,
        host=_SWITCH,
        folders={"type": "array", "items": {"type": "string", "pattern": "^/"}},
    ),
}
"""Setting → JSON Schema."""


def read(setting: str, path: str, value: Any) -> Any:
    """Read a setting of a server: its rules, or a tuple of its entries.

    Args:
        setting: Its name.
        path: The settings file, for messages.
        value: As the file has it.

    Raises:
        UsageError: It is not valid.
    """
    place, example = f"{path}: {setting}", _EXAMPLES[setting]
    try:
        validate(_SCHEMAS[setting], value, place)
    except InputError as error:
        message = error.message
        if ", not " in message and re.search(r"secret\b", message):
            # A value is quoted, in which the secret may be.
            message = f"{place}: a secret names where it is: {{env: VARIABLE}} or {{file: PATH}}"
        raise UsageError(message, hint=error.hint or example) from None
    if setting == "access":
        entries = (AccessEntry(**{"flows": ["*"], "content": False, **each}) for each in value)
        return tuple(each._replace(who=[*map(_user, each.who)]) for each in entries)
    if setting == "hooks":
        hooks = [HookEntry(**{"header": "", **each}) for each in value]
        if any((hook.scheme == "hmac") != bool(hook.header) for hook in hooks):
            message = f"{place}: 'header' is for the scheme hmac, which needs it"
            raise UsageError(message, hint=example)
        numbers = Counter(hook.name for hook in hooks)
        twice = [name for name, number in numbers.items() if number > 1]
        if twice:
            raise UsageError(f"{place}: two hooks have the name '{twice[0]}'", hint=example)
        return tuple(hook._replace(header=hook.header.lower()) for hook in hooks)
    if setting == "sign_in":
        proxy, oidc = value.get("proxy"), value.get("oidc")
        if proxy is not None:
            user, secret = proxy["user_header"].lower(), proxy["secret_header"].lower()
            if user == secret or _TAKEN & {user, secret}:
                message = f"{place}.proxy needs two headers that nothing else uses"
                raise UsageError(message, hint=example)
            proxy = ProxySignIn(user, secret, proxy["secret"])
        return SignIn(proxy, None if oidc is None else OidcSignIn(**oidc))
    if setting == "uploads":
        endings = [f".{ending.lower().removeprefix('.')}" for ending in value.get("types", ())]
        return UploadRules(**{**value, "types": tuple(endings)})
    modules, folders = (tuple(value.get(key, ())) for key in ("modules", "folders"))
    return DeployRules(modules, value.get("host", False), folders)


def _user(name: str) -> str:
    return name if name.startswith(("user:", "group:")) else f"user:{name}"

"""Deliveries of other services, which are signed with a secret, and become signals."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl

from flowengine.engines.engine import Engine
from flowengine.errors import InputError
from flowengine.sdk.texts.received import received_json, received_text
from flowengine.sdk.web.signatures import signed_content, signing_key
from flowengine.server.oidc import host_secret
from flowengine.server.redaction import QuotingEngine
from flowengine.server.refusals import RequestRefused
from flowengine.server.sent_values import no_uploads
from flowengine.server.signals import keyed_data, sent_view
from flowengine.server_settings import HookEntry

TOLERANCE = 300
"""Seconds that the time in a signature may differ from ours."""


class Delivery(NamedTuple):
    """A request to a hook, whose signature is checked."""

    engine: Engine
    hook: HookEntry
    id: str
    """Empty: it is in the body."""
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes
    """The raw body, which is signed."""
    token: None = None

    @property
    def user(self) -> str:
        """Who changes something, for the audit record and the journal."""
        return f"hook:{self.hook.name}"


class Signed(NamedTuple):
    """The claims of a delivery, before its signature is checked."""

    content: bytes
    """The signed content."""
    signatures: list[bytes]
    """One of them must be right. More than one while a secret is replaced."""
    id: str
    """Id of the delivery. Empty: it is in the body."""
    at: str | None = None
    """When it was signed, in seconds since 1970. None: the scheme has no time."""


def signed_delivery(engine: Engine, name: str, headers: Mapping[str, str], body: bytes) -> Delivery:
    """Return a delivery of another service.

    Args:
        engine: That of the server.
        name: Of the hook.
        headers: By name in lower case.
        body: As it was sent.

    Raises:
        RequestRefused: It has no valid signature.
    """
    hook = next((hook for hook in engine.settings.hooks if hook.name == name), None)
    id = verified(hook, headers, body, time.time())
    assert hook is not None
    return Delivery(engine, hook, id, headers, body)


def receive(delivery: Delivery) -> Any:
    """Take a delivery, as a signal to an execution that it may start."""
    hook, data = delivery.hook, _data(delivery)
    if hook.scheme == "slack" and data.get("type") == "url_verification":
        return {"challenge": data.get("challenge")}
    key = _at(data, hook.key)
    own = delivery.engine.acting_as(delivery.user, via="hook")
    engine = cast("Engine", QuotingEngine(own, lambda error: False))
    own_id = str(data.get("event_id") or data.get("id") or "")
    message = delivery.id or own_id or _digest(delivery.body)
    data = keyed_data(engine, no_uploads, hook.signal, key, data)
    sent = engine.signal(hook.signal, data, key=key, id=f"{hook.name} {message}", resume=False)
    return sent_view(sent)


def verified(hook: HookEntry | None, headers: Mapping[str, str], body: bytes, now: float) -> str:
    """Check the signature of a delivery, and return the delivery's id, unless it is in the body.

    Args:
        hook: The hook. None: there is none of this name, which is refused in the same way.
        headers: By name in lower case.
        body: As it was sent.
        now: The time, in seconds since 1970.

    Raises:
        RequestRefused: It is not signed with the hook's secret, or too long ago.
    """
    scheme = "hmac" if hook is None else hook.scheme
    secret = b"no hook has this secret"
    if hook is not None:
        key = signing_key if hook.scheme == "standard" else str.encode
        secret = host_secret(f"hook {hook.name}", hook.secret, key)
    try:
        signed = _SCHEMES[scheme](headers, body, "" if hook is None else hook.header)
        right = hmac.new(secret, signed.content, hashlib.sha256).digest()
        matches = [hmac.compare_digest(right, signature) for signature in signed.signatures]
        in_time = signed.at is None or abs(now - int(signed.at)) <= TOLERANCE
    except (KeyError, ValueError, binascii.Error):
        matches, in_time, signed = [], False, Signed(b"", [], "")
    if hook is None or not any(matches) or not in_time:
        raise RequestRefused(401, "the delivery has no valid signature of this hook, or an old one")
    return signed.id


def _standard(headers: Mapping[str, str], body: bytes, header: str) -> Signed:
    """Standard Webhooks: `webhook-signature: v1,BASE64 v1,BASE64`."""
    id, at = headers["webhook-id"], headers["webhook-timestamp"]
    given = [item.partition(",") for item in headers["webhook-signature"].split()]
    signatures = [b64decode(text) for version, _, text in given if version == "v1"]
    return Signed(signed_content(id, at, body), signatures, id, at)


def _github(headers: Mapping[str, str], body: bytes, header: str) -> Signed:
    """GitHub: `X-Hub-Signature-256: sha256=HEX`. The id in `X-GitHub-Delivery` is not signed."""
    signature = bytes.fromhex(headers["x-hub-signature-256"].removeprefix("sha256="))
    return Signed(body, [signature], _digest(body))


def _stripe(headers: Mapping[str, str], body: bytes, header: str) -> Signed:
    """Stripe: `Stripe-Signature: t=SECONDS,v1=HEX,v1=HEX`. The id is in the body."""
    parts = [part.strip().partition("=") for part in headers["stripe-signature"].split(",")]
    [at] = [value for name, _, value in parts if name == "t"]
    signatures = [bytes.fromhex(value) for name, _, value in parts if name == "v1"]
    return Signed(f"{at}.".encode() + body, signatures, "", at)


def _slack(headers: Mapping[str, str], body: bytes, header: str) -> Signed:
    """Slack: `X-Slack-Signature: v0=HEX`. The id is in the body."""
    at = headers["x-slack-request-timestamp"]
    signature = bytes.fromhex(headers["x-slack-signature"].removeprefix("v0="))
    return Signed(f"v0:{at}:".encode() + body, [signature], "", at)


def _hmac(headers: Mapping[str, str], body: bytes, header: str) -> Signed:
    """The HMAC of the body in hex, in a header of the hook's choice."""
    return Signed(body, [bytes.fromhex(headers[header].removeprefix("sha256="))], "")


_SCHEMES: dict[str, Callable[[Mapping[str, str], bytes, str], Signed]] = {
    "standard": _standard,
    "github": _github,
    "stripe": _stripe,
    "slack": _slack,
    "hmac": _hmac,
}


def _data(delivery: Delivery) -> dict[str, Any]:
    """Return the body as data: a JSON object, or the fields of a form.

    Raises:
        InputError: It is not one of them.
    """
    media_type = delivery.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        text = received_text(delivery.body)
        if media_type == "application/x-www-form-urlencoded":
            fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=1000))
            text = fields["payload"] if fields.keys() == {"payload"} else json.dumps(fields)
        data = received_json(text, lenient=True)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise InputError("the delivery must be a JSON object or a form")
    return data


def _at(data: Any, path: str) -> str:
    """Return the text or number at a dotted path.

    Raises:
        InputError: There is none.
    """
    value = data
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"the delivery has no text or number at '{path}'", field=path)
    return str(value)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@dataclass
class Act:
    """How a change ended."""

    status: int = 200
    why: str | None = None

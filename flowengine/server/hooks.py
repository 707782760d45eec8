"""Deliveries of other services, which are signed with a secret, and become signals."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
import logging
import sqlite3
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl

from flowengine.engines.engine import Engine
from flowengine.errors import FlowEngineError, InputError
from flowengine.sdk.texts.received import received_json, received_text
from flowengine.sdk.web.signatures import signed_content, signing_key
from flowengine.server.oidc import host_secret
from flowengine.server.problems import status_of
from flowengine.server.records import ServerRecords
from flowengine.server.redaction import QuotingEngine
from flowengine.server.refusals import RequestRefused
from flowengine.server.sent_values import no_uploads
from flowengine.server.signals import keyed_data
from flowengine.server_settings import HookEntry

TOLERANCE = 300
"""Seconds that the time in a signature may differ from ours."""
_NO_SECRET = b"no hook has this secret"


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
    return {"execution": sent.execution, "id": sent.id, "first": sent.first, "began": sent.began}


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
    secret = _NO_SECRET if hook is None else _key(hook)
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


def _key(hook: HookEntry) -> bytes:
    """Return the key of a hook's signatures.

    Raises:
        RequestRefused: The server cannot read it.
    """
    read = signing_key if hook.scheme == "standard" else str.encode
    return host_secret(f"hook {hook.name}", hook.secret, read)


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


# Changes in the audit record: there before they take effect, with their end afterwards.

_log = logging.getLogger("flowengine.server")


@dataclass
class Act:
    """How a change ended."""

    status: int = 200
    why: str | None = None


@contextmanager
def recorded(
    records: ServerRecords, method: str, path: str, user: str, token: str | None, address: str
) -> Iterator[Act]:
    """Record a change before it takes effect, and afterwards how it ended.

    Args:
        records: Contains the audit record.
        method: Of the request, or the protocol.
        path: Of the object that is changed.
        user: Who changes it.
        token: Name of the credential.
        address: The address of the client.

    Yields:
        How it ends. An error in the block is its end, too. Until then, the entry has the status 0,
        and also if the block is cancelled, which does not stop running work.

    Raises:
        RequestRefused: It cannot be recorded, so it must not take effect.
    """
    now, act = int(time.time() * 1000), Act()
    try:
        number = records.audit(now, method, path, 0, user=user, token=token, address=address)
    except (sqlite3.Error, OSError) as error:
        _log.error("the audit record in %s cannot be written: %s", records.folder, error)
        raise RequestRefused(503, "the audit record cannot be written") from None
    try:
        yield act
    except FlowEngineError as error:
        act.status, act.why = status_of(error), error.message
        raise
    except Exception:
        act.status, act.why = 500, "the server failed"
        raise
    except BaseException:
        act.status, act.why = 0, "it was cancelled, and may have taken effect"
        raise
    finally:
        try:
            records.end_act(number, act.status, act.why)
        except (sqlite3.Error, OSError) as error:  # the entry is there, without its end
            _log.error("the audit record in %s cannot be written: %s", records.folder, error)

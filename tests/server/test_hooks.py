# Shows V36
"""Hooks: deliveries of other services, with the examples that the services publish."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import pytest

from flowengine import UsageError
from flowengine.server import hooks
from flowengine.server.identity import FAILURES
from flowengine.server.refusals import RequestRefused
from flowengine.server_settings import HookEntry, read
from flowengine.settings_files import load_settings
from tests.received import RECEIVED
from tests.rows import each_row
from tests.server.api import Api
from tests.server.conftest import SETTINGS

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SLACK_BODY = (
    "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&"
    "channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&"
    "command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2F"
    "T1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&"
    "trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
PUBLISHED: dict[str, tuple[str, dict[str, str], str, int]] = {
    "standard": (
        WHSEC,
        {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
        '{"test": 2432232314}',
        1614265330,
    ),
    "github": (
        "It's a Secret to Everybody",
        {
            "x-hub-signature-256": "sha256="
            "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        },
        "Hello, World!",
        0,
    ),
    "slack": (
        "8f742231b10e8888abcd99yyyzzz85a5",
        {
            "x-slack-request-timestamp": "1531420618",
            "x-slack-signature": "v0="
            "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        },
        SLACK_BODY,
        1531420618,
    ),
}
"""Scheme → secret, headers, body and time of the example in the service's documentation."""
HOOKS = """
hooks:
  - {name: parcels, scheme: standard, secret: {env: PARCELS}, signal: arrived, key: order.id}
  - {name: pay, scheme: stripe, secret: {env: PLAIN}, signal: arrived, key: order.id}
  - {name: erp, scheme: hmac, header: X-Sig, secret: {env: PLAIN}, signal: arrived, key: order.id}
  - {name: chat, scheme: slack, secret: {env: PLAIN}, signal: arrived, key: order.id}
  - {name: lost, scheme: github, secret: {env: NOT_SET_ANYWHERE}, signal: arrived, key: a}
"""
BODY = json.dumps({"order": {"id": "A17"}, "n": 1}).encode()


@pytest.fixture
def hooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Any:
    config = tmp_path / "config" / "flowengine"
    config.mkdir(parents=True)
    (config / "settings.yaml").write_text(SETTINGS + HOOKS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PARCELS", WHSEC)
    monkeypatch.setenv("PLAIN", "s3cret")
    monkeypatch.chdir(tmp_path)
    api = Api(tmp_path)
    api.engine.flows.deploy(api.flows[1])
    yield api
    api.close()


def signed(scheme: str, body: bytes = BODY, id: str = "m1", at: float | None = None) -> Any:
    """Return the headers of a delivery."""
    seconds = str(int(time.time() if at is None else at))
    if scheme == "standard":
        key = base64.b64decode(WHSEC.removeprefix("whsec_"))
        made = hmac.new(key, f"{id}.{seconds}.".encode() + body, hashlib.sha256).digest()
        text = f"v1,{base64.b64encode(b'0' * 32).decode()} v1,{base64.b64encode(made).decode()}"
        return {"webhook-id": id, "webhook-timestamp": seconds, "webhook-signature": text}
    start = {"stripe": f"{seconds}.", "slack": f"v0:{seconds}:", "hmac": ""}[scheme].encode()
    made_hex = hmac.new(b"s3cret", start + body, hashlib.sha256).hexdigest()
    return {
        "stripe": {"stripe-signature": f"t={seconds},v1={'00' * 32},v1={made_hex},v0=zz"},
        "slack": {"x-slack-request-timestamp": seconds, "x-slack-signature": f"v0={made_hex}"},
        "hmac": {"x-sig": made_hex},
    }[scheme]


def deliver(api: Api, name: str, headers: Any, code: int, body: bytes = BODY) -> Any:
    path = f"/v1/hooks/{name}"
    return api("POST", path, token=None, headers=headers, content=body, code=code)


def test_deliveries_are_read_as_they_are_meant(hooked: Api) -> None:
    for name, case in RECEIVED.items():
        text = f'{{"order": {{"id": "{name}"}}, "n": {case.text}}}'
        body = text.encode(case.encoding)
        for id in (f"{name} starts", f"{name} arrives"):
            answer = deliver(hooked, "parcels", signed("standard", body, id), 202, body)
            hooked.engine.resume(answer["execution"])
        [step] = hooked.engine.executions.show(answer["execution"], step="come")["steps"]
        assert step["output"]["data"]["n"] == {"v": case.value}, name


@pytest.mark.parametrize("scheme", PUBLISHED)
def test_published_examples_are_accepted_and_changed_ones_are_not(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, headers, body, now = PUBLISHED[scheme]
    monkeypatch.setenv("HOOK_SECRET", secret)
    hook = HookEntry("it", scheme, {"env": "HOOK_SECRET"}, "s", "k", "")

    hooks.verified(hook, headers, body.encode(), now + 200)
    wrong: list[tuple[dict[str, str], str, int]] = [(headers, body + " ", now), ({}, body, now)]
    if now:
        wrong += [(headers, body, now + 301), (headers, body, now - 301)]
    for name, value in headers.items():
        wrong.append(({**headers, name: value[:-2] + "AA"}, body, now))
        wrong.append(({**headers, name: "ä"}, body, now))
    for given, text, at in wrong:
        with pytest.raises(RequestRefused):
            hooks.verified(hook, given, text.encode(), at)
    monkeypatch.setenv("HOOK_SECRET", WHSEC[:-4] + "AAAA")
    with pytest.raises(RequestRefused):
        hooks.verified(hook, headers, body.encode(), now)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("parcels", "standard"), ("pay", "stripe"), ("erp", "hmac"), ("chat", "slack")],
)
def test_a_delivery_starts_an_execution_once(hooked: Api, name: str, scheme: str) -> None:
    first = deliver(hooked, name, signed(scheme), 202)
    again = deliver(hooked, name, signed(scheme), 202)

    assert (first["began"], first["first"], again["first"]) == (True, True, False)
    assert again["execution"] == first["execution"]
    hooked.engine.resume(first["execution"])
    info = hooked.engine.executions.show(first["execution"])
    assert info["inputs"] == {"order": "A17"}
    assert info["started_by"] == f"hook:{name}"


def test_a_delivery_is_not_carried_out_again_under_another_id(
    hooked: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers that are not signed can be anybody's."""
    monkeypatch.setenv("NOT_SET_ANYWHERE", "secret")
    body = b'{"a": "A17", "id": 1}'
    signature = hmac.new(b"secret", body, hashlib.sha256).hexdigest()
    headers = {"x-hub-signature-256": f"sha256={signature}"}
    answers = [
        deliver(hooked, "lost", {**headers, "x-github-delivery": id}, 202, body)
        for id in ("one", "two", "")
    ]

    assert [answer["first"] for answer in answers] == [True, False, False]


def test_a_delivery_is_on_record_before_it_takes_effect(hooked: Api) -> None:
    hooked.records._write("ALTER TABLE audit RENAME TO lost", ())
    deliver(hooked, "erp", signed("hmac"), 503)
    assert hooked.engine.executions.list().items == []
    hooked.records._write("ALTER TABLE lost RENAME TO audit", ())
    deliver(hooked, "erp", signed("hmac"), 202)
    [entry] = hooked.records.audited(None, 5)
    assert (entry["user"], entry["path"], entry["status"]) == ("hook:erp", "/v1/hooks/erp", 202)


def test_a_delivery_cannot_be_dropped_by_a_message_with_its_id(hooked: Api) -> None:
    message = {"key": "A17", "data": {}, "id": "parcels m1"}
    assert "deliveries" in hooked("POST", "/v1/signals/arrived", message, code=422)["detail"]
    hooked("POST", "/v1/signals/arrived", {**message, "id": "parcel m1"}, code=202)
    assert deliver(hooked, "parcels", signed("standard"), 202)["first"]


def test_what_is_not_signed_is_refused_in_one_way_and_slowed_down(hooked: Api) -> None:
    old = signed("standard", at=time.time() - 1000)
    problems = [
        deliver(hooked, "parcels", signed("standard", b"{}"), 401),
        deliver(hooked, "parcels", old, 401),
        deliver(hooked, "parcels", {}, 401),
        deliver(hooked, "nothing", signed("hmac"), 401),
    ]
    assert len({problem["detail"] for problem in problems}) == 1
    assert hooked.engine.executions.list().items == []
    audit = hooked("GET", "/v1/audit", code=200)["items"]
    assert (audit[0]["path"], audit[0]["status"]) == ("/v1/hooks/nothing", 401)
    for _ in range(FAILURES):
        hooked.response("POST", "/v1/hooks/parcels", token=None, content=BODY)
    deliver(hooked, "parcels", {}, 429)
    deliver(hooked, "parcels", signed("standard"), 202)


@pytest.mark.parametrize(
    ("scheme", "secret"),
    [("hmac", ""), ("hmac", " \t\n"), ("standard", "whsec_"), ("standard", "whsec_no base64")],
)
def test_a_secret_that_is_no_key_makes_no_signature_valid(
    scheme: str, secret: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "secret"
    path.write_text(secret)
    hook = HookEntry("it", scheme, {"file": str(path)}, "s", "k", "x-sig")
    body, at = b"{}", str(int(time.time()))
    content = f"m1.{at}.".encode() + body if scheme == "standard" else body
    made = hmac.new(b"", content, hashlib.sha256).digest()
    headers = {
        "webhook-id": "m1",
        "webhook-timestamp": at,
        "webhook-signature": f"v1,{base64.b64encode(made).decode()}",
        "x-sig": made.hex(),
    }

    with pytest.raises(RequestRefused) as refused:
        hooks.verified(hook, headers, body, time.time())

    assert refused.value.status == 503
    assert "the secret of hook it cannot be used" in caplog.text


def test_what_is_signed_but_does_not_fit_is_refused(hooked: Api) -> None:
    for body, said in (
        (b"[1]", "must be a JSON object or a form"),
        (b"\xff", "must be a JSON object or a form"),
        (b'{"order": {"id": null}}', "no text or number at 'order.id'"),
        (b'{"order": 5}', "no text or number at 'order.id'"),
    ):
        problem = deliver(hooked, "erp", signed("hmac", body), 422, body)
        assert said in problem["detail"]
    body = b'{"type": "url_verification", "challenge": "abc"}'
    assert deliver(hooked, "chat", signed("slack", body), 202, body) == {"challenge": "abc"}
    missing = deliver(hooked, "lost", {"x-hub-signature-256": "sha256=00"}, 503)
    assert "NOT_SET_ANYWHERE" not in json.dumps(missing)


ENTRY = {"name": "a", "scheme": "github", "secret": {"env": "A"}, "signal": "s", "key": "k"}


@each_row(
    ("change", "said"),
    [
        ({"scheme": "md5"}, "'0.scheme' must be one of"),
        ({"secret": "plain"}, "secret names where it is"),
        ({"key": ""}, "'0.key' must have at least 1 character"),
        ({"header": "x"}, "for the scheme hmac"),
        ({"scheme": "hmac"}, "for the scheme hmac"),
        ({"name": "../a"}, "'0.name' must match"),
        ({"url": "x"}, "'0' has no 'url'"),
    ],
)
def test_an_entry_that_is_not_valid_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read("hooks", "settings.yaml", [{**ENTRY, **change}])


def test_a_project_declares_no_hooks_and_names_are_unique(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "settings.yaml").write_text(json.dumps({"hooks": [ENTRY]}))
    with pytest.raises(UsageError, match="a project cannot declare hooks"):
        load_settings(str(tmp_path))
    with pytest.raises(UsageError, match="two hooks have the name 'a'"):
        read("hooks", "settings.yaml", [ENTRY, ENTRY])

"""`smtp`, `slack` and `webhook`: what they send to a local server, and what they refuse."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from flowengine.kernel.graph.compiled import SecretText
from tests.envs.network.ways_out import Quiet, running
from tests.mail_server import Mail, mail_server

from .conftest import Bench

APPROVAL = {
    "id": "9bf9bb8dcaec1837",
    "execution": "it",
    "flow": "pay",
    "why": "reminded",
    "title": "Pay 5 € to <Müller>?\r\nBcc: eve@evil.example",
    "body": "Urgent.",
    "subject": {"amount": 5},
    "assignees": ["group:finance"],
    "due": "2026-11-24T09:00:00Z",
    "link": "https://flows.example.com/approvals/9bf9bb8dcaec1837",
}


@pytest.fixture
def mail() -> Iterator[str]:
    with mail_server() as address:
        yield address


def send(bench: Bench, server: str, args: Any, **settings: Any) -> Any:
    url = f"smtp+plain://{server}"
    configuration = {"url": url, "from": "Flows <f@x.example>", "to": ["a@x.example"]}
    input = {"args": args, "configuration": configuration | settings}
    return bench.do("smtp", {}, input, key="k")


def refused(bench: Bench, url: str, args: Any, **settings: Any) -> Any:
    configuration = {"url": url, "from": "f@x.example", "to": "a@x.example"} | settings
    input = {"args": args, "configuration": configuration}
    return bench.fail("smtp", {}, input, key="k")


# Shows V37
def test_mail_has_the_question_and_its_link(bench: Bench, mail: str) -> None:
    first = send(bench, mail, {"approval": APPROVAL}, to=["a@x.example", "Ben <b@x.example>"])
    again = send(bench, mail, {"approval": APPROVAL})
    (recipients, found), _ = Mail.got
    text = found.get_content()
    assert [line[9:21].strip("<>") for line in recipients] == ["a@x.example", "b@x.example"]
    assert first == again == {"id": found["Message-ID"]}  # a repeated one can be recognized
    assert found["Subject"] == "Reminder: Pay 5 € to <Müller>? Bcc: eve@evil.example"
    assert found["Bcc"] is None
    for part in ("Urgent.", '"amount": 5', "For: group:finance", APPROVAL["link"]):
        assert str(part) in text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"to": "a@x.example\r\nBcc: e@evil.example"}, "is not a mail address"),
        ({"from": "f@x.example\nX: y"}, "is not a mail address"),
        ({"to": "nobody"}, "is not a mail address"),
        ({"to": ""}, "is not a mail address"),
        ({"url": "smtp://127.0.0.1:port"}, "is not smtp://HOST"),
        ({"url": "127.0.0.1:2525"}, "is not smtp://HOST"),
        ({"url": "smtp+plain://mail.example", "password": "p"}, "over TLS only"),
        ({"url": "smtp://ana:p@mail.example"}, "has credentials"),
    ],
)
def test_what_is_no_address_is_refused_before_connecting(
    bench: Bench, mail: str, settings: dict[str, Any], message: str
) -> None:
    error = refused(bench, **{"url": f"smtp+plain://{mail}", "args": {"text": "hello"}, **settings})
    assert error["type"] == "ValidationError"
    assert message in error["message"]
    assert Mail.got == []


@pytest.mark.parametrize(
    ("word", "answer", "again"),
    [
        ("RCPT", "451 later", True),
        ("RCPT", "550 unknown", False),
        ("MAIL", "421 busy", True),
        ("DATA", "554 \x1b[31mspam", False),
    ],
)
def test_a_refusal_says_whether_another_attempt_may_help(
    bench: Bench, mail: str, word: str, answer: str, again: bool
) -> None:
    Mail.answers = {word: answer}
    error = refused(bench, f"smtp+plain://{mail}", {"text": "hello"})
    assert (error["type"], error.get("retryable", True)) == ("ToolError", again)
    assert answer[:3] in error["message"]
    assert "\x1b" not in error["message"]


def test_without_tls_nothing_is_sent_unless_the_flow_says_so(bench: Bench, mail: str) -> None:
    error = refused(bench, f"smtp://{mail}", {"text": "hello"}, password="secret", username="u")
    assert (error["type"], error["retryable"]) == ("ToolError", False)
    assert "STARTTLS" in error["message"]
    assert Mail.got == []


class Hook(Quiet):
    """Records the posted messages."""

    got: ClassVar[list[dict[str, Any]]]
    sent: ClassVar[list[tuple[dict[str, str], bytes]]]
    """Headers, by name in lower case, and bodies."""
    status: ClassVar[int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.sent.append(({name.lower(): text for name, text in self.headers.items()}, body))
        self.got.append(json.loads(body))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def hook() -> Iterator[str]:
    Hook.got, Hook.sent, Hook.status = [], [], 200
    with running(ThreadingHTTPServer(("127.0.0.1", 0), Hook)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}/services/T1/B2/s3cret"


# Shows V37
def test_slack_gets_text_that_links_only_to_the_page(bench: Bench, hook: str) -> None:
    hostile = {**APPROVAL, "title": "<!channel> <https://evil.example|the page>"}
    bench.do("slack", {}, {"args": {"approval": hostile}, "configuration": {"webhook": hook}})
    text = Hook.got[0]["text"]
    assert text.startswith("*Reminder: &lt;!channel&gt; &lt;https://evil.example|the page&gt;*")
    assert text.endswith(f"<{APPROVAL['link']}>")
    assert text.count("<") == 1


@pytest.mark.parametrize(("status", "again"), [(404, False), (429, True), (500, True)])
def test_errors_do_not_name_the_webhook(bench: Bench, hook: str, status: int, again: bool) -> None:
    Hook.status = status
    input = {"args": {"text": "hello"}, "configuration": {"webhook": hook}}
    error = bench.fail("slack", {}, input)
    assert (error["type"], error["retryable"]) == ("HttpError", again)
    assert f"status {status}" in error["message"]
    assert "s3cret" not in json.dumps(error)


ENDED = {
    "id": "it",
    "flow": "pay",
    "status": "failed",
    "error": {"type": "HttpError", "message": "no route\x1b"},
    "outputs": None,
    "started_at": "2026-11-29T02:38:55.686Z",
    "ended_at": "2026-11-29T02:38:56.760Z",
    "link": None,
}


def test_the_end_of_an_execution_is_a_message(bench: Bench, mail: str, hook: str) -> None:
    send(bench, mail, {"execution": ENDED})
    [(_, found)] = Mail.got
    assert found["Subject"] == "Execution failed: pay it"
    assert "HttpError: no route" in found.get_content()
    assert "flowengine show it" in found.get_content()
    assert "\x1b" not in found.get_content()
    link = {"link": "https://flows.example.com/executions/it"}
    args = {"execution": {**ENDED, "outputs": {"paid": 5}, "error": None, **link}}
    bench.do("slack", {}, {"args": args, "configuration": {"webhook": hook}})
    assert '"paid": 5' in Hook.got[0]["text"]
    assert Hook.got[0]["text"].endswith(f"<{link['link']}>")


SECRET = f"whsec_{base64.b64encode(b'0123456789abcdef01234567').decode()}"


def delivery(url: str, args: Any, secret: str = SECRET) -> Any:
    return {"args": args, "configuration": {"url": url, "secret": secret}}


@pytest.mark.parametrize(
    ("args", "type", "at"),
    [
        ({"execution": ENDED}, "execution.failed", "2026-11-29T02:38:56.760Z"),
        ({"approval": APPROVAL | {"since": "T"}}, "approval.reminded", "T"),
        ({"type": "order.paid", "data": {"n": 1}}, "order.paid", None),
    ],
)
def test_a_webhook_is_signed_and_repeats_its_id(
    bench: Bench, hook: str, args: Any, type: str, at: str | None
) -> None:
    first = bench.do("webhook", {}, delivery(hook, args), key="k")
    again = bench.do("webhook", {}, delivery(hook, args), key="k")
    for headers, body in Hook.sent:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        right = hmac.new(b"0123456789abcdef01234567", signed, hashlib.sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(right).decode()}"
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 600
        assert headers["content-type"] == "application/json"
    assert first == again == {"id": Hook.sent[0][0]["webhook-id"]}
    assert Hook.sent[0][1] == Hook.sent[1][1]
    data = args.get("data") or args.get("execution") or args["approval"]
    assert Hook.got[0] == {"type": type, **({"timestamp": at} if at else {}), "data": data}


@pytest.mark.parametrize(
    ("args", "secret", "message"),
    [({}, SECRET, "needs a 'type'"), ({"type": "a"}, "whsec_%%%", "not base64")],
)
def test_what_is_no_event_is_not_delivered(
    bench: Bench, hook: str, args: Any, secret: str, message: str
) -> None:
    error = bench.fail("webhook", {}, delivery(hook, args, secret))
    assert error["type"] == "ValidationError"
    assert message in error["message"]
    assert "%%%" not in error["message"]
    assert Hook.got == []


@pytest.mark.parametrize(("status", "again"), [(302, False), (410, False), (429, True)])
def test_a_webhook_that_redirects_or_refuses_has_not_taken_it(
    bench: Bench, hook: str, status: int, again: bool
) -> None:
    Hook.status = status
    error = bench.fail("webhook", {}, delivery(hook, {"type": "a"}))
    assert (error["type"], error["retryable"]) == ("HttpError", again)
    assert "s3cret" not in json.dumps(error)


def test_a_message_needs_a_text(bench: Bench) -> None:
    input = {"args": {}, "configuration": {"webhook": SecretText(["never sent"])}}
    assert bench.fail("slack", {}, input)["type"] == "ValidationError"

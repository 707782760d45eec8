"""`smtp` and `slack`: the requests that they send to a local server, and those that they refuse."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from flowengine.kernel.graph.compiled import SecretText
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
    configuration = {"server": server, "from": "Flows <f@x.example>", "to": ["a@x.example"]}
    input = {"args": args, "configuration": configuration | settings}
    return bench.do("smtp", {"security": "none"}, input, key="k")


def refused(bench: Bench, server: str, args: Any, security: str = "none", **settings: Any) -> Any:
    configuration = {"server": server, "from": "f@x.example", "to": "a@x.example"} | settings
    input = {"args": args, "configuration": configuration}
    return bench.fail("smtp", {"security": security}, input, key="k")


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
        ({"server": "127.0.0.1:port"}, "is not a host"),
        ({"server": "mail.example", "password": "p"}, "over TLS only"),
    ],
)
def test_what_is_no_address_is_refused_before_connecting(
    bench: Bench, mail: str, settings: dict[str, Any], message: str
) -> None:
    error = refused(bench, **{"server": mail, "args": {"text": "hello"}, **settings})
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
    error = refused(bench, mail, {"text": "hello"})
    assert (error["type"], error.get("retryable", True)) == ("ToolError", again)
    assert answer[:3] in error["message"]
    assert "\x1b" not in error["message"]


def test_without_tls_nothing_is_sent_unless_the_flow_says_so(bench: Bench, mail: str) -> None:
    error = refused(bench, mail, {"text": "hello"}, "starttls", password="secret", user="u")
    assert (error["type"], error["retryable"]) == ("ToolError", False)
    assert "STARTTLS" in error["message"]
    assert Mail.got == []


class Hook(BaseHTTPRequestHandler):
    """Records the posted messages."""

    got: ClassVar[list[dict[str, Any]]]
    status: ClassVar[int]

    def do_POST(self) -> None:
        self.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hook() -> Iterator[str]:
    Hook.got, Hook.status = [], 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/services/T1/B2/s3cret"
    server.shutdown()
    thread.join()
    server.server_close()


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


def test_a_message_needs_a_text(bench: Bench) -> None:
    input = {"args": {}, "configuration": {"webhook": SecretText(["never sent"])}}
    assert bench.fail("slack", {}, input)["type"] == "ValidationError"

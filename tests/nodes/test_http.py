"""`http` against a real local server."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from email.utils import formatdate
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest

import flowengine
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.compiled import SecretText
from tests.command_line import compile_flow
from tests.envs.network.ways_out import Quiet, running
from tests.received import RECEIVED

from .conftest import Bench

ERROR_TEXT = 64 * 1024
"""Maximum characters of a body in an error."""

JSON = {"Content-Type": "application/json; charset=utf-8"}
ZIPPED = {**JSON, "Content-Encoding": "gzip"}
Page = tuple[int, dict[str, str], bytes]
PAGES: dict[str, Page] = {
    "/later": (429, {"Retry-After": formatdate(4102444800, usegmt=True)}, b""),
    "/text": (200, {"Content-Type": "text/plain; charset=latin-1"}, "é".encode("latin-1")),
    "/broken": (200, JSON, b"{"),
    "/empty": (204, {}, b""),
    "/zip": (200, ZIPPED, gzip.compress(b'{"big": 1}')),
    "/torn": (200, ZIPPED, b"\x1f\x8btorn"),
    "/bomb": (200, ZIPPED, gzip.compress(b'"' + b"x" * (20 * 1024 * 1024) + b'"', 1)),
    "/files/report.pdf": (200, {"Content-Type": "application/pdf"}, b"%PDF \x00\xff"),
    "/to/echo": (302, {"Location": "/echo"}, b""),
    "/rot": (200, {"Content-Type": "text/plain; charset=rot13"}, b"uryyb"),
    "/puny": (200, {"Content-Type": "text/plain; charset=punycode"}, b"a-b"),
    "/null": (200, {"Content-Type": "text/plain; charset=utf\x08-8"}, b"hello"),
    "/deep": (200, JSON, b"[" * 100_000),
    "/never": (503, {"Retry-After": "Mon, 01 Jan 0001 00:00:00 +2359"}, b""),
    "/nan": (503, {"Retry-After": "nan"}, b""),
    "/nowhere": (302, {"Location": "http://[::1"}, b""),
    "/as-text": (200, {"Content-Type": "text/plain"}, b'{"a": 1}'),
    "/cookies": (
        200,
        {"Set-Cookie": "a=1; Expires=Wed, 21 Oct 2026\nb=2", "Link": "<a>\n<b>"},
        b"",
    ),
    "/jp": (200, {"Content-Type": "text/plain; charset=iso-2022-jp"}, b"\x1b$BF|K\\\x1b(B"),
    "/gb": (200, {"Content-Type": "text/plain; charset=gb2312"}, "镕①".encode("gb18030")),
    "/utf16": (200, {"Content-Type": "text/plain; charset=utf-16be"}, "größe".encode("utf-16-be")),
    "/ascii": (200, {"Content-Type": "text/plain; charset=us-ascii"}, b"10 \x80"),
    "/cut": (200, {"Content-Type": "text/plain; charset=latin1"}, "größe".encode() + b"\xc3"),
    "/lie": (200, {"Content-Type": "application/json; charset=latin-1"}, '["é"]'.encode()),
    "/old": (200, {"Content-Type": "application/json; charset=latin-1"}, b'["\xe9"]'),
    "/wide": (200, JSON, '["é"]'.encode("utf-16-be")),
    "/xml": (200, {"Content-Type": "text/xml"}, b"<?xml encoding='latin-1'?>\xe9"),
    "/lines": (200, {"Content-Type": "application/x-ndjson"}, b"1\n2\n"),
    "/blank": (200, JSON, b" \n"),
    "/half": (200, ZIPPED, gzip.compress(b'"arrived"')[:-8]),
    "/circle": (301, {"Location": "/circle"}, b""),
}


class Handler(Quiet):
    """Responds by path. `/echo` returns the request."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[dict[str, Any]]] = []
    paid: ClassVar[list[str]] = []
    waiting: ClassVar[threading.Event] = threading.Event()
    gone: ClassVar[threading.Event] = threading.Event()

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode(),
        }
        self.asked.append(asked)
        path = urlsplit(self.path).path
        page = self.page(path, asked)
        if page is None:
            return
        status, headers, data = page
        self.send_response(status)
        for name, value in headers.items():
            for line in value.split("\n"):
                self.send_header(name, line)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

    def page(self, path: str, asked: dict[str, Any]) -> Page | None:
        match path.split("/")[1:]:
            case ["echo"]:
                return 200, JSON, json.dumps(asked).encode()
            case ["mirror", *secret]:
                said = "/".join(secret).encode()
                if "kind=bytes" in self.path:
                    return 200, {"Content-Type": "application/zip"}, b"PK\0" + said
                return 400, {"Content-Type": "text/plain"}, b"x" * (ERROR_TEXT - 6) + said + b"xxxx"
            case ["status", code]:
                return int(code), {**JSON, "Retry-After": "7"}, b'{"error": "no"}'
            case ["away"]:
                port = self.headers["Host"].partition(":")[2]
                return 302, {"Location": f"http://localhost:{port}/echo"}, b""
            case ["pay", _]:  # the response to the first request gets lost
                key = asked["headers"]["idempotency-key"]
                if key not in self.paid:
                    self.paid.append(key)
                    self.hang()
                    return None
                return 200, JSON, json.dumps({"payments": len(self.paid)}).encode()
            case ["received", name]:
                return 200, JSON, RECEIVED[name].sent()
            case ["hang"]:
                self.hang()
                return None
        return PAGES[path]

    def hang(self) -> None:
        """Stay silent until the client disconnects."""
        self.waiting.set()
        self.close_connection = True
        if self.rfile.read(1) == b"":
            self.gone.set()


@pytest.fixture
def server() -> Iterator[str]:
    Handler.asked.clear()
    Handler.paid.clear()
    Handler.waiting.clear()
    Handler.gone.clear()
    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def get(bench: Bench, url: str, **input: Any) -> Any:
    return bench.do("http", {}, {"url": url, **input})


def test_query_is_added_to_that_of_the_url(bench: Bench, server: str) -> None:
    query = {"q": "a b&c", "n": 2, "yes": True, "tags": ["x", "y"], "none": None}

    asked = get(bench, f"{server}/echo?old=1", query=query)["body"]

    assert asked["path"] == "/echo?old=1&q=a+b%26c&n=2&yes=true&tags=x&tags=y"


@pytest.mark.parametrize(
    ("body", "headers", "kind", "sent"),
    [
        ({"a": "é"}, {}, "application/json", '{"a": "é"}'),
        ([1], {}, "application/json", "[1]"),
        ("text", {}, "text/plain; charset=utf-8", "text"),
        ("<x/>", {"content-type": "text/xml"}, "text/xml", "<x/>"),
        (b"raw", {"Content-Type": "application/x"}, "application/x", "raw"),
        (
            {"a": "1 2", "b": 3},
            {"Content-Type": "application/x-www-form-urlencoded"},
            "application/x-www-form-urlencoded",
            "a=1+2&b=3",
        ),
    ],
)
def test_body_is_sent_by_its_kind(
    bench: Bench, server: str, body: Any, headers: dict[str, str], kind: str, sent: str
) -> None:
    asked = get(bench, f"{server}/echo", method="POST", body=body, headers=headers)["body"]

    assert (asked["method"], asked["headers"]["content-type"]) == ("POST", kind)
    assert asked["body"] == sent


def test_credentials_make_the_authorization_header(bench: Bench, server: str) -> None:
    def sent(auth: dict[str, str]) -> str:
        header: str = get(bench, f"{server}/echo", auth=auth)["body"]["headers"]["authorization"]
        return header

    assert sent({"bearer": "t"}) == "Bearer t"
    assert sent({"username": "u", "password": "p:ä"}) == (
        f"Basic {base64.b64encode('u:p:ä'.encode()).decode()}"
    )


# Statuses


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (404, False), (408, True), (409, False), (429, True), (500, True), (503, True)],
)
def test_status_from_400_on_is_an_error_with_the_answer(
    bench: Bench, server: str, status: int, retryable: bool
) -> None:
    error = bench.fail("http", {}, {"url": f"{server}/status/{status}?q=1"})

    assert error["type"] == "HttpError"
    assert error["message"].startswith(f"GET {server}/status/{status}: status {status} (")
    assert error["data"]["status"] == status
    assert error["data"]["body"] == {"error": "no"}
    assert error["retryable"] is retryable
    assert error["retry_after"] == 7000


def test_time_to_wait_may_be_a_date(bench: Bench, server: str) -> None:
    error = bench.fail("http", {}, {"url": f"{server}/later"})

    assert error["retry_after"] > 10**9


# Redirects


def test_redirect_to_another_host_takes_no_credentials_along(bench: Bench, server: str) -> None:
    asked = get(
        bench,
        f"{server}/away",
        headers={"X-Token": "t", "Accept": "application/json"},
        auth={"bearer": "t"},
    )["body"]

    assert asked["headers"]["host"].startswith("localhost:")
    assert asked["headers"]["accept"] == "application/json"
    assert not {"x-token", "authorization"} & asked["headers"].keys()


def test_body_of_a_get_is_not_sent_on_to_where_it_redirects(bench: Bench, server: str) -> None:
    assert get(bench, f"{server}/away", body="private")["body"]["body"] == ""


def test_redirect_of_anything_else_is_the_answer(bench: Bench, server: str) -> None:
    answer = get(bench, f"{server}/to/echo", method="POST")

    assert (answer["status"], answer["headers"]["location"]) == (302, "/echo")
    assert len(Handler.asked) == 1


# Errors


def test_silent_server_is_a_timeout(
    bench: Bench, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowengine_nodes.http.READ_SECONDS", 0.05)

    assert bench.fail("http", {}, {"url": f"{server}/hang"})["type"] == "Timeout"
    assert Handler.gone.wait(60)


def test_answers_are_read_as_they_are_meant(bench: Bench, server: str) -> None:
    for path, body in (
        *(("gb", "镕①"), ("utf16", "größe"), ("ascii", "10 €"), ("cut", "größe\ufffd")),
        *(("jp", "日本"), ("lie", ["é"]), ("old", ["é"]), ("wide", ["é"]), ("blank", None)),
        *(("xml", "<?xml encoding='latin-1'?>é"), ("lines", "1\n2\n")),
    ):
        assert bench.do("http", {}, {"url": f"{server}/{path}"})["body"] == body, path
    broken = bench.fail("http", {}, {"url": f"{server}/half"})
    assert "breaks off" in broken["message"]
    assert (broken["data"]["status"], broken["data"]["body"]) == (200, '"arrived"')
    for name, case in RECEIVED.items():
        answer = bench.do("http", {}, {"url": f"{server}/received/{name}", "method": "POST"})
        assert answer["body"] == {"v": case.value}, name


@pytest.mark.parametrize(
    ("path", "response", "body"),
    [
        ("broken", "text", "{"),
        ("received/nan", "text", RECEIVED["nan"].text),
        ("received/byte_order_mark", "text", '{"v": "é"}'),
        ("as-text", "json", {"a": 1}),
        ("as-text", None, '{"a": 1}'),
        ("bomb", "file", 20 * 1024 * 1024 + 2),
        ("broken", "file", 1),
        ("files/report.pdf", "text", "%PDF \x00\ufffd"),
    ],
)
def test_the_flow_may_say_how_a_body_is_read(
    bench: Bench, server: str, path: str, response: str | None, body: Any
) -> None:
    answer = bench.do("http", {"as": response}, {"url": f"{server}/{path}"})["body"]

    assert (answer["size"] if response == "file" else answer) == body


def test_repeated_headers_are_kept_apart(bench: Bench, server: str) -> None:
    headers = bench.do("http", {}, {"url": f"{server}/cookies"})["headers"]

    assert headers["set-cookie"].split("\n") == ["a=1; Expires=Wed, 21 Oct 2026", "b=2"]
    assert headers["link"] == "<a>, <b>"


@pytest.mark.parametrize("path", ["deep", "never", "nan", "nowhere"])
def test_a_hostile_answer_is_an_error_of_http(bench: Bench, server: str, path: str) -> None:
    assert bench.fail("http", {}, {"url": f"{server}/{path}"})["type"] == "HttpError"


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("broken", "cannot be read as JSON"),
        ("bomb", "has more than 8 MiB"),
        ("torn", "cannot be unpacked"),
    ],
)
def test_answer_that_cannot_be_used_is_an_error(
    bench: Bench, server: str, path: str, complaint: str
) -> None:
    error = bench.fail("http", {}, {"url": f"{server}/{path}"})

    assert complaint in error["message"]
    assert error["retryable"] is False


@pytest.mark.parametrize(
    ("input", "complaint"),
    [
        ({"url": "ftp://x/y"}, "starts with https:// or http://"),
        ({"url": "example.com"}, "starts with https:// or http://"),
        ({"url": "http://[::1/x"}, "this is not a valid request"),
        ({"url": "http://127.0.0.1/", "headers": {"X": "a\r\nY: b"}}, "contains a line break"),
        ({"url": "http://127.0.0.1/", "headers": {"X": "ü"}}, "this is not a valid request"),
        ({"url": "http://127.0.0.1/", "body": {"x": float("inf")}}, "this is not a valid request"),
    ],
)
def test_what_makes_no_request_is_refused(
    bench: Bench, input: dict[str, Any], complaint: str
) -> None:
    error = bench.fail("http", {}, input)

    assert error["type"] == "ValidationError"
    assert complaint in error["message"]


@pytest.mark.parametrize(
    "url", ["http://user:{}@127.0.0.1/", "http://127.0.0.1:{}/", "http://{}.\x00/"]
)
def test_no_piece_of_a_secret_is_in_what_a_parser_says(
    bench: Bench, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "first/second'third")
    before, after = url.split("{}")

    error = bench.fail(
        "http", {}, {"url": SecretText([before, ["KEY"], after])}, secrets={"KEY": {"env": "KEY"}}
    )

    assert error["message"].startswith("this is not a valid request: its url ")
    assert not any(piece in error["message"] for piece in ("first", "second", "third"))


def test_secrets_are_masked_in_answers_and_errors(
    bench: Bench, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "s3cr3t/value")
    secrets = {"KEY": {"env": "KEY"}}
    key = SecretText([["KEY"]])
    input = {
        "headers": {"X-Key": SecretText(["key=", ["KEY"]])},
        "query": {"key": key},
        "auth": {"username": "u", "password": key},
    }

    answer = bench.do("http", {}, {"url": f"{server}/echo", **input}, secrets=secrets)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = SecretText([f"http://127.0.0.1:{free.getsockname()[1]}/", ["KEY"], "/x"])
    error = bench.fail("http", {}, {"url": nowhere}, secrets=secrets)

    assert Handler.asked[0]["headers"]["x-key"] == "key=s3cr3t/value"
    assert answer["body"]["headers"]["x-key"] == "key=***"
    assert answer["body"]["path"] == "/echo?key=***"
    assert "***" in answer["body"]["headers"]["authorization"]
    assert "***" in error["message"]
    encoded = base64.b64encode(b"u:s3cr3t/value").decode()
    for told in (str(answer), str(error)):
        assert "s3cr3t" not in told
        assert encoded not in told


def test_a_body_is_masked_before_it_is_cut_or_kept(
    bench: Bench, server: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KEY", "s3cr3t/value")
    secrets = {"KEY": {"env": "KEY"}}
    caplog.set_level(logging.DEBUG)
    url = SecretText([f"{server}/mirror/", ["KEY"]])

    failed = bench.fail("http", {}, {"url": url}, secrets=secrets)
    kept = bench.fail("http", {}, {"url": url, "query": {"kind": "bytes"}}, secrets=secrets)

    assert failed["data"]["body"].endswith("x***xxx")
    assert len(failed["data"]["body"]) == ERROR_TEXT
    assert "contains the secret KEY" in kept["message"]
    assert "httpcore2" in caplog.text
    for told in (caplog.text, str(failed), str(kept)):
        assert "s3cr3t" not in told


def test_withdrawn_request_is_given_up(bench: Bench, server: str) -> None:
    input = {"url": f"{server}/hang"}
    runner = bench.runner("http", {}, input, {})

    async def withdraw() -> None:
        task = asyncio.create_task(
            runner.attempt(bench.execution, Run(1, 1, 0, "s", None, input, None))
        )
        await asyncio.to_thread(Handler.waiting.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(withdraw())

    assert Handler.gone.wait(60)


# The idempotency key


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_what_may_change_something_has_the_key_of_its_activation(
    bench: Bench, server: str, method: str
) -> None:
    keys = {
        get(bench, f"{server}/echo", method=method)["body"]["headers"]["idempotency-key"]
        for _ in range(2)
    }

    assert len(keys) == 1
    assert len(keys.pop()) == 64


def test_what_only_asks_has_no_key(bench: Bench, server: str) -> None:
    assert "idempotency-key" not in get(bench, f"{server}/echo")["body"]["headers"]


@pytest.mark.parametrize(
    ("key", "sent"), [("order 7", "order 7"), ("a\r\nb: 100%", "a%0D%0Ab: 100%25"), ("ü", "%C3%BC")]
)
def test_the_key_that_a_tool_names_is_sent(bench: Bench, server: str, key: str, sent: str) -> None:
    input = {"url": f"{server}/echo", "method": "POST"}

    answer = bench.do("http", {}, input, key=key)

    assert answer["body"]["headers"]["idempotency-key"] == sent


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ({"Idempotency-Key": None, "X-Request-Id": "k"}, {"x-request-id": "k"}),
        ({"Idempotency-Key": None}, {}),
        ({"idempotency-key": "mine"}, {"idempotency-key": "mine"}),
    ],
)
def test_the_header_of_the_key_is_what_the_flow_says(
    bench: Bench, server: str, headers: Any, sent: Any
) -> None:
    input = {"url": f"{server}/echo", "method": "POST", "headers": headers}

    told = bench.do("http", {}, input, key="k")["body"]["headers"]

    names = ("x-request-id", "idempotency-key")
    assert {name: told[name] for name in names if name in told} == sent


@pytest.mark.endurance
def test_after_a_kill_the_server_knows_the_request_again(server: str, tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(
        "flowengine: 1\nid: flow\ninputs: {order: {type: string}}\ntools:\n"
        "  pay:\n"
        f"    http: {{method: POST, url: '{server}/pay/${{{{ idempotency_key }}}}'}}\n"
        "    args: {type: object, properties: {order: {type: string}}}\n"
        "    idempotency_key: 'order ${{ args.order }}'\n"
        "    effect: idempotent\n"
        "steps: [{id: pay, call: pay, with: {order: '${{ inputs.order }}'}}]\n"
        "outputs: {said: '${{ steps.pay.output.body }}'}\n"
    )
    program = (
        "import flowengine, sys\n"
        "with flowengine.Engine('store') as engine:\n"
        "    engine.run('flow.yaml', {'order': '7'}, id='one')\n"
    )
    compile_flow(path)
    engine = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path)
    assert Handler.waiting.wait(60)
    engine.kill()
    engine.wait()

    with flowengine.Engine(tmp_path / "store") as again:
        result = again.resume("one")

    assert result.outputs == {"said": {"payments": 1}}
    assert Handler.paid == ["order 7"]
    assert {asked["path"] for asked in Handler.asked} == {"/pay/order%207"}

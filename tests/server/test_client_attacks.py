# Shows V38
"""Servers that answer garbage, too much or nothing, and addresses that lead elsewhere (V38)."""

from __future__ import annotations

import asyncio
import datetime
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flowengine import AsyncClient, Client
from flowengine.client import client as client_module
from flowengine.client import event_lines
from flowengine.errors import FlowEngineError, StoreError, UsageError
from tests.certificates import own_certificate
from tests.replacing import Limits

URL = "https://flows.example.com"
TOKEN = "fe_secret"
EMPTY = b'{"items": [], "next": null}'
GARBAGE = [
    b"",
    b"<html>",
    b"null",
    b"7",
    b"1e999",
    b'"text"',
    b"[]",
    b"{}",
    b'"\xff"',
    b"[" * 100_000,
    b'{"items": ' * 50_000,
    b'{"items": 5, "next": null}',
    b'{"items": [7], "next": 5}',
    b'{"items": [{}], "next": {}, "token": {}, "execution": [], "removed": 3, "user": null}',
]
PROBLEMS = [
    {"code": "FlowFileError", "detail": "d", "errors": 7},
    {"code": "FlowFileError", "detail": ["d"], "errors": [7, {"x": 1}]},
    {"code": "__builtins__", "detail": "d", "hint": {"a": 1}},
    {"code": "Hint", "detail": "d", "cli_hint": 5},
    {"code": ["x"], "detail": None},
    {"code": "Conflict", "detail": "d" * 100_000, "standing": [[]]},
]
CALLS: list[Callable[[Client], object]] = [
    lambda it: it.user(),
    lambda it: it.tokens(),
    lambda it: it.create_token("a"),
    lambda it: it.flows.list(),
    lambda it: it.flows.starts(),
    lambda it: it.flows.versions(),
    lambda it: it.flows.undeploy("a"),
    lambda it: it.flows.deploy_version("a@1"),
    lambda it: it.flows.show("a"),
    lambda it: it.executions.graph("e"),
    lambda it: it.flows.definition("a"),
    lambda it: it.flows.trigger("a"),
    lambda it: it.flows.record_past("a", *[datetime.datetime.now(datetime.UTC)] * 2),
    lambda it: it.start("a"),
    lambda it: it.executions.list(),
    lambda it: it.executions.find("e"),
    lambda it: it.executions.result("e"),
    lambda it: it.executions.why("e"),
    lambda it: it.executions.cancel("e"),
    lambda it: it.executions.upgrade("a", "e"),
    lambda it: it.signal("s", key="k"),
    lambda it: it.approvals.list(),
    lambda it: it.approvals.approve("w"),
    lambda it: it.approvals.decide("w", "approve"),
    lambda it: it.approvals.grants(),
    lambda it: list(it.executions.events("e")),
    lambda it: list(it.executions.all_events()),
    lambda it: list(it.executions.stream("e")),
]


@pytest.fixture(autouse=True)
def _no_pauses(limits: Limits) -> None:
    limits(client_module, _PAUSES=(), _FOLLOW_SECONDS=0)


def answering(content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Client:
    """Return a client whose requests all receive this answer."""
    answer = httpx2.MockTransport(
        lambda _: httpx2.Response(status, content=content, headers=headers)
    )
    return Client(URL, TOKEN, transport=answer)


@pytest.mark.parametrize("content", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_an_error_of_the_engine(content: bytes) -> None:
    refused = 0
    with answering(content) as client:
        for call in CALLS:
            try:
                call(client)
            except FlowEngineError:
                refused += 1
    assert refused > len(CALLS) / 2


@pytest.mark.parametrize("problem", PROBLEMS, ids=range(len(PROBLEMS)))
@pytest.mark.parametrize("status", [400, 409, 500])
def test_problems_of_another_form_are_errors_of_the_engine(
    problem: dict[str, Any], status: int
) -> None:
    with (
        answering(json.dumps(problem).encode(), status) as client,
        pytest.raises(FlowEngineError) as refused,
    ):
        client.executions.list()
    assert 0 < len(refused.value.message) < 5000
    assert isinstance(refused.value.hint or "", str)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    seen: list[httpx2.URL] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url)
        return httpx2.Response(status, content=EMPTY, headers={"location": "https://evil.example/"})

    with Client(URL, TOKEN, transport=httpx2.MockTransport(answer)) as client:
        for call in (client.executions.list, lambda: client.start("a"),
                     lambda: list(client.executions.stream("e"))):  # fmt: skip
            with pytest.raises(StoreError, match=r"redirects to https://evil\.example/"):
                call()
    assert {url.host for url in seen} == {"flows.example.com"}


def test_a_compressed_answer_is_refused_before_it_grows() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers["accept-encoding"])
        return httpx2.Response(200, content=b"", headers={"content-encoding": "br"})

    with Client(URL, TOKEN, transport=httpx2.MockTransport(answer)) as client:
        for call in (client.user, lambda: list(client.executions.stream("e"))):
            with pytest.raises(StoreError, match="compressed"):
                call()
    assert asked == ["identity"] * 2


EVENTS = {"content-type": "text/event-stream"}


@pytest.mark.parametrize(
    ("content", "headers", "said"),
    [
        (b"<html>", {"content-type": "text/html"}, "without JSON"),
        (b"{}", {}, "not a stream of events"),
        (b"event: entry\ndata: {\n\n", EVENTS, "cannot be understood"),
        (b"event: entry\ndata: 7\n\n", EVENTS, "cannot be understood"),
        (b"event: entry\ndata: {}\n\n", EVENTS, "cannot be understood"),
        (b"event: part\ndata: []\n\n", EVENTS, "cannot be understood"),
        (b'event: entry\ndata: {"seq": "x"}\n\n', EVENTS, "cannot be understood"),
        (b"event: \xff\n\n", EVENTS, "cannot be understood"),
        (b"data: " + b"x" * 2000, EVENTS, "more than 1,000 bytes"),
    ],
)
def test_a_stream_of_something_else_is_refused(
    content: bytes, headers: dict[str, str], said: str, limits: Limits
) -> None:
    limits(event_lines, LONGEST_LINE=1000)
    with answering(content, headers=headers) as client, pytest.raises(StoreError, match=said):
        list(client.executions.stream("e"))

    async def main() -> None:
        transport = httpx2.MockTransport(
            lambda _: httpx2.Response(200, content=content, headers=headers)
        )
        async with AsyncClient(URL, TOKEN, transport=transport) as client:
            async for _ in client.executions.stream("e"):
                pass

    with pytest.raises(StoreError, match=said):
        asyncio.run(main())


def test_a_stream_that_ends_at_once_is_asked_for_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    pauses: list[float] = []
    sleep = time.sleep

    def pause(seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            sleep(seconds)  # a thread that an earlier test has left
            return
        pauses.append(seconds)
        if len(pauses) == 3:
            raise TimeoutError

    limits(client_module, _FOLLOW_SECONDS=0.5)
    monkeypatch.setattr(time, "sleep", pause)
    with answering(b"event: entry\ndata: {", headers=EVENTS) as client, pytest.raises(TimeoutError):
        list(client.executions.stream("e"))
    assert pauses == [0.5] * 3


def test_lines_of_a_stream_end_at_line_feeds_only() -> None:
    text = json.dumps({"seq": 0, "text": "a\u2028b\x85c"}, ensure_ascii=False)
    content = f"event: entry\r\ndata: {text}\r\n\r\nevent: end\ndata: {{}}\n\n".encode()
    with answering(content, headers=EVENTS) as client:
        [event] = client.executions.stream("e")
    assert event.data["text"] == "a\u2028b\x85c"


@pytest.mark.parametrize(
    ("content", "call"),
    [
        (b'{"items": [{"seq": 1}]}', lambda it: list(it.executions.events("e", from_seq=2))),
        (b'{"items": [], "next": 1}', lambda it: list(it.executions.all_events(after=2))),
        (b'{"items": [], "next": "a"}', lambda it: it.executions.list(after="a")),
        (b'{"items": [], "next": "a"}', lambda it: it.approvals.list(after="a")),
    ],
)
def test_a_page_that_leads_back_is_refused(
    content: bytes, call: Callable[[Client], object]
) -> None:
    with answering(content) as client, pytest.raises(StoreError, match="cannot be understood"):
        call(client)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:secret@flows.example.com",
        "https://flows.example.com?x=1",
        "https://flows.example.com#x",
        "https://flows example.com",
        "https://flows.example.com:99999",
        "https://[::1",
        "https://a\x00b",
        "https://a\nb",
        "http://127.0.0.1\\@evil.example",
        "http://127.0.0.1@evil.example",
        "http://localhost.evil.example",
        "//flows.example.com",
    ],
)
def test_an_address_that_is_not_clear_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"is not the address of a server|in plain text"):
        Client(url, TOKEN)


@contextmanager
def listening(
    answer: bytes, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[int, list[bytes]]]:
    """Give each connection the same bytes. Yield the port, and what it was sent."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                    with (
                        connection
                        if tls is None
                        else tls.wrap_socket(connection, server_side=True) as one
                    ):
                        seen.append(one.recv(65_536))
                        one.sendall(answer)
                except ssl.SSLError:
                    continue
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1], seen
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def answered(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "Server disconnected"),
        (b"\x00\x01garbage\r\n\r\n", "illegal status line"),
        (answered(b"x" * 100)[:-50], "peer closed connection"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000, "too long"),
    ],
)
def test_a_server_that_breaks_off_is_named(raw: bytes, said: str) -> None:
    with listening(raw) as (port, _), Client(f"http://127.0.0.1:{port}", TOKEN) as client:
        with pytest.raises(StoreError, match=f"no answer from http://127.0.0.1:{port}: .*{said}"):
            client.executions.list()
        with pytest.raises(StoreError, match=f"no answer from http://127.0.0.1:{port}"):
            list(client.executions.stream("e"))


def test_no_proxy_of_the_environment_receives_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with listening(answered(EMPTY)) as (proxy, stolen), listening(answered(EMPTY)) as (port, seen):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        with Client(f"http://127.0.0.1:{port}", TOKEN) as client:
            assert client.executions.list().items == []
    assert TOKEN.encode() in seen[0]
    assert stolen == []


def test_without_a_valid_certificate_nothing_is_sent(tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own_certificate(tmp_path, "127.0.0.1"))
    for context, said in ((tls, "SSL_CERT_FILE"), (None, "does it speak TLS")):
        with (
            listening(answered(EMPTY), context) as (port, seen),
            Client(f"https://127.0.0.1:{port}", TOKEN) as client,
            pytest.raises(StoreError, match="no protected connection") as refused,
        ):
            client.executions.list()
        assert said in (refused.value.hint or "")
        assert TOKEN.encode() not in b"".join(seen)

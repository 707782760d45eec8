"""Servers with invalid HTTP: wrong types and sizes, endless bodies, no HTTP at all (E50, E55)."""

from __future__ import annotations

import gzip
import json
import re
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import pytest

from flowengine.sdk import StepError
from flowengine.sdk.texts.visible_text import printable
from flowengine_envs.mcp.session import McpSession
from tests.endurance import SAMPLE
from tests.envs.mcp.conftest import Open
from tests.envs.mcp.hostile import Hostile
from tests.envs.mcp.test_hostile_servers import LONGEST, PROMPT
from tests.received import RECEIVED

ENDLESS: dict[str, Any] = {"seconds": 1.0, "error": "Timeout", "told": "no answer in 1 s"}
LARGEST = 2_000_000
TOO_LARGE = r"2,000,000 bytes \(limits.output\)"


class Case(NamedTuple):
    """The response of the server to a tool call.

    Attributes:
        answer: Pieces of the response. The connection is closed after the last one.
        told: Pattern that the error message must match.
        error: Name of the error raised to the caller.
        seconds: How long the client waits.
    """

    answer: Callable[[str, str], Iterator[bytes]]
    told: str = ""
    error: str = "ToolError|EnvironmentLost|LimitExceeded"
    seconds: float = 120


def _head(kind: str | None, *more: str, status: str = "200 OK", length: object = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", "connection: close", *more]
    lines += [] if kind is None else [f"content-type: {kind}"]
    lines += [] if length is None else [f"content-length: {length}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _page(kind: str | None, body: bytes, *more: str, told: str = "", **options: Any) -> Case:
    def answer(id: str, url: str) -> Iterator[bytes]:
        yield _head(kind, *(each.replace("URL", url) for each in more), **options)
        yield body.replace(b"ID", id.encode())

    return Case(answer, told)


@cache
def _bomb() -> bytes:
    return gzip.compress(GOOD[:-1] + b" " * 50_000_000 + b"}", 1)


def _packed(kind: str) -> Case:
    def answer(id: str, url: str) -> Iterator[bytes]:
        yield _head(kind, "content-encoding: gzip")
        yield _bomb()

    return Case(answer, "gzip")


def _raw(*pieces: bytes) -> Case:
    return Case(lambda id, url: iter(pieces), "may or may not have acted")


def _endless(
    kind: str, piece: bytes, told: str = TOO_LARGE, first: bytes = b"", pause: float = 0
) -> Case:
    def answer(id: str, url: str) -> Iterator[bytes]:
        yield _head(kind) + first
        for _ in count():
            yield piece
            time.sleep(pause)  # the server is slow

    return Case(answer, told)


GOOD = b'{"jsonrpc": "2.0", "id": ID, "result": {"content": []}}'
JSON = "application/json"
EVENTS = "text/event-stream"

CASES: dict[str, Case] = {
    "type-html": _page("text/html", b"<html>Log in</html>", told="text/html"),
    "type-binary": _page("application/octet-stream", GOOD),
    "type-none": _page(None, GOOD),
    "type-nonsense": _page("\x1b[2J;;;=", GOOD),
    "type-charset": _page("application/json; charset=utf-7", b"+AHs-"),
    "type-of-the-other": _page(EVENTS, GOOD),
    "type-of-the-other-2": _page(JSON, b"data: " + GOOD + b"\n\n"),
    "encoding-bomb": _packed(JSON),
    "encoding-bomb-events": _packed(EVENTS),
    "encoding-unknown": _page(JSON, GOOD, "content-encoding: rot13", told="rot13"),
    "body-empty": _page(JSON, b""),
    "body-empty-events": _page(EVENTS, b""),
    "body-short": _page(JSON, GOOD, length=1000, told="may or may not have acted"),
    "body-negative": _page(JSON, GOOD, length=-5),
    "body-length-nonsense": _page(JSON, GOOD, length="many"),
    "body-chunks-broken": _page(JSON, b"zz\r\n" + GOOD, "transfer-encoding: chunked"),
    "status-202": _page(None, b"", status="202 Accepted"),
    "status-204": _page(None, b"", status="204 No Content"),
    "status-299": _page(JSON, b"[]", status="299 Odd"),
    "status-304": _page(None, b"", status="304 Not Modified"),
    "status-400": _page("text/html", b"<h1>bad</h1>", status="400 Bad", told="HTTP status 400"),
    "status-401": _page(
        None, b"", "www-authenticate: \x1b[2J", status="401 Who", told="HTTP status 401"
    ),
    "status-405": _page(JSON, b'{"error": 5}', status="405 No", told="HTTP status 405"),
    "status-500": _page(JSON, b"x" * 5_000_000, status="500 \x1b[2J", told=TOO_LARGE),
    "status-999": _page(JSON, GOOD, status="999 Odd"),
    "redirect-self": _page(None, b"", "location: URL", status="307 There"),
    "redirect-file": _page(
        None, b"", "location: file:///etc/passwd", status="307 There", told="not followed"
    ),
    "redirect-nonsense": _page(None, b"", "location: http://[::1", status="307 There"),
    "redirect-other": _page(None, b"", "location: http://127.0.0.1:9/", status="302 There"),
    "session-odd": _page(JSON, b"7", f"mcp-session-id: {'x' * 5000}\x01"),
    "http-garbage": _raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "http-nothing": _raw(),
    "http-binary": _raw(bytes(range(256)) * 100),
    "http-headers": _raw(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000),
    "http-long-header": _raw(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 5_000_000 + b"\r\n\r\n"),
    "events-odd": _page(EVENTS, b"event: \xff\ndata: {\n\nid: \0\nretry: 99999999999\n\n"),
    "endless-page": _endless(JSON, b" " * 65536),
    "endless-event": _endless(EVENTS, b"x" * 65536, first=b"data: "),
    "endless-lines": _endless(EVENTS, b"data: " + b"x" * 1000 + b"\n"),
    "endless-comments": _endless(EVENTS, b": hello\n\n" * 100, pause=0.01)._replace(**ENDLESS),
    "endless-events": _endless(EVENTS, b"event: message\ndata: {}\n\n", pause=0.01)._replace(
        seconds=1.0, told="is not a message"
    ),
    "endless-drip": _endless(JSON, b" ", pause=0.05)._replace(**ENDLESS),
    "endless-silence": _endless(EVENTS, b"", pause=0.05)._replace(**ENDLESS),
    "endless-headers": Case(
        lambda id, url: (b"HTTP/1.1 200 OK\r\n" if n == 0 else b"a: b\r\n" for n in count())
    ),
}


class Raw:
    """A server that responds to a tool call with arbitrary bytes."""

    def __init__(self) -> None:
        self.how = ""
        self.case: Case | None = None
        """Another response than that of `how`."""
        hostile = Hostile(lambda: "proper")
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                message = self._asked()
                if message is None:
                    return
                case = outer.case or CASES.get(outer.how)
                if case is not None and message["method"] == "tools/call":
                    pieces = case.answer(json.dumps(message["id"]), outer.url)
                else:
                    body = (hostile.answer(message) or "").encode()
                    status = "200 OK" if body else "202 Accepted"
                    pieces = iter([_head(JSON, status=status, length=len(body)), body])
                try:
                    for piece in pieces:
                        self.wfile.write(piece)
                        if outer.ended.is_set():
                            return
                except OSError:
                    return

            def _asked(self) -> dict[str, Any] | None:
                method = self.rfile.readline().split(b" ")[0]
                headers = {}
                while line := self.rfile.readline().strip():
                    name, _, value = line.partition(b":")
                    headers[name.lower()] = value.strip()
                body = self.rfile.read(int(headers.get(b"content-length", b"0")))
                if method == b"POST":
                    return dict(json.loads(body))
                self.wfile.write(_head(None, status="405 No", length=0))
                return None

        self.ended = threading.Event()
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/mcp"

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Raw]:
    made = Raw()
    yield made
    made.close()


@pytest.mark.parametrize("kind", [JSON, EVENTS])
def test_answers_are_read_as_they_are_meant(server: Raw, opened: Open, kind: str) -> None:
    session = opened(name="raw", url=server.url, mode="legacy")
    for name, case in RECEIVED.items():
        text = GOOD.decode().replace("[]", f'[], "structuredContent": {case.text}')
        if kind == EVENTS:
            text = f"event: message\r\ndata: {text}\r\n\r\n"
        server.case = _page(kind, text.encode())
        assert session.call_tool("ok").structured == {"v": case.value}, name


def faults(session: McpSession, case: Case) -> list[str]:
    """Return the differences between how a call ended and how it should have."""
    begun = time.monotonic()
    try:
        given = session.call_tool("ok", timeout=case.seconds)
    except StepError as error:
        took = time.monotonic() - begun
        lines = error.message.split("\n")
        kind = type(error).__name__
        found = {
            f"is a {kind}": re.fullmatch(case.error, kind) is None,
            "does not say which server": "'bad'" not in error.message,
            "does not say what is wrong": re.search(case.told, error.message) is None,
            "shows the insides of a library": re.search(
                "pydantic|Traceback|<class|httpx|TaskGroup", error.message
            ),
            "controls terminals": [printable(line) for line in lines] != lines,
            f"has {len(error.message)} characters": len(error.message) > LONGEST,
            f"took {took:.1f} s": took > PROMPT,
        }
        return [f"{what}: {error.message[:500]}" for what, wrong in found.items() if wrong]
    return [f"no error, but {given!r}"]


@pytest.mark.endurance
@pytest.mark.parametrize("part", range(SAMPLE))
# Shows E55
def test_http_that_is_nonsense(
    opened: Open, server: Raw, caplog: pytest.LogCaptureFixture, part: int
) -> None:
    limits = {"output": LARGEST, "time": 120}

    def session() -> McpSession:
        return opened(name="bad", limits=limits, url=server.url, mode="legacy")

    found = {}
    for how, case in [*CASES.items()][part::SAMPLE]:
        server.how = how
        found[how] = faults(session(), case)
        server.how = ""
        assert session().call_tool("ok").text == "ok", f"after {how} a session goes on"

    assert {how: wrong for how, wrong in found.items() if wrong} == {}
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []

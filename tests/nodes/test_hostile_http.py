"""`http` against servers whose responses are unusual, contradictory, cut off or no HTTP at all."""

from __future__ import annotations

import gzip
import socket
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rows import each_row

from .conftest import Bench

OK = b"HTTP/1.1 200 OK\r\n"
JSON = b"Content-Type: application/json\r\n"
TEXT = b"Content-Type: text/plain"
CHUNKED = JSON + b"Transfer-Encoding: chunked\r\n\r\n"
ANNOUNCED = 20 * b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"


def sized(body: bytes, head: bytes = JSON, status: bytes = OK) -> bytes:
    return status + head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def packed(body: bytes, name: bytes) -> bytes:
    return sized(body, JSON + b"Content-Encoding: " + name + b"\r\n")


def bare(data: bytes, window: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, window)
    return packer.compress(data) + packer.flush()


def in_pieces(data: bytes) -> bytes:
    return b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n"


MEMBERS = gzip.compress(b"[1,") + gzip.compress(b"2]")
READ: dict[str, tuple[bytes, Any]] = {
    "trailers": (OK + CHUNKED + b"3;x=y\r\n[1,\r\n2\r\n2]\r\n0\r\nX-A: b\r\n\r\n", [1, 2]),
    "chunked-and-length": (OK + b"Content-Length: 9\r\n" + CHUNKED + b"3\r\n[1]\r\n0\r\n\r\n", [1]),
    "longer-than-declared": (sized(b"[1]") + b"more", [1]),
    "length-twice": (OK + JSON + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\n[1]", [1]),
    "no-length": (OK + JSON + b"\r\n[1]", [1]),
    "members": (packed(MEMBERS, b"gzip"), [1, 2]),
    "members-in-pieces": (
        OK + b"Content-Encoding: gzip\r\n" + CHUNKED + in_pieces(MEMBERS),
        [1, 2],
    ),
    "padding": (packed(gzip.compress(b"[1]") + b"\0\0", b"GZIP"), [1]),
    "not-packed": (packed(b"[1]", b"gzip"), [1]),
    "not-packed-either": (packed(b"5", b"gzip"), 5),
    "packed-nothing": (packed(b"", b"gzip"), None),
    "zlib-as-gzip": (packed(zlib.compress(b"[1]"), b"gzip"), [1]),
    "no-wrapper": (packed(bare(b"[1]", -15), b"deflate"), [1]),
    "small-window": (packed(bare(b"[1]", 9), b"deflate"), [1]),
    "encoding-of-text": (packed(b"[1]", b"utf-8"), [1]),
    "encoding-of-a-store": (packed(b"[1]", b"aws-chunked"), [1]),
    "type-twice": (sized(b"[1]", b"Content-Type: text/html\r\n" + JSON), [1]),
    "type-twice-text": (sized(b"[1]", JSON + TEXT + b"\r\n"), "[1]"),
    "unknown-charset": (sized("é".encode(), TEXT + b"; charset=klingon\r\n"), "é"),
    "charset-of-another": (sized("é".encode(), TEXT + b"; charset=ascii\r\n"), "é"),
    "mark": (sized("\ufeffé".encode("utf-16-le"), TEXT + b"; charset=latin-1\r\n"), "é"),
    "only-a-mark": (sized(b"\xef\xbb\xbf"), None),
    "empty": (sized(b""), None),
    "no-content": (sized(b"[1]", status=b"HTTP/1.1 204 None\r\n"), None),
    "hints": (ANNOUNCED + b"HTTP/1.1 100 Continue\r\n\r\n" + sized(b"[1]"), [1]),
    "line-feeds": (sized(b"[1]").replace(b"\r\n", b"\n"), [1]),
    "long-header": (sized(b"[1]", JSON + b"X: " + b"a" * 50_000 + b"\r\n"), [1]),
    "many-headers": (sized(b"[1]", JSON + b"X: a\r\n" * 2_000), [1]),
    "to-the-same-twice": (b"HTTP/1.1 302 x\r\n" + 2 * b"Location: /empty\r\n" + b"\r\n", None),
}
"""Response → its body."""
BROKEN: dict[str, tuple[bytes, str, Any]] = {
    "chunk-cut": (OK + CHUNKED + b"3\r\n[1,\r\n20\r\n2", "without sending complete", "[1,2"),
    "chunks-cut": (OK + CHUNKED + b"3\r\n[1]\r\n", "without sending complete", "[1]"),
    "chunk-size": (OK + CHUNKED + b"3\r\n[1]\r\nzz\r\n", "illegal chunk header", "[1]"),
    "shorter": (OK + JSON + b"Content-Length: 9\r\n\r\n[1]", "without sending complete", "[1]"),
    "torn": (packed(gzip.compress(b'"arrived"')[:-8], b"gzip"), "breaks off", '"arrived"'),
    "damaged": (packed(gzip.compress(b"[1]")[:-8] + bytes(8), b"gzip"), "cannot be unpacked", ""),
    "packed-by-another": (packed(b"\x0b\x01\x80[1]\x03", b"br"), "not understood: br", ""),
}
"""Response whose body breaks off → reason, and the part of the body that is kept."""
REFUSED: dict[str, tuple[bytes, str]] = {
    "injected": (sized(b"[1]", JSON + b"X: a\rSet-Cookie: b\r\n"), "not valid HTTP: illegal hea"),
    "nul": (sized(b"[1]", JSON + b"X: a\0b\r\n"), "not valid HTTP: illegal header"),
    "long-name": (sized(b"[1]", JSON + b"X" * 90_000 + b" \r\n"), "not valid HTTP"),
    "endless-header": (sized(b"[1]", JSON + b"X: " + b"a" * 2_000_000), "not valid HTTP"),
    "endless-hints": (ANNOUNCED * 3_000, "its head is too long"),
    "lengths": (OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n[1]x", "conflicting"),
    "negative": (OK + b"Content-Length: -3\r\n\r\n[1]", "bad Content-Length"),
    "another-protocol": (b"ICY 200 OK\r\n\r\n", "not valid HTTP"),
    "silent": (b"", "Server disconnected"),
    "half-a-head": (OK + b"Content-Ty", "Server disconnected"),
    "to-nowhere": (
        b"HTTP/1.1 302 x\r\nLocation: //a.invalid/\r\n\r\n",
        "redirected to http://a.in",
    ),
    "to-a-file": (
        b"HTTP/1.1 302 x\r\nLocation: file:///etc\r\n\r\n",
        "redirects to an invalid URL",
    ),
    "to-metadata": (
        b"HTTP/1.1 302 x\r\nLocation: http://169.254.169.254/\r\n\r\n",
        "169.254.169.254:80 is not public",
    ),
    "in-a-circle": (b"HTTP/1.1 308 x\r\nLocation: ?a\r\n\r\n", "too many redirects"),
}
"""Response that is refused → reason."""
RAW: dict[str, bytes] = {
    **{name: case[0] for name, case in READ.items()},
    **{name: case[0] for name, case in BROKEN.items()},
    **{name: case[0] for name, case in REFUSED.items()},
}


def serve(listener: socket.socket) -> None:
    """Answer each request with the bytes that its path names, and end the connection."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client:
            try:
                head = b""
                while b"\r\n\r\n" not in head and (data := client.recv(65_536)):
                    head += data
                name = head.split(b" ")[1].decode().strip("/").partition("?")[0]
                client.sendall(RAW[name])
                client.shutdown(socket.SHUT_WR)
                while client.recv(65_536):
                    pass
            except OSError:  # the client does not wait for the end
                pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@each_row("name", READ)
def test_an_unusual_response_is_read(bench: Bench, server: str, name: str) -> None:
    assert bench.do("http", {}, {"url": f"{server}/{name}"})["body"] == READ[name][1]


@each_row("method", ["GET", "POST"])
@each_row("name", BROKEN)
def test_what_arrived_of_a_broken_response_is_kept(
    bench: Bench, server: str, name: str, method: str
) -> None:
    _, reason, body = BROKEN[name]
    error = bench.fail("http", {}, {"url": f"{server}/{name}", "method": method})
    data: Any = error["data"]
    assert "status 200, but its body cannot be read: " in error["message"]
    assert reason in error["message"]
    assert (data["status"], data["body"]) == (200, body)
    assert data["headers"]["content-type"] == "application/json"


@each_row("name", REFUSED)
def test_a_response_that_cannot_be_read_is_refused_shortly(
    bench: Bench, server: str, name: str
) -> None:
    error = bench.fail("http", {}, {"url": f"{server}/{name}"})
    assert REFUSED[name][1] in error["message"]
    assert len(error["message"]) < 500
    assert error["data"]["status"] is None

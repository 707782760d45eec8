"""The proxy on a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk.web.connections import Network, Rules
from flowengine_envs.network.proxy import Proxy, Refusal
from tests.envs.network.ways_out import PUBLIC, Dialled, Names, Site, network, run, serving


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as made:
        made.pages["/page"] = (200, {"Content-Type": "text/plain"}, b"hello")
        yield made


@asynccontextmanager
async def proxy(folder: Path, way: Any) -> AsyncIterator[tuple[Path, list[Refusal]]]:
    refused: list[Refusal] = []
    made, path = Proxy(way, refused.append), folder / "proxy"
    await made.open(path)
    try:
        yield path, refused
    finally:
        await made.close()


async def ask(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


def asked(folder: Path, data: bytes, way: Any) -> tuple[bytes, list[Refusal]]:
    async def main() -> tuple[bytes, list[Refusal]]:
        async with proxy(folder, way) as (path, refused):
            return await ask(path, data), refused

    found: tuple[bytes, list[Refusal]] = run(main())
    return found


def test_a_tunnel(tmp_path: Path, site: Site) -> None:
    """Bytes pass unchanged, including those that the client sends right after its request."""
    names, dialled = Names(good_example=[[PUBLIC]]), Dialled(("127.0.0.1", site.port))
    data = (
        b"CONNECT good.example:443 HTTP/1.1\r\nHost: good.example:443\r\n\r\n"
        b"GET /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    answer, refused = asked(tmp_path, data, network(names, dialled))

    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
    assert answer.endswith(b"hello")
    assert (dialled.addresses, refused) == ([(PUBLIC, 443)], [])


def test_a_plain_request(tmp_path: Path, site: Site) -> None:
    names, dialled = Names(good_example=[[PUBLIC]]), Dialled(("127.0.0.1", site.port))
    data = (
        b"GET http://good.example/page?q=1 HTTP/1.1\r\nHost: good.example\r\nX-Own: 1\r\n"
        b"Proxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\n\r\n"
    )
    answer, _ = asked(tmp_path, data, network(names, dialled))

    assert answer.endswith(b"hello")
    path, headers = site.seen[0]
    assert path == "/page?q=1"
    assert (headers["host"], headers["x-own"], headers["connection"]) == (
        *("good.example", "1", "close"),
    )
    assert not [name for name in headers if name.startswith("proxy-")]
    assert dialled.addresses == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "said",
    [
        *("Host: evil.example\r\n", "hOsT: evil.example\r\nHost: other.example\r\n"),
        *("", "Host:\r\n"),
    ],
)
def test_a_server_is_told_the_host_that_was_judged(said: str, tmp_path: Path, site: Site) -> None:
    """Other hosts, which no rule allows, may share the address."""
    names, dialled = Names(good_example=[[PUBLIC]]), Dialled(("127.0.0.1", site.port))
    hosts: list[str] = []

    def page(handler: Any) -> None:
        hosts.extend(handler.headers.get_all("Host"))
        handler.send_response(204)
        handler.end_headers()

    site.pages["/"] = page
    data = f"GET http://user:x@good.example/ HTTP/1.1\r\n{said}\r\n".encode()
    answer, _ = asked(tmp_path, data, network(names, dialled))

    assert answer.startswith(b"HTTP/1.1 204")
    assert hosts == ["good.example"]


def test_a_host_that_is_none_controls_no_log(tmp_path: Path) -> None:
    head = b"CONNECT evil\x08\x1bc.example:443 HTTP/1.1\r\n\r\n"
    answer, refused = asked(tmp_path, head, Network(Rules.of("public")))

    assert answer.startswith(b"HTTP/1.1 403")
    [refusal] = refused
    assert refusal.reason == "'evil\ufffd\ufffdc.example' is not a host"
    assert str(refusal).isprintable()


@pytest.mark.parametrize(
    "target",
    [
        *("CONNECT 127.0.0.1:{port}", "CONNECT 0x7f.1:{port}", "CONNECT [::ffff:127.0.0.1]:{port}"),
        *("CONNECT localhost:{port}", "CONNECT 2130706433:{port}", "GET http://127.0.0.1:{port}/"),
        *("GET http://good.example@127.0.0.1:{port}/", "POST http://localhost.:{port}/page"),
    ],
)
# Shows W32
def test_what_may_not_be_reached_is_refused_and_reported(
    target: str, tmp_path: Path, site: Site
) -> None:
    head = f"{target.format(port=site.port)} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    answer, refused = asked(tmp_path, head.encode(), Network(Rules.of("public")))

    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert b"not public" in answer
    assert len(refused) == 1
    assert "not public: loopback" in str(refused[0])
    assert site.connections == 0


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"GET /page HTTP/1.1\r\n\r\n", b"400"),
        (b"GET https://x.example/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET file:///etc/passwd HTTP/1.1\r\n\r\n", b"400"),
        (b"CONNECT x.example HTTP/1.1\r\n\r\n", b"400"),
        (b"CONNECT x.example:99999 HTTP/1.1\r\n\r\n", b"400"),
        (b"CONNECT :443 HTTP/1.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01 \r\n\r\n", b"400"),
        (b"GET http://x.example/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", b"400"),
        (b"GET http://x.example/ HTTP/1.1\r\nA: b\nHost: evil.example\r\n\r\n", b"400"),
        (b"GET http://x.example/ HTTP/1.1\r\nHost : evil.example\r\n\r\n", b"400"),
        (b"GET\nHost:evil.example http://x.example/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://x.example/ HTTP/1.1\r\nA: " + b"b" * 200_000 + b"\r\n\r\n", b"400"),
        (b"CONNECT nowhere.example:443 HTTP/1.1\r\n\r\n", b"502"),
        (b"CONNECT gone.example:443 HTTP/1.1\r\n\r\n", b"502"),
    ],
)
def test_errors_are_answers(data: bytes, told: bytes, tmp_path: Path) -> None:
    names = Names(gone_example=[[PUBLIC]], x_example=[[PUBLIC]])
    answer, refused = asked(tmp_path, data, network(names, Dialled()))

    assert answer.split(b" ")[1] == told
    assert refused == []

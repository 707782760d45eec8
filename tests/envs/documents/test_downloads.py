# Shows W35, W61
"""Downloads: request headers, redirects, size limits and errors."""

from __future__ import annotations

import asyncio
import os
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import HttpError, StepError, Timeout
from flowengine.sdk.web.client import HttpClient
from flowengine.sdk.web.connections import Network, Rules
from flowengine.sdk.web.responses import TooLarge
from flowengine.sdk.web.urls import UrlRefused, read_url
from flowengine_envs.documents.downloads import DownloadedFile, Downloader
from tests.envs.network.ways_out import Site, run, serving
from tests.rows import each_row

MIB = 1024 * 1024
HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as made:
        yield made


class Clock:
    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)


def download(
    url: str,
    folder: Path,
    way: Network,
    limits: tuple[int, float] = (MIB, 20),
    pause: Any = asyncio.sleep,
    **more: Any,
) -> DownloadedFile:
    found: DownloadedFile = run(
        Downloader(HttpClient(way), *limits, pause).get(read_url(url), folder / "file", **more)
    )
    return found


def to(*allowed: Any) -> Network:
    return Network(Rules.of([each.place if isinstance(each, Site) else each for each in allowed]))


REFUSED = [
    ("ftp://example.org/", "'ftp:' addresses are not fetched"),
    ("data:text/html,x", "'data:' addresses"),
    ("javascript:alert(1)", "'javascript:' addresses"),
    ("blob:https://example.org/1", "'blob:' addresses"),
    ("chrome://settings", "'chrome:' addresses"),
    ("view-source:http://x.org", "'view-source:' addresses"),
    ("file:///etc/passwd", "'file:' addresses"),
    ("file://host/x", "'file:' addresses"),
    ("", "is empty"),
    ("   ", "is empty"),
    ("http://", "has no host"),
    ("http:///path", "has no host"),
    ("http://" + "x" * 10_000, "10,007 characters"),
    ("http:\\\\127.0.0.1", "backslash"),
    ("http://127.0.0.1\\@example.org", "backslash"),
    ("http://%31%32%37.0.0.1/", "percent-encoded"),
    ("http://127.0.0.1 .example.org/", "is not a host"),
    ("http://exa\tmple.org/", "invisible characters"),
    ("http://exa\nmple.org/", "invisible characters"),
    ("http://exa\u200bmple.org/", "invisible characters"),
    ("http://example.org:99999/", "is not an address"),
    ("http://example.org:0/", "has no host"),
    ("http://[::1/", "is not an address"),
    ("http://a..b/", "is not a host"),
]


@each_row(("text", "told"), REFUSED)
# Shows W31, W33, W81
def test_what_is_no_page_of_the_web_is_refused(text: str, told: str) -> None:
    with pytest.raises(UrlRefused) as caught:
        read_url(text)
    assert told in caught.value.message


@each_row(
    ("text", "read", "note"),
    [
        ("example.com", "https://example.com/", "https was tried"),
        ("example.com:8443/a b", "https://example.com:8443/a%20b", "https was tried"),
        ("HTTPS://Example.COM:443/ä?q=ü#part", "https://example.com/%C3%A4?q=%C3%BC", ""),
        ("http://u:p%40@example.com/", "http://example.com/", ""),
        ("http://[2606:4700::1111]:8080/", "http://[2606:4700::1111]:8080/", ""),
        ("https://bücher.example/", "https://xn--bcher-kva.example/", "shown as bücher.example"),
        ("https://xn--pple-43d.com/", "https://xn--pple-43d.com/", "shown as \u0430pple.com"),
    ],
)
# Shows W81
def test_addresses_have_one_spelling(text: str, read: str, note: str) -> None:
    url = read_url(text)
    assert str(url) == read
    assert note in url.note


def moved(to: str, status: int = 302) -> tuple[int, dict[str, str], bytes]:
    return status, {"Location": to}, b""


def test_redirects_are_followed_and_told(site: Site, tmp_path: Path) -> None:
    site.pages["/a"] = moved("b", 301)
    site.pages["/b"] = moved(f"{site.url('/c')}?q=1#x", 307)
    site.pages["/c"] = (200, HTML, b'<meta http-equiv="refresh" content="0; URL=\'/d\'">')
    site.pages["/d"] = (200, {"Content-Type": "text/plain"}, b"there")
    found = download(site.url("/a"), tmp_path, to(site))

    assert str(found.url) == site.url("/d")
    assert [path for path, _ in site.seen] == ["/a", "/b", "/c?q=1", "/d"]
    assert found.notes == [f"redirected from {site.url('/a')}"]


@pytest.mark.parametrize(
    "target",
    [
        *("http://127.0.0.1:{canary}/", "http://localhost:{canary}/", "//0x7f.1:{canary}/"),
        *("file:///etc/passwd", "ftp://127.0.0.1:{canary}/", "data:text/html,x"),
        *("http://[::ffff:127.0.0.1]:{canary}/", "javascript:1", "http://10.0.0.1/"),
    ],
)
@pytest.mark.parametrize("by", ["location", "refresh"])
def test_every_redirect_is_judged(target: str, by: str, site: Site, tmp_path: Path) -> None:
    """From one allowed destination to others, including the same host at another port."""
    with serving() as canary:
        where = target.format(canary=canary.port)
        page = f'<meta content="1;url={where}" http-equiv=refresh>'
        if by == "refresh":
            page = f"<meta http-equiv=refresh content='1;url={where}'>"
        site.pages["/a"] = moved(where) if by == "location" else (200, HTML, page.encode())
        with pytest.raises(UrlRefused) as caught:
            download(site.url("/a"), tmp_path, to("public", site))
        assert canary.connections == 0
    assert site.url("/a") in caught.value.message
    assert not (tmp_path / "file").exists()


def test_loops_end(site: Site, tmp_path: Path) -> None:
    site.pages["/a"], site.pages["/b"] = moved("/b"), moved("/a")
    with pytest.raises(HttpError, match="too many redirects") as caught:
        download(site.url("/a"), tmp_path, to(site))
    assert f"{site.url('/a')} -> {site.url('/b')}" in caught.value.message

    for number in range(20):
        site.pages[f"/{number}"] = moved(f"/{number + 1}")
    site.seen.clear()
    with pytest.raises(HttpError, match="too many redirects"):
        download(site.url("/0"), tmp_path, to(site))
    assert len(site.seen) == 11


# Shows W38
def test_credentials_go_to_their_server_only(site: Site, tmp_path: Path) -> None:
    with serving() as other:
        site.pages["/a"] = moved("/b")
        site.pages["/b"] = moved(other.url("/c"))
        other.pages["/c"] = (200, {}, b"x")
        url = f"http://ana:s%C3%A9same@{site.place}/a"
        found = download(url, tmp_path, to(site, other), headers={"Cookie": "k=v", "X-Key": "1"})

        for _, headers in site.seen:
            assert headers["authorization"] == "Basic YW5hOnPDqXNhbWU="
            assert (headers["cookie"], headers["x-key"]) == ("k=v", "1")
        assert not {"authorization", "cookie", "x-key"} & other.seen[0][1].keys()

        other.pages["/c"] = moved(site.url("/back"))
        site.pages["/back"] = (200, {}, b"x")
        download(url, tmp_path, to(site, other), headers={"Cookie": "k=v"})
        assert not {"authorization", "cookie"} & site.seen[-1][1].keys()
    assert "ana" not in f"{found.url} {found.notes}"


# Shows W38
def test_credentials_are_in_no_message(tmp_path: Path) -> None:
    for url in ("http://ana:secret@127.0.0.1:1/", "http://ana:secret@a..b/", "ana:secret@x"):
        with pytest.raises(StepError) as caught:
            download(url, tmp_path, to("public"))
        assert "secret" not in caught.value.message or url == "ana:secret@x"


# Shows W39
def test_proxies_and_netrc_of_the_host_are_not_used(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pages["/a"] = (200, {}, b"x")
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login ana password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    with serving() as canary:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, canary.url())
        monkeypatch.delenv("no_proxy", raising=False)
        download(site.url("/a"), tmp_path, to(site))
        assert canary.connections == 0
    assert "authorization" not in site.seen[0][1]


# Shows W63
def test_a_passing_fault_is_tried_again(site: Site, tmp_path: Path) -> None:
    answers = [(503, {"Retry-After": "7"}, b""), (503, {}, b""), (200, {}, b"there")]

    def page(handler: Any) -> None:
        status, headers, body = answers.pop(0)
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    site.pages["/a"] = page
    clock = Clock()
    assert download(site.url("/a"), tmp_path, to(site), pause=clock).status == 200
    assert (len(site.seen), clock.pauses) == (3, [7.0, 4.0])

    site.pages["/b"] = (503, {"Retry-After": "9999"}, b"")
    assert download(site.url("/b"), tmp_path, to(site), pause=clock).status == 503
    assert (len(site.seen), clock.pauses[2:]) == (6, [20.0, 20.0])
    assert download(site.url("/none"), tmp_path, to(site), pause=clock).status == 404
    assert (len(site.seen), len(clock.pauses)) == (7, 4)


def raw(data: bytes, then: Any = None) -> Any:
    """Serve these bytes unchanged."""

    def page(handler: Any) -> None:
        handler.close_connection = True
        handler.wfile.write(data)
        handler.wfile.flush()
        if then is not None:
            then(handler)

    return page


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


def forever(handler: Any) -> None:
    try:
        while True:
            handler.wfile.write(b"x" * 65536)
    except OSError:
        pass


def dripping(handler: Any) -> None:
    try:
        while True:
            handler.wfile.write(b"x")
            handler.wfile.flush()
            threading.Event().wait(0.02)
    except OSError:
        pass


def silent(handler: Any) -> None:
    handler.rfile.read(1)


@pytest.mark.parametrize(
    ("page", "error", "told"),
    [
        (raw(b"", silent), Timeout, "it was not downloaded in 0.5 s"),
        (raw(HEAD + b"\r\n", silent), Timeout, "it was not downloaded in 0.5 s"),
        (raw(HEAD + b"\r\n", dripping), Timeout, "it was not downloaded in 0.5 s"),
        (raw(HEAD + b"\r\n", forever), TooLarge, "more than 1 MiB were sent"),
        (raw(HEAD + b"Content-Length: 99999999\r\n\r\nx"), TooLarge, "it has 99,999,999 bytes"),
        (raw(HEAD + b"Content-Length: 100\r\n\r\nx"), HttpError, ""),
        (raw(HEAD + b"Content-Length: x\r\n\r\nx"), HttpError, ""),
        (raw(HEAD + b"Content-Encoding: br\r\n\r\nx"), HttpError, "encoding is not understood: br"),
        (raw(HEAD + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b"), HttpError, "breaks off"),
        (raw(HEAD + b"Content-Encoding: gzip\r\n\r\n\x1f\x8bxx"), HttpError, "be unpacked"),
        (raw(HEAD + b"A: " + b"b" * 200_000), HttpError, ""),
        (raw(b"\x00\xff garbage"), HttpError, ""),
        (raw(b""), HttpError, ""),
    ],
)
# Shows W60
def test_hostile_servers_end_within_limits(
    page: Any, error: type[Exception], told: str, site: Site, tmp_path: Path
) -> None:
    site.pages["/a"] = page
    seconds = 0.5 if error is Timeout else 60
    with pytest.raises(error) as caught:
        download(site.url("/a"), tmp_path, to(site), (MIB, seconds), Clock())
    assert told in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_declared_length_is_not_exceeded(site: Site, tmp_path: Path) -> None:
    site.pages["/a"] = raw(HEAD + b"Content-Length: 2\r\n\r\nabcdef")
    assert download(site.url("/a"), tmp_path, to(site)).size == 2


def bomb() -> bytes:
    """Return a gigabyte of zeros, compressed, without the final block, which is never reached."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    first = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + 1023 * (packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH))


def test_what_unpacks_to_too_much_is_stopped(site: Site, tmp_path: Path) -> None:
    """Unpacking a gigabyte of zeros must not increase memory with its size."""
    site.pages["/a"] = (200, {**HTML, "Content-Encoding": "gzip"}, bomb())
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="unpacks to more than 4 MiB"):
            download(site.url("/a"), tmp_path, to(site), (4 * MIB, 60))
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
    assert os.listdir(tmp_path) == []


# Shows W60
def test_a_cancelled_download_leaves_nothing(site: Site, tmp_path: Path) -> None:
    asked = threading.Event()

    def page(handler: Any) -> None:
        asked.set()
        raw(HEAD + b"\r\n" + b"x" * 1000, silent)(handler)

    site.pages["/a"] = page

    async def main() -> None:
        getting = asyncio.ensure_future(
            Downloader(HttpClient(to(site)), MIB).get(read_url(site.url("/a")), tmp_path / "file")
        )
        await asyncio.to_thread(asked.wait, 60)
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting

    run(main())
    assert os.listdir(tmp_path) == []

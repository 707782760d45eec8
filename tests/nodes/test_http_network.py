"""Where requests of `http` go: checked addresses, redirects, proxies, and names in certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from flowengine.sdk.web.client import _trust
from tests.certificates import own_certificate
from tests.envs.network.ways_out import PUBLIC, Site, serving

from .conftest import Bench

PROXY = "8.8.8.8"


class Internet:
    """Names and addresses that all lead to a test server. A name's last answer repeats.

    Attributes:
        site: The server.
        names: The addresses of each name, by look-up.
        dialled: The addresses that were connected to.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
        self.site = site
        self.lead_to(site)
        self.names: dict[str, list[list[str]]] = {}
        self.dialled: list[str] = []
        connect, look_up = asyncio.BaseEventLoop.create_connection, socket.getaddrinfo

        async def connected(loop: Any, factory: Any, host: Any, port: Any, **more: Any) -> Any:
            self.dialled.append(host)
            return await connect(loop, factory, "127.0.0.1", self.port, **more)

        def looked_up(host: str, *more: Any, **options: Any) -> Any:
            answers = self.names.get(host, [[host]])
            found = answers.pop(0) if len(answers) > 1 else answers[0]
            options["flags"] = socket.AI_NUMERICHOST
            return [each for one in found for each in look_up(one, *more, **options)]

        monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", connected)
        monkeypatch.setattr(socket, "getaddrinfo", looked_up)
        for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)

    def lead_to(self, site: Site) -> None:
        """Let all addresses lead to another server."""
        self.port = site.port

    def redirects(self, location: str, start: str = "named.test") -> str:
        """Return an address that redirects to another one, where the response is `there`."""
        self.dialled.clear()
        return f"http://{start}/go?{urlencode({'to': location})}"


def moved(handler: Any) -> None:
    [to] = parse_qs(urlsplit(handler.path).query)["to"]
    handler.send_response(302)
    handler.send_header("Location", to.encode().decode("latin-1"))
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    with serving() as site:
        site.pages["/go"] = moved
        site.pages["/there"] = (200, {"Content-Type": "text/plain"}, b"there")
        yield Internet(monkeypatch, site)


NOT_FOLLOWED = {
    "loopback": ("127.0.0.1", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.0.0.1.", "[::1]"),
    "loopback, wrapped": ("[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[::ffff:7f00:1]"),
    "another notation": (
        "\uff11\uff12\uff17.0.0.1",
        "127。0。0。1",
        "LOCALHOST",
        "localhost.",
        "here.test.",
    ),
    "unspecified": ("0.0.0.0", "0", "[::]", "[::127.0.0.1]"),
    "tunnels": ("[2002:7f00:1::]", "[2001:0:7f00:1::]", "[2606:4700::5efe:7f00:1]"),
    "private": ("10.0.0.2", "172.16.0.1", "192.168.0.1", "[fd00::1]", "100.64.0.1", "inside.test"),
    "link-local": ("169.254.1.1", "[fe80::1]", "[::ffff:169.254.169.254]"),
    "metadata": ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16"),
    "metadata of version 6": ("[fd00:ec2::254]", "[fd20:ce::254]", "metadata.test"),
}


# Shows W32
def test_a_redirect_into_what_only_this_side_reaches_is_not_followed(
    bench: Bench, internet: Internet
) -> None:
    internet.names = {
        **{"named.test": [[PUBLIC]], "localhost": [["127.0.0.1"]], "here.test": [["::1"]]},
        **{"inside.test": [["10.0.0.2"]], "metadata.test": [["fd00:ec2::254"]]},
    }
    for host in [host for hosts in NOT_FOLLOWED.values() for host in hosts]:
        for port in ("", ":8080"):
            url = internet.redirects(f"http://{host}{port}/there")
            error = bench.fail("http", {}, {"url": url})
            told = (error["type"], error["retryable"], internet.dialled)
            assert told == ("HttpError", False, [PUBLIC]), host
            assert "http://named.test redirects to http://" in error["message"], host
            assert "Name that address in the step if it is meant" in error["message"], host


LED_ON: list[tuple[dict[str, list[list[str]]], str, str, list[str]]] = [
    # A name that leads elsewhere at the second look-up
    ({"moving.test": [[PUBLIC], ["127.0.0.1"]]}, PUBLIC, "moving.test", [PUBLIC] * 2),
    ({"moving.test": [["127.0.0.1"], [PUBLIC]]}, PUBLIC, "moving.test", [PUBLIC]),
    ({"named.test": [[PUBLIC], ["127.0.0.1"]]}, "named.test", "named.test", [PUBLIC]),
    ({"named.test": [[PUBLIC], ["10.0.0.1"]]}, "named.test", "named.test:8080", [PUBLIC]),
    ({"both.test": [["127.0.0.1", PUBLIC]]}, PUBLIC, "both.test", [PUBLIC] * 2),
    # What the step names may be anything, and leads on to what is like it
    ({"inside.test": [["10.0.0.1"]]}, "inside.test", "10.0.0.2:8080", ["10.0.0.1", "10.0.0.2"]),
    ({}, "[::1]", "127.0.0.1", ["::1", "127.0.0.1"]),
    ({}, "[::ffff:127.0.0.1]", "0x7f.1", ["::ffff:7f00:1", "127.0.0.1"]),
    ({}, "10.0.0.1", "192.168.0.1", ["10.0.0.1", "192.168.0.1"]),
    ({}, "10.0.0.1", PUBLIC, ["10.0.0.1", PUBLIC]),
    ({}, "10.0.0.1", "127.0.0.1", ["10.0.0.1"]),
    ({}, "127.0.0.1", "10.0.0.1", ["127.0.0.1"]),
    ({}, "127.0.0.1", "169.254.169.254", ["127.0.0.1"]),
    ({}, "10.0.0.1", "[fd00:ec2::254]", ["10.0.0.1"]),
    ({}, "169.254.1.1", "169.254.169.254", ["169.254.1.1"]),
    ({}, "169.254.169.254", "169.254.169.254", ["169.254.169.254"] * 2),
]


# Shows W34
def test_the_address_that_was_checked_is_connected_to(bench: Bench, internet: Internet) -> None:
    for names, start, target, dialled in LED_ON:
        internet.names = {name: [*answers] for name, answers in names.items()}
        url = internet.redirects(f"http://{target}/there", start)
        if len(dialled) == 2:
            assert bench.do("http", {}, {"url": url})["body"] == "there", target
        else:
            assert bench.fail("http", {}, {"url": url})["type"] == "HttpError", target
        assert internet.dialled == dialled, target

    # Each redirect is compared with what the step names, not with the one before it.
    url = internet.redirects(internet.redirects("http://127.0.0.1/there", PROXY), PUBLIC)
    assert bench.fail("http", {}, {"url": url})["retryable"] is False
    assert internet.dialled == [PUBLIC, PROXY]


def test_an_invalid_redirect_is_an_error_that_does_not_quote_it(
    bench: Bench, internet: Internet
) -> None:
    for location in ("file:///etc/passwd", "ftp://x/", "http://a..b/", "http://a\\@b/"):
        error = bench.fail("http", {}, {"url": internet.redirects(location, PUBLIC)})
        assert error["message"].endswith("/go redirects to an invalid URL"), location
        assert error["type"] == "HttpError"


def test_a_connection_that_breaks_off_is_worth_a_retry(bench: Bench, internet: Internet) -> None:
    def sent(data: bytes) -> Any:
        def answer(handler: Any) -> None:
            handler.close_connection = True
            handler.wfile.write(data)

        return answer

    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
    for data, retryable in (
        (b"", True),
        (b"HTTP/1.1 200", True),
        (head + b"Content-Length: 9\r\n\r\nx", True),
        (head + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", True),
        (head + b"Content-Length: x\r\n\r\nx", False),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", False),
    ):
        internet.site.pages["/there"] = sent(data)
        error = bench.fail("http", {}, {"url": f"http://{PUBLIC}/there"})
        assert (error["type"], error["retryable"]) == ("HttpError", retryable), data


# Proxies


def test_proxies_of_the_environment(
    bench: Bench, internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `no_proxy`, the addresses that are connected to directly, and those that are not."""
    internet.names = {
        **{"localhost": [["127.0.0.1"]], "a.localhost": [["127.0.0.1"]], "proxy.test": [[PROXY]]},
        **{"corp.test": [["10.0.0.1"]], "x.corp.test": [["10.0.0.1"]]},
    }
    here = ("127.0.0.1", "127.1", "[::1]", "[::ffff:7f00:1]", "localhost", "localhost.", "0")
    monkeypatch.setenv("http_proxy", "http://ana:s%40x@proxy.test:3128")
    for exempt, direct, by_proxy in (
        ("", (*here, "a.localhost"), ("8.8.4.4", "corp.test", "unknown.test")),
        ("*", ("8.8.4.4", "corp.test"), ()),
        ("corp.test", ("corp.test", "x.corp.test", "CORP.test."), ("8.8.4.4", "xcorp.test")),
        (".corp.test", ("x.corp.test",), ("corp.test", "xcorp.test")),
        ("*.corp.test", ("x.corp.test",), ("corp.test",)),
        ("a.test, 8.8.4.4 ,b.test", ("8.8.4.4",), ("8.8.4.5",)),
        ("8.8.4.0/24,fd00::/8", ("8.8.4.4", "[fd00::1]"), ("8.8.5.4",)),
        ("[fd00::1]", ("[fd00::1]",), ("[fd00::2]",)),
        ("fd00::1", ("[fd00::1]",), ("[fd00::2]",)),
        ("corp.test:8080", ("corp.test:8080",), ("corp.test:81", "corp.test")),
        ("[fd00::1]:8080", ("[fd00::1]:8080",), ("[fd00::1]",)),
        ("not/a/network,%,8.8.4.0/99", (), ("8.8.4.4", "corp.test")),
    ):
        monkeypatch.setenv("no_proxy", exempt)
        for host in (*direct, *by_proxy):
            url = f"http://{host}/there"
            internet.dialled.clear()
            internet.site.seen.clear()
            sent = bench.do("http", {"accept": "any"}, {"url": url})
            [(path, headers)] = internet.site.seen
            is_direct = host in direct
            assert (internet.dialled == [PROXY]) is not is_direct, (exempt, host)
            assert (sent["status"], path) == ((200, "/there") if is_direct else (404, url.lower()))
            login = headers.get("proxy-authorization")
            assert login == (None if is_direct else f"Basic {b64encode(b'ana:s@x').decode()}")


def test_a_redirect_through_a_proxy_is_checked_as_far_as_it_is_known_here(
    bench: Bench, internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"{PROXY}:3128")
    internet.names = {
        **{"inside.test": [["10.0.0.1"]], "public.test": [[PUBLIC]]},
        "both.test": [[PUBLIC, "10.0.0.1"]],
    }
    for start, target, followed in (
        (PUBLIC, "public.test", True),
        (PUBLIC, "unknown.test", True),
        (PUBLIC, "inside.test", False),
        (PUBLIC, "both.test", False),
        (PUBLIC, "10.0.0.1", False),
        (PUBLIC, "127.0.0.1", False),
        ("inside.test", "10.0.0.1", False),
    ):
        url = internet.redirects(f"http://{target}/there", start)
        internet.site.pages[url.partition("?")[0]] = moved
        internet.site.pages[f"http://{target}/there"] = internet.site.pages["/there"]
        if followed:
            assert bench.do("http", {}, {"url": url})["body"] == "there", target
        else:
            assert "not public" in bench.fail("http", {}, {"url": url})["message"], target
        assert internet.dialled == [PROXY] * (2 if followed else 1), target


def test_a_proxy_that_cannot_be_used_is_an_error_of_http(
    bench: Bench, internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, proxy, url, told in (
        ("all_proxy", "socks5://proxy.test", f"http://{PUBLIC}/", "pip install socksio"),
        ("http_proxy", "ftp://proxy.test", f"http://{PUBLIC}/", "write http://HOST:PORT"),
        ("http_proxy", "http://", f"http://{PUBLIC}/", "write http://HOST:PORT"),
        ("https_proxy", PROXY, f"https://{PUBLIC}/", "the proxy refused: 501"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(variable, proxy)
            error = bench.fail("http", {}, {"url": url})
        assert (error["type"], error["retryable"]) == ("HttpError", True)
        assert told in error["message"]


def test_a_certificate_is_compared_with_the_name_not_with_the_address(
    bench: Bench, internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a tunnel through a proxy, and after a redirect."""
    path = own_certificate(tmp_path, "right.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    monkeypatch.setattr("flowengine.sdk.web.client._trust", _trust.__wrapped__)
    internet.names = {"right.test": [[PUBLIC]], "wrong.test": [[PUBLIC]]}

    def tunnel(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        with (
            suppress(ssl.SSLError),
            context.wrap_socket(handler.connection, server_side=True) as inner,
        ):
            type(handler)(inner, handler.client_address, handler.server)

    monkeypatch.setattr(internet.site.RequestHandlerClass, "do_CONNECT", tunnel, raising=False)
    with serving() as secure:
        secure.pages |= internet.site.pages
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        for proxy, site in (("", secure), (PROXY, internet.site)):
            monkeypatch.setenv("https_proxy", proxy)
            internet.lead_to(site)
            assert bench.do("http", {}, {"url": "https://right.test./there"})["body"] == "there"
            for url in ("https://wrong.test/there", f"https://{PUBLIC}/there"):
                error = bench.fail("http", {}, {"url": url})
                assert "mismatch" in error["message"], url
            url = internet.redirects("https://wrong.test/there", "right.test")
            error = bench.fail("http", {}, {"url": url.replace("http:", "https:", 1)})
            assert "mismatch" in error["message"]

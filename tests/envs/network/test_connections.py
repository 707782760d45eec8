# Shows W37
"""Network rules are applied to the address that is connected to."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.sdk.web.connections import Network, Rules
from flowengine.sdk.web.urls import BadHost, UrlRefused, not_public, spelled
from tests.envs.network.ways_out import (
    ALSO_PUBLIC,
    PUBLIC,
    Dialled,
    Names,
    Site,
    network,
    run,
    serving,
)
from tests.rows import each_row


@pytest.fixture
def canary() -> Iterator[Site]:
    with serving() as site:
        yield site


NOT_PUBLIC = [
    *("127.0.0.1", "localhost", "localhost.", "LOCALHOST", "0.0.0.0", "10.0.0.1", "172.16.0.1"),
    *("172.31.255.255", "192.168.0.1", "100.64.0.1", "169.254.169.254", "224.0.0.1", "240.0.0.1"),
    *("255.255.255.255", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("[::]", "[::1]", "[fd00::1]", "[fe80::1]", "[fec0::1]", "[ff02::1]", "[2001:db8::1]"),
    *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[64:ff9b::10.0.0.1]"),
    *("[64:ff9b:1::1]", "[::127.0.0.1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[3fff::1]"),
    *("[2606:4700::5efe:7f00:1]", "[2606:4700::200:5efe:7f00:1]", "[4000::1]", "[100::1]"),
    *("2130706433", "0x7f000001", "0x7f.1", "127.1", "127.0.1", "017700000001", "0177.0.0.1"),
    *(
        "0x7F.0x0.0x0.0x1",
        "00000177.0.0.1",
        "\uff11\uff12\uff17.0.0.1",
        "127。0。0。1",
        "①②⑦.0.0.1",
    ),
    *("ⓛocalhost", "localhost。", "0", "0x0", "127.0.0.1."),
]


@each_row("host", NOT_PUBLIC)
# Shows W32, W33
def test_addresses_that_are_not_public_are_refused_in_every_spelling(
    host: str, canary: Site
) -> None:
    with pytest.raises(UrlRefused, match=r"not public|this machine"):
        run(Network(Rules.of("public")).connect(host, canary.port, 5))
    assert canary.connections == 0


@each_row(
    "host",
    [
        *("", ".", "a..b", "-x", "127.0.0.1.5", "1.2.3.400", "0x100000000", "a b", "a\tb", "a\n"),
        *("a%2e", "%31", "a/b", "a@b", "a:b", "[::1", "::1]", "[::1%eth0]", "[]", "a\\b", "a\0b"),
        *("x" * 64, "x." * 130 + "x", "08.1", "bü\u202echer.de", "127.0.0.1 x"),
    ],
)
# Shows W33
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(UrlRefused):
        run(Network(Rules.of("public"), Names(), Dialled()).connect(host, 80))
    with pytest.raises(BadHost):
        spelled(host)


@each_row(
    "address",
    [
        *(PUBLIC, "1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "[2606:4700::1111]"),
        *(f"[{ALSO_PUBLIC}]", "[64:ff9b::5db8:d822]", "[::ffff:93.184.216.34]"),
    ],
)
def test_public_addresses_are_reached(address: str) -> None:
    dialled = Dialled()
    with pytest.raises(ConnectionRefusedError):
        run(network(Names(), dialled).connect(address, 443))
    assert dialled.addresses == [(spelled(address), 443)]


@given(st.ip_addresses())
def test_an_address_is_judged_as_what_it_wraps(address: Any) -> None:
    """Addresses that Python considers private are refused, also when IPv6 wraps IPv4."""
    kind = not_public(address)
    inside = address.is_private or address.is_multicast or address.is_loopback
    if inside and getattr(address, "ipv4_mapped", None) is None:
        assert kind
    if address.version == 4:
        for clothes in (f"::ffff:{address}", f"64:ff9b::{address}"):
            assert bool(not_public(ip_address(clothes))) is bool(kind)


@each_row(
    ("answers", "reached"),
    [
        ([["10.0.0.1"]], []),
        ([["127.0.0.1"], [PUBLIC]], []),
        ([["::1", "fe80::1%eth0", "::ffff:127.0.0.1"]], []),
        ([[PUBLIC, "127.0.0.1"]], [PUBLIC]),
        ([["127.0.0.1", PUBLIC, "10.0.0.1"]], [PUBLIC]),
        ([[PUBLIC], ["127.0.0.1"]], [PUBLIC]),
    ],
)
# Shows W34
def test_what_counts_is_the_address_not_the_name(
    answers: list[list[str]], reached: list[str]
) -> None:
    """Names that resolve to private addresses, in part, or only after the check."""
    names, dialled = Names(good_example=answers), Dialled()
    with pytest.raises((UrlRefused, ConnectionRefusedError)):
        run(network(names, dialled).connect("good.example", 80))
    assert [address for address, _ in dialled.addresses] == reached
    assert names.asked == ["good.example"]


# Shows W34
def test_a_name_that_moves_is_judged_anew_each_time() -> None:
    names, dialled = Names(good_example=[[PUBLIC], ["127.0.0.1"]]), Dialled()
    way = network(names, dialled)
    with pytest.raises(ConnectionRefusedError):
        run(way.connect("good.example", 80))
    with pytest.raises(UrlRefused, match=r"leads to 127\.0\.0\.1 \(not public: loopback\)"):
        run(way.connect("good.example", 80))
    assert dialled.addresses == [(PUBLIC, 80)]


def test_a_public_address_of_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that listen on all addresses may trust local clients."""
    monkeypatch.setattr("flowengine.sdk.web.connections.not_public", lambda address: "")
    dialled = Dialled()
    with pytest.raises(UrlRefused, match="an address of this machine"):
        run(network(Names(), dialled).connect("127.0.0.1", 80))
    assert dialled.addresses == []


ALLOWED = [
    (["example.com"], "example.com", 443, True),
    (["example.com"], "EXAMPLE.com.", 80, True),
    (["example.com"], "example.com", 8443, False),
    (["example.com"], "example.com.evil.test", 443, False),
    (["example.com"], "notexample.com", 443, False),
    (["example.com"], "www.example.com", 443, False),
    (["*.example.com"], "www.example.com", 443, True),
    (["*.example.com"], "a.b.example.com", 80, True),
    (["*.example.com"], "example.com", 443, False),
    (["*.example.com"], "wwwexample.com", 443, False),
    (["*.example.com:8443"], "www.example.com", 8443, True),
    (["*.example.com:8443"], "www.example.com", 443, False),
    (["127.0.0.1:8080"], "127.0.0.1", 8080, True),
    (["127.0.0.1:8080"], "0x7f.1", 8080, True),
    (["127.0.0.1:8080"], "127.0.0.1", 80, False),
    (["127.0.0.1:8080"], "localhost", 8080, False),
    (["[::1]:8080"], "::1", 8080, True),
    (["public", "localhost:8080"], "evil.example", 8080, False),
    (["public", "localhost:8080"], "localhost", 8080, True),
    (["public", "localhost:8080"], "localhost", 80, False),
    (["public"], "www.example.com", 25, True),
    ("none", "www.example.com", 443, False),
    (None, "www.example.com", 443, False),
    ("any", "10.0.0.1", 22, True),
]


@each_row(("allowed", "host", "port", "reached"), ALLOWED)
def test_destinations_are_exact(allowed: Any, host: str, port: int, reached: bool) -> None:
    known = {"localhost": "127.0.0.1", "evil.example": "127.0.0.1"}
    names = Names(**{spelled(host).replace(".", "_"): [[known.get(host, PUBLIC)]]})
    dialled = Dialled()
    with pytest.raises(ConnectionRefusedError if reached else UrlRefused):
        run(network(names, dialled, allowed).connect(host, port))
    assert len(dialled.addresses) == reached


@each_row(
    ("deny", "host", "port"),
    [
        ("www.example.com", "www.example.com", 8443),
        ("*.example.com", "www.example.com", 443),
        ("www.example.com:443", "www.example.com", 443),
        (PUBLIC, PUBLIC, 443),
        (PUBLIC, "www.example.com", 443),
    ],
)
@each_row("allowed", ["public", ["www.example.com:8443", "public"]])
def test_denied_destinations(deny: str, host: str, port: int, allowed: Any) -> None:
    names, dialled = Names(www_example_com=[[PUBLIC]]), Dialled()
    with pytest.raises(UrlRefused, match="deny_network"):
        run(network(names, dialled, allowed, [deny]).connect(host, port))
    assert dialled.addresses == []


def test_the_first_address_that_answers_is_taken(canary: Site) -> None:
    """A silent address delays nothing, and its attempt is cancelled."""
    cancelled = asyncio.Event()

    async def dialled(address: str, port: int) -> Any:
        if address == PUBLIC:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
        return await asyncio.open_connection("127.0.0.1", canary.port)

    async def main() -> None:
        names = Names(two_example=[[PUBLIC, ALSO_PUBLIC]])
        _, writer = await network(names, dialled).connect("two.example", 80, 60)
        assert writer.get_extra_info("peername")[1] == canary.port
        writer.close()
        await asyncio.wait_for(cancelled.wait(), 60)

    run(main())


def test_silence_ends_in_time() -> None:
    async def silent(address: str, port: int) -> Any:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run(network(Names(), silent).connect(PUBLIC, 80, 0.1))


def test_names_that_nobody_answers_for_do_not_pile_up() -> None:
    """A look-up that hangs occupies its slot until it ends, even if its caller has given up."""
    begun: list[str] = []
    answer = asyncio.Event()

    async def hanging(host: str, port: int) -> Any:
        begun.append(host)
        await answer.wait()
        return [PUBLIC]

    async def main() -> None:
        dialled = Dialled()
        way = Network(Rules.of("public"), hanging, dialled)

        async def connect(number: int) -> None:
            with suppress(TimeoutError, ConnectionRefusedError):
                await way.connect(f"n{number}.example", 80, 0.05)

        await asyncio.gather(*map(connect, range(100)))
        assert len(begun) == 16
        assert dialled.addresses == []
        answer.set()
        await connect(100)
        assert dialled.addresses == [(PUBLIC, 80)]

    run(main())


def test_the_real_resolver_keeps_no_loop_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work in the loop's default threads is not blocked either."""
    held = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: held.wait(60))

    async def main() -> None:
        way = Network(Rules.of("public"))
        waiting = [asyncio.ensure_future(way.connect(f"n{n}.example", 80, 60)) for n in range(64)]
        try:
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 20) == "free"
        finally:
            held.set()
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    run(main())

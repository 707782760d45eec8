# Shows V23
"""Attacks on the socket: slow, huge and ambiguous requests, and requests of other origins."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.server import guard, running
from tests.certificates import own_certificate
from tests.replacing import patches_everywhere
from tests.server.api import LOCAL, OWNER
from tests.server.served import Served, everything, status, until

CONNECTIONS = 30


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with patches_everywhere() as patch:
        patch.setattr(guard, "BODY_SECONDS", 0.3)
        patch.setattr(running, "READER_SECONDS", 1)
        patch.setattr("flowengine.server.records.STRANGERS", 10_000)  # all tests are one stranger
        served = Served(tmp_path_factory.mktemp("served"), connections=CONNECTIONS)
        yield served
    served.close()


def test_a_connection_serves_several_requests(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    used = set()
    for _ in range(3):
        connection.request("GET", "/v1/me", headers={"Authorization": f"Bearer {LOCAL}"})
        used.add(connection.sock)
        answer = connection.getresponse()
        assert (answer.status, json.load(answer)["user"]) == (200, OWNER)
    assert len(used) == 1
    connection.close()


def test_a_body_that_stops_ends_the_connection(served: Served) -> None:
    answer = served.send(
        served.head("POST /v1/executions", "Content-Type: application/json", "Content-Length: 9")
        + b"{"
    )
    assert status(answer) == 408


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (["Content-Length: 2", "Content-Length: 3"], 400),
        (["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], 400),
        (["X-A: 1\x00"], 400),
        (["Content-Length: +2"], 400),
        (["Host: other"], 400),
        (["X-A: " + "a" * 1_000_000], 400),
    ],
)
def test_an_ambiguous_or_huge_head_is_refused(served: Served, more: list[str], code: int) -> None:
    assert status(served.send(served.head("POST /v1/executions", *more) + b"{}")) == code


# Shows V22
def test_what_comes_too_slowly_is_on_record(served: Served) -> None:
    served.send(served.head("POST /v1/executions", "Content-Length: 9") + b"{")
    why = "the body did not arrive in time"
    audited = served.api.records.audited
    until(lambda: why in [entry["why"] for entry in audited(None, 1)])
    assert audited(None, 1)[0]["address"] == "127.0.0.1"


def test_a_body_without_a_length_is_bounded_too(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(
            served.head(
                "POST /v1/executions",
                "Content-Type: application/json",
                "Transfer-Encoding: chunked",
            )
        )
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        sent = 0
        try:
            for _ in range(1000):
                connection.sendall(chunk)
                sent += 1
        except OSError:
            pass
        assert sent < 1000
    head = served.head("POST /v1/executions", "Content-Length: 9999999999999")
    assert status(served.send(head)) == 413


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example", "0.0.0.0", "[::]"],
)
def test_another_host_is_refused(served: Served, host: str) -> None:
    assert status(served.send(served.head(host=host))) == 421


@pytest.mark.parametrize(
    "header",
    [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: http://127.0.0.1:1",
        "Sec-Fetch-Site: cross-site",
    ],
)
def test_a_page_of_another_origin_changes_nothing(served: Served, header: str) -> None:
    answer = served.send(
        served.head(
            "POST /v1/signals/arrived", header, "Content-Type: application/json",
            "Content-Length: 2", "Connection: close",
        )
        + b"{}"
    )  # fmt: skip
    assert status(answer) == 403
    assert b"access-control" not in answer.lower()


def test_every_answer_has_the_headers_that_protect_browsers(served: Served) -> None:
    for line in ("GET /v1/me", "GET /v1/none", "DELETE /v1/me"):
        answer = served.send(served.head(line, "Connection: close")).lower()
        assert b"content-security-policy: default-src 'none'; script-src 'self'" in answer
        assert b"x-content-type-options: nosniff" in answer
        assert b"cache-control: no-store" in answer
        assert b"server:" not in answer


def test_connections_are_bounded(served: Served) -> None:
    opened = [served.connect() for _ in range(CONNECTIONS)]
    try:
        assert status(served.send(served.head())) == 503
    finally:
        for connection in opened:
            connection.close()
    close = served.head("GET /v1/me", "Connection: close")
    until(lambda: status(served.send(close)) == 200)


@pytest.fixture(scope="module", params=["plain", "tls"])
def reached(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with an execution of 8 MB, with and without TLS."""
    if request.param == "plain":
        served = request.getfixturevalue("served")
    else:
        folder = tmp_path_factory.mktemp("tls")
        own = str(own_certificate(folder, "flows.example.com"))
        served = Served(folder, certificate=own, private_key=own)
    engine = served.api.engine
    id = engine.start(served.api.flows[0], {"amount": 1, "reason": "x" * 8_000_000})
    engine.resume(id)
    yield served, id
    if request.param == "tls":
        served.close()


def test_a_reader_gets_short_and_long_answers(reached: tuple[Served, str]) -> None:
    served, id = reached
    with served.connect() as connection:
        for path, least in (("/v1/me", 9), (f"/v1/executions/{id}", 8_000_000)):
            connection.sendall(served.head(f"GET {path}"))
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert answer.status == 200
            text = answer.read()
            assert len(text) > least
            assert json.loads(text)


@pytest.mark.endurance
def test_a_reader_that_does_not_read_is_cut_off(reached: tuple[Served, str]) -> None:
    served, id = reached
    with served.connect(buffer=4096) as connection:
        connection.sendall(served.head(f"GET /v1/executions/{id}"))
        connection.recv(1)
        until(lambda: not served.server.server_state.connections)
        assert len(everything(connection)) < 8_000_000


def test_forwarded_addresses_are_believed_from_a_proxy_only(served: Served) -> None:
    served.send(
        served.head("GET /v1/me", "X-Forwarded-For: 9.9.9.9", "Connection: close").replace(
            LOCAL.encode(), b"fe_wrong"
        )
    )
    assert served.api.records.audited(None, 1)[0]["address"] == "127.0.0.1"


def test_on_other_addresses_only_the_proxy_connects_and_its_word_counts(tmp_path: Path) -> None:
    """The name of the host decides; it listens on loopback here."""
    for proxy, code in (("10.0.0.1", 403), ("127.0.0.1", 401)):
        (tmp_path / proxy).mkdir()
        served = Served(tmp_path / proxy, host="0.0.0.0", proxies=(proxy,))
        try:
            head = served.head("GET /v1/me", "X-Forwarded-For: 9.9.9.9", "Connection: close")
            assert status(served.send(head.replace(LOCAL.encode(), b"fe_wrong"))) == code
            audited = served.api.records.audited(None, 1)
        finally:
            served.close()
    assert audited[0]["address"] == "9.9.9.9"

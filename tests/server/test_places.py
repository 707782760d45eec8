"""One user takes none of the places of others: uploads, streams, conversations, sessions of MCP."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from flowengine.server import application, guard, records
from flowengine.server.mcp import http
from tests.replacing import Limits
from tests.server.api import LOCAL, Api
from tests.server.served import Served, Stream, everything, status, until
from tests.server.test_mcp_http import HEADERS, INITIALIZE


@pytest.fixture
def served(api: Api, limits: Limits) -> Iterator[Served]:
    limits(application, MOST_OPEN=3)
    limits(guard, BODY_SECONDS=0.5, BODY_RATE=100_000)
    served = Served(api)
    yield served
    served.stop()


def uploading(served: Served, token: str, size: int, sent: int) -> socket.socket:
    """Return a connection on which only a part of an upload is sent."""
    lines = ("POST /v1/artifacts?name=a.txt HTTP/1.1", f"Host: 127.0.0.1:{served.port}")
    head = "\r\n".join([*lines, f"Authorization: Bearer {token}", f"Content-Length: {size}"])
    connection = served.connect()
    connection.sendall(f"{head}\r\n\r\n".encode() + b"x" * sent)
    return connection


def everything_of(connection: socket.socket) -> bytes:
    """Return one answer."""
    with connection:
        return connection.recv(65536)


def test_a_body_that_trickles_ends_the_connection(served: Served) -> None:
    with uploading(served, LOCAL, 1000, 1) as connection:
        connection.settimeout(0.02)
        answer = b""
        for _ in range(1000):
            try:
                answer = connection.recv(65536)
                break
            except TimeoutError:
                connection.send(b"x")
        assert status(answer) == 408
        connection.settimeout(30)
        everything(connection)


def test_uploads_of_one_user_leave_places_to_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(api)
    otto, ada = api.token("user:otto"), api.token("user:ada")
    waiting = [uploading(served, otto, 10, 1) for _ in range(20)]
    assert status(everything_of(uploading(served, ada, 10, 10))) == 201
    for connection in waiting:
        connection.close()
    served.stop()


def test_a_body_is_not_late_while_the_server_does_not_read_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.application._uploading, "of_user", 2)
    idle = [uploading(served, LOCAL, 10, 1) for _ in range(2)]
    whole = uploading(served, LOCAL, 300_000, 300_000)
    assert status(everything_of(whole)) == 201
    assert [status(everything_of(connection)) for connection in idle] == [408, 408]


def test_answers_that_last_are_counted_for_each_user(served: Served) -> None:
    api = served.api
    ids = [api.engine.start(api.flows[0], {"amount": n}) for n in range(3)]
    ada, otto = api.token("user:ada"), api.token("user:otto")

    def get(token: str, path: str = "/v1/me") -> int:
        return httpx2.get(
            served.url + path, headers={"authorization": f"Bearer {token}"}
        ).status_code

    streams = [Stream(served, id, token=ada) for id in ids]
    assert (get(ada), get(otto)) == (429, 200)
    streams[0].close()
    until(lambda: get(ada) == 200)
    for stream in streams[1:]:
        stream.close()
    refused = [one["user"] for one in api("GET", "/v1/audit")["items"] if one["status"] == 429]
    assert set(refused) >= {"user:ada"}


def test_sessions_of_mcp_are_counted_for_each_user(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http.SESSIONS, "of_user", 2)
    ada, adae = served.api.token("user:ada"), served.api.token("user:ada")

    def begin(token: str) -> httpx2.Response:
        headers = {**HEADERS, "authorization": f"Bearer {token}"}
        return httpx2.post(f"{served.url}/mcp", json=INITIALIZE, headers=headers, timeout=60)

    first = begin(ada)
    answers = [begin(token) for token in (adae, ada, adae, LOCAL)]
    assert [answer.status_code for answer in answers] == [200, 429, 429, 200]
    assert "2 sessions of MCP" in answers[1].json()["detail"]
    session = {"mcp-session-id": first.headers["mcp-session-id"]}
    ended = httpx2.request(
        "DELETE",
        f"{served.url}/mcp",
        headers={**HEADERS, "authorization": f"Bearer {ada}", **session},
    )
    assert ended.status_code == 200
    assert begin(ada).status_code == 200


def test_no_user_drops_the_entries_of_others_from_the_record(
    tmp_path: Path, limits: Limits
) -> None:
    limits(records, AUDITED=100, AUDITED_BETWEEN=10)
    with closing(records.ServerRecords(str(tmp_path))) as kept:
        for number, user in enumerate(["otto"] * 5 + ["ada"] * 300):
            kept.audit(number, "POST", "/v1/executions", 200, user=user)
        users = [entry["user"] for entry in kept.audited(None, 1000)]
    assert users[-5:] == ["otto"] * 5
    assert 50 <= len(users) - 5 <= 100

# Shows V39
"""MCP over HTTP and over standard input and output, by the SDK's client on real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from flowengine.server import rights
from flowengine.server.mcp import http
from flowengine.server.mcp.tools import STATUS
from tests.replacing import Limits
from tests.server.api import LOCAL, OWNER
from tests.server.mcp import MODES
from tests.server.served import Served, status, until

if TYPE_CHECKING:
    from mcp.client import Client

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    config = tmp_path / "config" / "flowengine"
    config.mkdir(parents=True)
    (config / "settings.yaml").write_text("access: [{who: [sam], role: starter}]")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    served = Served(tmp_path)
    yield served
    served.close()


@asynccontextmanager
async def client_of(served: Served, mode: str, token: str = LOCAL) -> AsyncIterator[Client]:
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{served.url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@pytest.mark.parametrize("mode", MODES)
def test_tools_are_called_over_http(served: Served, mode: str) -> None:
    async def talk() -> Any:
        async with client_of(served, mode) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            call = asyncio.create_task(client.call_tool("expense", {"amount": 1}))
            await asyncio.to_thread(until, served.api.engine.due)
            [due] = served.api.engine.due()
            await asyncio.to_thread(served.api.engine.resume, due.execution)
            return names, (await call).structured_content

    names, found = asyncio.run(talk())
    assert names == ["expense", "parcel", STATUS]
    [wait] = found["waits"]
    assert wait["look"] == f"{served.url}/approvals/{wait['id']}"


@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_stops_ends_the_calls_that_wait(served: Served, mode: str) -> None:
    async def talk() -> Any:
        begun = asyncio.Event()

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        async with client_of(served, mode) as client:
            await client.list_tools()  # later, it would ask for the schema of the result
            call = asyncio.create_task(
                client.call_tool("expense", {"amount": 1}, progress_callback=progress)
            )
            await begun.wait()
            served.server.should_exit = True
            return (await call).structured_content

    assert asyncio.run(talk())["status"] == "recorded"


@pytest.mark.endurance
@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_waits_ends_with_its_token(served: Served, mode: str, limits: Limits) -> None:
    async def talk() -> str:
        async with client_of(served, mode, served.api.token(OWNER)) as client:
            await client.list_tools()
            call = asyncio.create_task(client.call_tool("expense", {"amount": 1}))
            await asyncio.to_thread(until, served.api.engine.due)
            limits(rights, CHECKED_EVERY=0.0)
            served.api.records.revoke_token(served.api.records.tokens()[-1].name, 2)
            return str(await call)

    assert "expired or revoked" in asyncio.run(talk())


@pytest.mark.endurance
def test_a_session_stream_ends_with_its_token(served: Served, limits: Limits) -> None:
    headers = {**HEADERS, "authorization": f"Bearer {served.api.token(OWNER)}"}
    begun = httpx2.post(f"{served.url}/mcp", json=INITIALIZE, headers=headers, timeout=60)
    headers["mcp-session-id"] = begun.headers["mcp-session-id"]
    limits(http, CHECKED_EVERY=0.1)
    limits(rights, CHECKED_EVERY=0.0)
    with httpx2.stream("GET", f"{served.url}/mcp", headers=headers, timeout=20) as stream:
        assert stream.status_code == 200
        served.api.records.revoke_token(served.api.records.tokens()[-1].name, 2)
        with pytest.raises(httpx2.RemoteProtocolError, match="peer closed"):
            stream.read()


@pytest.mark.endurance
def test_each_request_needs_the_token_of_its_session(served: Served) -> None:
    def send(token: str | None, body: Any = INITIALIZE, **headers: str) -> httpx2.Response:
        given = {**HEADERS, **headers}
        if token is not None:
            given["authorization"] = f"Bearer {token}"
        return httpx2.post(f"{served.url}/mcp", json=body, headers=given, timeout=60)

    sam = served.api.token("user:sam")
    refused = send(None)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert send("fe_wrong").status_code == 401
    assert send(LOCAL, origin="http://evil.example").status_code == 403
    host = served.head("POST /mcp", "Content-Length: 0", host="evil.example:80")
    assert status(served.send(host)) == 421
    assert send(LOCAL, {**INITIALIZE, "pad": "x" * 2**20}).status_code == 413
    session = {"mcp-session-id": send(sam).headers["mcp-session-id"]}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert send(LOCAL, listing, **session).status_code == 404
    assert send(sam, listing, **session).status_code == 200
    [token] = served.api.records.tokens()
    served.api.records.revoke_token(token.name, 2)
    assert send(sam, listing, **session).status_code == 401
    modern = {"mcp-protocol-version": MODES[1]}
    assert send(None, listing, **modern).status_code == 401
    assert send(LOCAL, listing, **modern).status_code == 400  # without the metadata of a request
    assert send(LOCAL, content_type="text/plain").status_code in (200, 400, 415)

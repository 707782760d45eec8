"""The public contract suite over the kinds that need no sandbox (E10, E12)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flowengine.sdk.web.urls import UrlRefused
from flowengine.testing.environment_conformance import CHECKS, Check, ProviderCase
from flowengine_envs.kinds.files import Files, Folder
from flowengine_envs.kinds.http import Http, WebClient
from flowengine_envs.kinds.sqlite import Database, Sqlite
from flowengine_envs.mcp.provider import Mcp
from flowengine_envs.mcp.session import McpSession

SERVER = [sys.executable, str(Path(__file__).with_name("mcp") / "nasty_server.py")]


def query(database: Database) -> None:
    assert database.query("select ? as a", [1]) == [{"a": 1}]


def write(folder: Folder) -> None:
    folder.write("deep/a.txt", "a")
    assert folder.read("deep/a.txt") == b"a"


def call(session: McpSession) -> None:
    assert session.call_tool("count").text.isdigit()


def ask(client: WebClient) -> None:
    with pytest.raises(UrlRefused):
        client.send("http://localhost:1/")


CASES: dict[str, ProviderCase] = {
    "sqlite": ProviderCase(Sqlite, {"kind": "sqlite", "config": {"path": ":memory:"}}, query),
    "files": ProviderCase(Files, {"kind": "files"}, write),
    "http": ProviderCase(Http, {"kind": "http"}, ask),
    "mcp": ProviderCase(Mcp, {"kind": "mcp", "config": {"command": SERVER}}, call),
}


@pytest.mark.endurance
@pytest.mark.wherever("kind")
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
# Shows E54
def test_a_kind_conforms(check: Check, kind: str) -> None:
    check(CASES[kind])

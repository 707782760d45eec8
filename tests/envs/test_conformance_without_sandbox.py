"""The public contract suite over the kinds that need no sandbox (E10, E12-E16, E22)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine.testing.environment_conformance import CHECKS, Case, Check
from flowengine_envs.kinds.files import Files, Folder
from flowengine_envs.kinds.http import Http, WebClient
from flowengine_envs.kinds.sqlite import Database, Sqlite
from flowengine_envs.mcp.provider import Mcp
from flowengine_envs.mcp.session import Session
from flowengine_envs.network.connections import UrlRefused

SERVER = [sys.executable, str(Path(__file__).with_name("mcp") / "nasty_server.py")]


def query(database: Database) -> None:
    assert database.query("select ? as a", [1]) == [{"a": 1}]


def write(folder: Folder) -> None:
    folder.write("deep/a.txt", "a")
    assert folder.read("deep/a.txt") == b"a"


def call(session: Session) -> None:
    assert session.call_tool("count").text.isdigit()


def ask(client: WebClient) -> None:
    with pytest.raises(UrlRefused):
        client.send("http://localhost:1/")


CASES: dict[str, Case] = {
    "sqlite": Case(Sqlite, {"kind": "sqlite", "config": {"path": ":memory:"}}, query),
    "files": Case(Files, {"kind": "files"}, write),
    "http": Case(Http, {"kind": "http"}, ask),
    "mcp": Case(Mcp, {"kind": "mcp", "config": {"command": SERVER}}, call),
}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_kind_conforms(check: Check, kind: str) -> None:
    check(CASES[kind])


@pytest.mark.parametrize("kind", CASES)
def test_scopes_share_and_end(kind: str, tmp_path: Path) -> None:
    """One session shares, each call and each execution has its own (E12, E15, E16)."""
    from flowengine.execution_environment import EnvironmentManager

    events: list[Any] = []
    with EnvironmentManager(tmp_path / "environments") as manager:
        manager.subscribe(events.append)
        opened: dict[str, int] = {}
        for scope, owners in (
            ("action_call", ["c1", "c2"]),
            ("execution", ["e1", "e2"]),
            ("session", ["ana", "ana"]),
        ):
            resources = []
            for owner in owners:
                spec = {**CASES[kind].spec, "scope": scope, "owner_id": owner}
                handle = manager.ensure(spec)
                CASES[kind].use(handle.resource)
                resources.append(handle.resource)
                if scope != "session":
                    report = manager.release_scope(scope, owner)  # type: ignore[arg-type]
                    assert (len(report.released), report.failed) == (1, [])
            opened[scope] = len(set(map(id, resources)))
        assert opened == {"action_call": 2, "execution": 2, "session": 1}
        shared = manager.list(scope="session")
        assert [each["holds"] for each in shared] == [2]
        assert len(manager.release_scope("session", "ana").released) == 1


@pytest.mark.parametrize("kind", CASES)
def test_leaving_by_an_exception_gives_it_back(kind: str, tmp_path: Path) -> None:
    from flowengine.execution_environment import EnvironmentManager

    with EnvironmentManager(tmp_path / "environments") as manager:
        spec = {**CASES[kind].spec, "scope": "session"}

        def fail() -> None:
            with manager.use(spec) as resource:
                CASES[kind].use(resource)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert [each for each in manager.list() if each["state"] != "declared"] == []

# Shows E57
"""Servers in a sandbox: their access, and the end of all their processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import randrange
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentLost, EnvironmentStartFailed, EnvironmentUnavailable
from flowengine_envs.mcp.session import McpSession
from flowengine_envs.sandboxes.cgroups import tree
from flowengine_envs.sandboxes.processes import has
from tests.envs.containers import skip_without_docker
from tests.envs.mcp.conftest import HERE
from tests.envs.mcp.package_registry import registry

COMMAND = ["python3", "/srv/prying_server.py"]
Sandboxed = Callable[..., McpSession]


@pytest.fixture(params=["namespace", "docker"])
def provider(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        skip_without_docker()
    elif not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    return str(request.param)


@pytest.fixture
def sandboxed(manager: EnvironmentManager, tmp_path: Path) -> Sandboxed:
    """Opens a session with the prying server, in a sandbox that sees this folder."""

    def sandboxed(provider: str, config: dict[str, Any] | None = None, **more: Any) -> McpSession:
        folder = {"kind": "files", "scope": "session", "config": {"path": str(HERE), "mode": "ro"}}
        spec = {
            "kind": "mcp",
            "scope": "session",
            "provider": provider,
            "folder": str(tmp_path),
            "mounts": {"/srv": manager.declare(folder)["id"]},
            "config": config or {"command": COMMAND},
            **more,
        }
        session: McpSession = manager.ensure(spec).resource
        return session

    return sandboxed


@pytest.fixture
def listening() -> Iterator[int]:
    """A local port that greets each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"hello")

        threading.Thread(target=greet, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def command_lines() -> list[str]:
    """Return the command lines of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def sleeps(seconds: str) -> bool:
    return any(f"sleep {seconds}" in line for line in command_lines())


def comes(condition: Callable[[], bool]) -> bool:
    """Wait for a condition. The time limit only guards against a hang."""
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def test_a_server_sees_its_sandbox_and_is_reached_from_outside_by_its_streams_alone(
    provider: str,
    sandboxed: Sandboxed,
    listening: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKEN", "SEKRET-token")
    (tmp_path / "private").write_text("")
    config = {"command": COMMAND, "env": {"T": "secret:TOKEN"}, "cwd": "/srv"}
    session = sandboxed(provider, config)

    assert session.call_tool("look", {"path": str(tmp_path / "private")}).text == "False"
    assert session.call_tool("look", {"path": "prying_server.py"}).text == "True"
    to = {"host": "localhost", "port": listening}
    assert session.call_tool("connect", to).text == "unreachable"
    lost = "getaddrinfo ENOTFOUND api.invalid"
    reaches = "programs in this environment reach no network: allow hosts in policy.network"
    assert session.call_tool("fail", {"text": lost}).text == f"{lost}\n{reaches}"
    assert session.call_tool("fail", {"text": "no such page"}).text == "no such page"
    env = json.loads(session.call_tool("env").text)
    assert env["T"] == "SEKRET-token"
    assert env["HOME"] == "/home/flow"
    ours = {"FLOWENGINE_ENVIRONMENT", "HOSTNAME", "PIP_BREAK_SYSTEM_PACKAGES", "PWD"}
    assert env.keys() - ours <= {"T", "PATH", "HOME", "LANG", "LC_CTYPE"}
    assert not [line for line in command_lines() if "SEKRET" in line]


@pytest.mark.endurance
@pytest.mark.parametrize("how", ["release", "crash"])
# Shows E54
def test_what_a_server_left_behind_ends_with_the_sandbox(
    provider: str, sandboxed: Sandboxed, manager: EnvironmentManager, how: str
) -> None:
    seconds = str(randrange(10**8, 10**9))
    session = sandboxed(provider)
    session.call_tool("daemon", {"seconds": seconds})
    assert comes(lambda: sleeps(seconds))

    if how == "crash":
        with pytest.raises(EnvironmentLost):
            session.call_tool("die")
    assert manager.release_scope("session").failed == []

    assert comes(lambda: not sleeps(seconds))


@pytest.mark.endurance
@pytest.mark.skipif(tree() is None, reason="no control groups for this user")
def test_a_server_that_meets_a_limit_is_lost_and_the_limit_is_told(sandboxed: Sandboxed) -> None:
    greedy = sandboxed("namespace", limits={"memory": "200MiB"}, resource_key="greedy")
    with pytest.raises(EnvironmentLost, match=r"limits\.memory"):
        greedy.call_tool("hold", {"blocks": 1000})


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the user's programs, in PATH and outside of the temporary folders."""
    folder = Path.home() / f".flowengine-test-{os.getpid()}" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    yield folder
    shutil.rmtree(folder.parent)


def write_program(path: Path) -> None:
    path.write_text("#!/bin/sh\nexec python3 /srv/prying_server.py\n")
    path.chmod(0o755)


def test_a_program_of_the_user_finds_the_installation_that_it_belongs_to(
    sandboxed: Sandboxed, programs: Path
) -> None:
    """Like npx: a link to a script that `env` runs with the node next to the link."""
    packages = programs.parent / "lib" / "node_modules" / "npm"
    packages.mkdir(parents=True)
    (packages / "cli").write_text("#!/usr/bin/env own-runner\n")
    (packages / "cli").chmod(0o755)
    (programs / "own-npx").symlink_to("../lib/node_modules/npm/cli")
    write_program(programs / "own-runner")

    session = sandboxed("namespace", {"command": "own-npx"})

    assert session.call_tool("count").text == "1"


def test_a_command_that_fetches_reaches_the_registry_of_this_user_and_learns_no_login(
    sandboxed: Sandboxed, programs: Path, listening: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(programs / "uvx")  # a stand-in for the program that downloads packages
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    monkeypatch.setenv("UV_INDEX_URL", f"http://me:SEKRET@localhost:{listening}/simple")

    session = sandboxed("namespace", {"command": ["uvx", "some-server"]})

    to = {"host": "localhost", "port": listening}
    assert session.call_tool("connect", to).text == "hello"
    env = json.loads(session.call_tool("env").text)
    assert env["UV_DEFAULT_INDEX"] == f"http://localhost:{listening}/simple"
    assert "SEKRET" not in json.dumps(env)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"command": "no-such-program-anywhere"}, "no program no-such-program-anywhere"),
        ({"command": ["/srv/no-such-program"]}, "/srv/no-such-program: No such file"),
        ({"command": COMMAND, "cwd": "no/such/folder"}, "no/such/folder: No such file"),
        ({"command": ["python3", "/srv/nasty_server.py", "end"]}, "cannot start: no licence"),
    ],
)
def test_what_does_not_start_in_a_sandbox_says_why(
    sandboxed: Sandboxed, config: dict[str, Any], told: str
) -> None:
    with pytest.raises(EnvironmentStartFailed, match=told):
        sandboxed("namespace", config)


@pytest.mark.skipif(not has("npx"), reason="no npx")
def test_a_package_is_fetched_and_run_in_a_sandbox_where_nothing_else_is_said(
    manager: EnvironmentManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").write_text("")
    spec = {"kind": "mcp", "scope": "session", "config": {"command": ["npx", "-y", "tiny-server"]}}
    with registry() as address:
        monkeypatch.setenv("npm_config_registry", address)
        handle = manager.ensure(spec)
        session: Any = handle.resource

        assert (handle.provider, handle.isolation) == ("namespace", "namespace")
        assert session.call_tool("look", {"path": "/usr"}).text == "true"
        assert session.call_tool("look", {"path": str(tmp_path / "private")}).text == "false"

        place = address.removeprefix("http://")
        told = f"npx fetches from {place}, which policy.network does not name"
        with pytest.raises(EnvironmentUnavailable, match=told):
            manager.ensure({**spec, "policy": {"network": ["db.example.org:5432"]}})

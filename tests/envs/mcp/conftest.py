"""Fixtures: MCP sessions opened through the manager."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine_envs.mcp.session import McpSession
from tests.alive import alive
from tests.envs.opening import managed_processes
from tests.shared import shared_while

HERE = Path(__file__).parent
NASTY = [sys.executable, str(HERE / "nasty_server.py")]
Open = Callable[..., McpSession]


@pytest.fixture(scope="session")
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server on a free port. Tests must not add tools to it."""
    server = subprocess.Popen(
        [sys.executable, str(HERE / "sdk_server.py"), "http"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    shared_while(request, lambda: server.poll() is None)
    yield f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"
    server.terminate()
    server.wait()
    server.stdout.close()


@pytest.fixture
def opened(manager: EnvironmentManager, tmp_path: Path) -> Open:
    """Opens a session with a server. `limits` are its limits, other keywords its `config`."""

    def opened(
        limits: dict[str, Any] | None = None, name: str = "server", **config: Any
    ) -> McpSession:
        spec = {
            "kind": "mcp",
            "scope": "session",
            "resource_key": name,
            "folder": str(tmp_path),
            "config": config,
            "limits": limits or {},
        }
        session: McpSession = manager.ensure(spec).resource
        return session

    return opened


@pytest.fixture
def nasty(opened: Open) -> Open:
    """Opens a session with the server that violates the protocol."""
    return lambda *how, **more: opened(command=[*NASTY, *how], **more)


@pytest.fixture(autouse=True)
def nothing_is_left(manager: EnvironmentManager) -> Iterator[None]:
    """After each test, check that no process of its environments survives them."""
    yield
    manager.close()
    assert managed_processes(manager) == []


def ends(pid: int) -> bool:
    """Wait until a process has ended. The time limit only guards against a hang."""
    until = time.monotonic() + 60
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)

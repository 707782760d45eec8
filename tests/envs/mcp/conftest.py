"""Sessions with servers, opened through the manager."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk.environments import VARIABLE
from flowengine.sdk.process_tree import marked
from flowengine_envs.mcp.session import Session
from tests.alive import alive

HERE = Path(__file__).parent
NASTY = [sys.executable, str(HERE / "nasty_server.py")]
Open = Callable[..., Session]


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Of a server that listens on a port of its own choice; no test gives it further tools."""
    server = subprocess.Popen(
        [sys.executable, str(HERE / "sdk_server.py"), "http"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    yield f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"
    server.terminate()
    server.wait()
    server.stdout.close()


@pytest.fixture
def opened(manager: EnvironmentManager, tmp_path: Path) -> Open:
    """Opens a session with a server; `config` as keywords, limits as `limits`."""

    def opened(
        limits: dict[str, Any] | None = None, name: str = "server", **config: Any
    ) -> Session:
        spec = {
            "kind": "mcp",
            "scope": "session",
            "resource_key": name,
            "folder": str(tmp_path),
            "config": config,
            "limits": limits or {},
        }
        session: Session = manager.ensure(spec).resource
        return session

    return opened


@pytest.fixture
def nasty(opened: Open) -> Open:
    """Opens a session with the server that breaks the rules."""
    return lambda *how, **more: opened(command=[*NASTY, *how], **more)


@pytest.fixture(autouse=True)
def nothing_is_left(manager: EnvironmentManager) -> Iterator[None]:
    """Whatever a test did: when its environments have ended, none of their processes lives."""
    yield
    manager.close()
    assert processes(manager) == []


def processes(manager: EnvironmentManager) -> list[int]:
    """Return who runs for the environments of a manager."""
    name = manager._around.registry.name
    return [pid for pid, mark in marked(VARIABLE).items() if f".{name}." in mark]


def ends(pid: int) -> bool:
    """Wait until a process has ended; a time bounds only a hang."""
    until = time.monotonic() + 60
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)

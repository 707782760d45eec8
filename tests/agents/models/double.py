"""aimock, a double of providers: their protocols as somebody else has built them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "model_servers/node_modules/@copilotkit/aimock/dist/cli.js"
MODELS = ("openai/gpt-4o", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash")


class Double:
    """The running program."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def settings(self, model: str, **headers: str) -> dict[str, Any]:
        """What leads a model's requests here; the headers have the double misbehave."""
        path = {"openai": "/v1", "anthropic": "", "gemini": "/v1beta"}[model.partition("/")[0]]
        found: dict[str, Any] = {"api_key": "key", "api_base": f"{self.url}{path}"}
        if headers:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            found["extra_headers"] = named
        return found

    def journal(self) -> list[dict[str, Any]]:
        """Every request, as the double understood it."""
        entries: list[dict[str, Any]] = self._ask("GET", "/__aimock/journal")
        return entries

    def forget(self) -> None:
        self._ask("POST", "/__aimock/reset/journal")

    def _ask(self, method: str, path: str) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path)
            return json.loads(connection.getresponse().read() or b"null")
        finally:
            connection.close()


@contextmanager
def running(fixtures: list[dict[str, Any]], folder: Path) -> Iterator[Double]:
    node = shutil.which("node")
    if node is None or not PROGRAM.exists():
        pytest.skip("no double: npm ci --prefix tests/model_servers")
    file = folder / "fixtures.json"
    file.write_text(json.dumps({"fixtures": fixtures}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [node, str(PROGRAM), "-p", str(port), "-f", str(file), "--strict"]
    environment = {"PATH": os.environ["PATH"]}
    process = subprocess.Popen([*command, "--log-level", "silent"], env=environment)
    try:
        _wait_for(port, process)
        yield Double(port)
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "the double has ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.05)  # it does not say when it listens
    raise AssertionError("the double does not listen")

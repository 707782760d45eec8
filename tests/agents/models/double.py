"""aimock, a third-party double of providers and their protocols."""

from __future__ import annotations

import json
import os
import re
import shutil
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
        """Return settings that direct a model's requests here. The headers cause misbehavior."""
        path = {"openai": "/v1", "anthropic": "", "gemini": "/v1beta"}[model.partition("/")[0]]
        found: dict[str, Any] = {"api_key": "key", "api_base": f"{self.url}{path}"}
        if headers:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            found["extra_headers"] = named
        return found

    def journal(self) -> list[dict[str, Any]]:
        """Return every request, as parsed by the double."""
        entries: list[dict[str, Any]] = self._ask("GET", "/__aimock/journal")
        return entries

    def forget(self) -> None:
        self._ask("POST", "/__aimock/reset/journal")

    def _ask(self, method: str, path: str) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
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
    command = [node, str(PROGRAM), "-p", "0", "-f", str(file), "--strict"]
    said = folder / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(command, env={"PATH": os.environ["PATH"]}, stdout=out)
    try:
        yield Double(_port(said, process))
    finally:
        process.kill()
        process.wait()


def _port(said: Path, process: subprocess.Popen[bytes]) -> int:
    """Wait until the program prints its port."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)\n", said.read_text()):
            return int(found[1])
        assert process.poll() is None, f"the double has ended: {said.read_text()}"
        time.sleep(0.05)
    raise AssertionError(f"the double does not listen: {said.read_text()}")

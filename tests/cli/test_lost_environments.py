"""A daemon or server that disappears before a resume: the execution stalls, and continues later."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.envs.containers import skip_without_docker
from tests.envs.mcp.http_server import HttpServer
from tests.own_environments import environments_in

FLOW = """\
flowengine: 1
id: report
environments:
  box: {kind: python, provider: docker, on_wait: release}
steps:
  - {id: first, run: "open('note', 'a').write('once '); x = 1", in: box}
  - {id: ask, approval: Go on?}
  - {id: then, run: "open('note').read()", in: box}
outputs: {note: "${{ steps.then.output.value }}", told: "${{ steps.then.output.stderr }}"}
"""
SERVER = """\
flowengine: 1
id: report
environments:
  server: {kind: mcp, config: {url: "URL"}, on_wait: release}
steps:
  - {id: first, python: "calls:count", environments: [server], effect: idempotent}
  - {id: ask, approval: Go on?}
  - {id: then, python: "calls:count", environments: [server], effect: idempotent}
outputs: {text: "${{ steps.then.output }}"}
"""
CALLS = """
async def count(server):
    return (await server.async_call_tool("count", {})).text
"""


class Relay:
    """A proxy socket for a Docker daemon, which can be removed."""

    def __init__(self, path: Path, to: str = "/var/run/docker.sock") -> None:
        self._path = path
        self._to = to
        self.host = f"unix://{path}"

    @contextmanager
    def there(self) -> Iterator[None]:
        """Make the daemon available within the block."""
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(self._path))
        listening.listen()
        threading.Thread(target=self._serve, args=(listening,), daemon=True).start()
        try:
            yield
        finally:
            self._path.unlink()
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    def _serve(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near = listening.accept()[0]
                threading.Thread(target=self._relay, args=(near,), daemon=True).start()

    def _relay(self, near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX) as far:
            far.connect(self._to)
            back = threading.Thread(target=_pump, args=(far, near), daemon=True)
            back.start()
            _pump(near, far)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def stall(flowengine: CommandLine, wait: str) -> str:
    """Approve while the environment is unavailable: the execution stalls, as all views report."""
    stalled = flowengine("approve", wait, code=5)
    assert "then           waiting" in stalled.err
    assert "stalled: needs 1 environment" in stalled.err
    assert "then cannot continue: " in stalled.err
    assert "try again  flowengine resume" in stalled.err
    assert "to resume: flowengine resume" in stalled.err
    execution = flowengine.newest()
    [reason] = flowengine("--json", "why", execution).json()
    assert reason["what"].startswith("then cannot continue: ")
    shown = flowengine("--json", "show", execution).json()
    assert shown["status"] == "stalled"
    assert [(s["step"], s["status"]) for s in shown["steps"]] == [
        ("first", "succeeded"),
        ("ask", "succeeded"),
        ("then", "waiting"),
    ]
    [missing] = flowengine("--json", "envs", "list").json()
    assert (missing["state"], missing["owner_id"]) == ("missing", execution)
    assert missing["error"] in reason["what"]
    assert "missing" in flowengine("envs", "list").out
    flowengine("resume", execution, "--no-interactive", code=5)
    return execution


# Shows E99
def test_a_docker_daemon_that_is_gone_when_it_goes_on(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    skip_without_docker()
    relay = Relay(tmp_path / "docker.sock")
    monkeypatch.setenv("DOCKER_HOST", relay.host)
    flow = flowengine.write("report.yaml", FLOW)
    with relay.there():
        [wait] = flowengine("--json", "run", flow, code=4).json()["waits"]

    execution = stall(flowengine, wait["id"])

    with relay.there():
        ended = flowengine("--json", "resume", execution).json()
    assert ended["status"] == "succeeded"
    assert ended["outputs"]["note"] == "once "
    assert ended["outputs"]["told"].startswith("(reopened: ")
    assert not flowengine("--json", "envs", "list").json()


@pytest.mark.endurance
# Shows E99
def test_a_server_that_is_gone_when_it_goes_on(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    flowengine.write("calls.py", CALLS)
    with HttpServer() as server:
        flow = flowengine.write("report.yaml", SERVER.replace("URL", server.url))
        [wait] = flowengine("--json", "run", flow, code=4).json()["waits"]
        server.refuse = 503

        execution = stall(flowengine, wait["id"])

        server.refuse = 0
        ended = flowengine("--json", "resume", execution).json()
        assert ended["status"] == "succeeded"
        assert server.calls == 2


KILLED = """\
flowengine: 1
id: killed
environments: {box: {kind: python}}
steps:
  - {id: first, run: "x = 41; open('note', 'w').write('kept')", in: box}
  - id: then
    run: |
      import os, time
      print('x' in globals(), open('note').read())
      if not os.path.exists('begun'):
          open('begun', 'w').close()
          time.sleep(1000)
    in: box
"""


@pytest.mark.endurance
# Shows E96b
def test_another_worker_takes_over_from_one_that_was_killed(flowengine: CommandLine) -> None:
    """E97: the environment is reopened with its workspace, and reports that it is new."""
    flow = flowengine.write("it.yaml", KILLED)
    worker = flowengine.spawn("run", str(flow))
    while not list(environments_in(flowengine.folder / ".flowengine").rglob("begun")):
        assert worker.poll() is None
        time.sleep(0.2)
    worker.kill()
    worker.communicate()

    ended = flowengine("--json", "resume", flowengine.newest(), "--on-crash", "retry").json()

    assert ended["status"] == "succeeded"
    [first, then] = flowengine("--json", "show", flowengine.newest()).json()["steps"]
    assert (first["attempts"], then["attempts"]) == (1, 2)
    assert then["output"]["stderr"].startswith("(reopened: ")
    assert then["output"]["stdout"] == "False kept\n"
    assert not flowengine("--json", "envs", "list").json()
    assert not list(environments_in(flowengine.folder / ".flowengine").rglob("note"))

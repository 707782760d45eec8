"""A daemon or server that disappears before a resume: the execution stalls, and continues later."""

from __future__ import annotations

import time

import pytest

from tests.cli.conftest import CommandLine
from tests.envs.mcp.http_server import HttpServer
from tests.own_environments import environments_in

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

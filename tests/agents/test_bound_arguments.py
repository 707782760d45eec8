"""Arguments bound by a flow, including secrets: hidden from models and approvers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_text
from tests.agents.flows import NAME, Case, call, flow
from tests.stored_data import stored_in

CANARY = "c4n4ry-0123456789"
SERVER = Path(__file__).with_name("mcp_server.py")
TOOLS = """
import flowengine
from flowengine.sdk import StepContext

def reveals(text: str, key: str, context: StepContext) -> str:
    "Send."
    context.say("said " + key)
    context.log.warning("logged %s", key)
    if text == "fail":
        raise ValueError("failed with " + key)
    return f"sent {text} by {key}"
"""
DECLARED = {
    "python": '{python: "tools:reveals"',
    "shell": '{shell: [sh, -c, "echo sent $0 by $1", "${{ args.text }}", "${{ args.key }}"]',
    "http": '{http: {method: POST, url: "http://127.0.0.1:PORT/", body: "${{ args }}"}',
    "mcp": "{mcp: {command: COMMAND}",
}
"""The tool itself, without the flow's additions."""


EITHER = """
flowengine: 1
id: f
tools:
  put:
    shell: [sh, -c, "echo $0 $1", "${{ default(args.city, 'no city') }}", "${{ args.unit }}"]
    args:
      type: object
      allOf: [{anyOf: [{properties: {city: {type: string}, unit: {}}, required: [city, unit]},
                       {properties: {lat: {type: number}}, required: [lat]}]}]
    with: {unit: km}
steps:
  - {id: a, call: put, with: {city: Bonn}}
  - {id: b, call: put, with: {lat: 5}}
outputs: {a: "${{ steps.a.output }}", b: "${{ steps.b.output }}"}
"""


def test_arguments_in_alternatives_are_visible_checked_and_bound(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(EITHER)
    with Engine(None, workdir=tmp_path) as engine:
        outputs = engine.run(path).outputs

    assert outputs is not None
    assert [outputs[name]["stdout"].strip() for name in "ab"] == ["Bonn km", "no city km"]
    with pytest.raises(FlowFileError, match=r"'args\.town' is not declared"):
        compile_text(EITHER.replace("args.city", "args.town"))


class Echo(BaseHTTPRequestHandler):
    """Responds with the body of the request."""

    got: list[bytes] = []  # noqa: RUF012 - of one server

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append(data)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Suppress request logging."""


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Echo) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        yield httpd.server_address[1]
        httpd.shutdown()
        thread.join()


SECRET = '"${{ secrets.KEY }}"'
"""The bound value. Commands and requests use secrets in `env` and `headers`."""


def asked(folder: Path, kind: str, port: int, text: str, extra: dict[str, Any]) -> Case:
    (folder / "tools.py").write_text(TOOLS)
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "key": {}}}
    listed = folder / "list.json"
    listed.write_text(json.dumps([{"name": "put", "description": "Send.", "inputSchema": schema}]))
    command = json.dumps([sys.executable, str(SERVER), str(listed)])
    what = DECLARED[kind].replace("PORT", str(port)).replace("COMMAND", command)
    args = ", args: {type: object, properties: {text: {type: string}, key: {}}}"
    more = "" if kind in ("python", "mcp") else args
    place = ", in: host}" if kind == "shell" else ""
    if kind == "shell":
        what = "{shell: {command: " + what.removeprefix("{shell: ") + place
    bound = SECRET if kind in ("python", "mcp") else "fixed"
    head = f"""
flowengine: 1
id: f
inputs: {{q: {{type: string, default: Do it.}}}}
defaults: {{model: {NAME}}}
secrets: {{KEY: {{env: KEY}}}}
tools:
  send: {what}{more}, description: Send., with: {{key: {bound}}}, approval: ask}}
"""
    name = "send.put" if kind == "mcp" else "send"
    agent = f"first: {{instructions: Send., tools: [{name}]}}"
    script = [{"calls": [call(name, text=text, **extra)]}, {"text": "."}]
    return Case(folder, flow(agent, head=head), script)


@pytest.mark.endurance
@pytest.mark.parametrize("kind", ["python", "shell", "http", "mcp"])
# Shows T101
def test_they_reach_the_tool_and_nobody_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    server: int,
    kind: str,
) -> None:
    monkeypatch.setenv("KEY", CANARY)
    case = asked(tmp_path, kind, server, "hello", {})
    told: list[Any] = []
    Echo.got.clear()
    with case.engine_open() as engine:
        end = engine.subscribe(told.append, output=True)
        [wait] = engine.run(case.path).waits
        is_secret = kind in ("python", "mcp")
        assert wait["subject"] == {"text": "hello", "key": "***" if is_secret else "fixed"}
        assert wait["bound"] == ["key"]
        result = engine.approvals.approve(wait["id"]).result
        assert result is not None
        assert result.status == "succeeded"
        shown = [
            engine.executions.show(wait["execution"]),
            *engine.executions.events(wait["execution"]),
        ]
        end()

    [offer] = case.model.requests[0].tools
    assert list(offer.parameters["properties"]) == ["text"]
    content = case.model.requests[1].messages[-1]["content"]
    assert "hello" in content
    assert ("***" if is_secret else "fixed") in content
    assert "<content " in content
    if kind == "mcp":
        assert CANARY in (tmp_path / "list.called").read_text()
    if kind == "http":
        assert b"fixed" in Echo.got[0]
    out, err = capfd.readouterr()
    seen = {"model": content, "updates": str(told), "shown": str(shown), "out": out, "err": err}
    assert [name for name, text in seen.items() if CANARY in text] == []
    assert CANARY.encode() not in b"".join(stored_in(tmp_path / "store.db").values())


# Shows T61b
def test_what_a_python_tool_says_logs_and_raises_is_masked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("KEY", CANARY)
    case = asked(tmp_path, "python", 0, "fail", {})
    told: list[Any] = []
    with case.engine_open() as engine:
        end = engine.subscribe(told.append, output=True)
        [wait] = engine.run(case.path).waits
        engine.approvals.approve(wait["id"])
        end()
    content = case.sent(1)[-1]["content"]
    assert "ValueError: failed with ***" in content
    out, err = capfd.readouterr()
    for seen in (content, str(told), out, err, caplog.text):
        assert CANARY not in seen
    assert CANARY.encode() not in b"".join(stored_in(tmp_path / "store.db").values())


@pytest.mark.parametrize("kind", ["python", "shell", "http", "mcp"])
# Shows T101
def test_a_model_that_gives_one_is_told_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: int, kind: str
) -> None:
    """Otherwise the bound one is used, as tools outside of Python may have an open schema."""
    monkeypatch.setenv("KEY", CANARY)
    case = asked(tmp_path, kind, server, "hello", {"key": "mine"})
    with case.engine_open() as engine:
        waits = engine.run(case.path).waits
        for wait in waits:
            assert wait["subject"]["key"] in ("***", "fixed")
            engine.approvals.approve(wait["id"])
    content = case.sent(1)[-1]["content"]
    assert "mine" not in content
    if not waits:
        assert "key" in content

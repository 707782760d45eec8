# Shows F54, V60
"""Traces: a running engine exports the same spans as its journal yields."""

from __future__ import annotations

import gzip
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from flowengine import Engine
from flowengine.telemetry import Span, export_traces, recorded_spans
from tests.command_line import compile_flow, flowengine

SHOP = """
import os
from pathlib import Path

def find(order: str) -> float:
    return 240.0

def pay(order: str, amount: float) -> str:
    return "T1"

def fragile() -> int:
    raise ValueError("card 4711 4711")

def die_once() -> int:
    if not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), 9)
    return 1
"""
DESK = """
flowengine: 1
id: desk
defaults: {model: scripted/replies.yaml}
tools:
  find: {python: "shop:find", effect: idempotent}
  pay: {python: "shop:pay", approval: ask}
agents:
  clerk: {instructions: Pay., tools: [find, pay]}
steps:
  - {id: answer, agent: clerk, with: {prompt: Pay the secret order.}}
"""
REPLIES = """
- calls: [{name: find, arguments: {order: A17}}]
  usage: {input_tokens: 12, output_tokens: 5}
- calls: [{name: pay, arguments: {order: A17, amount: 240}}]
- text: Paid.
"""
PARTS = """
flowengine: 1
id: parts
tools: {fragile: {python: "shop:fragile", effect: idempotent}}
steps:
  - id: each
    map: {over: 2, as: n}
    group:
      - {id: one, output: "${{ n }}"}
      - {id: two, wait: 1ms}
  - {id: try, call: fragile, retry: {attempts: 2, delay: 1ms}, on_error: [{output: 0}]}
"""
pytestmark = pytest.mark.usefixtures("folder")
FILES = {"shop.py": SHOP, "replies.yaml": REPLIES, "desk.yaml": DESK, "parts.yaml": PARTS}


def exported(exporter: InMemorySpanExporter) -> list[tuple[str, str, str | None, str, int, int]]:
    """Return the IDs, names and times of exported spans."""
    return sorted(
        (
            f"{span.context.trace_id:032x}",
            f"{span.context.span_id:016x}",
            None if span.parent is None else f"{span.parent.span_id:016x}",
            span.name,
            span.start_time or 0,
            span.end_time or 0,
        )
        for span in exporter.get_finished_spans()
    )


def plain(spans: list[Span]) -> list[tuple[str, str, str | None, str, int, int]]:
    return sorted(
        (one.trace, one.id, one.parent, one.name, one.start * 10**6, one.end * 10**6)
        for one in spans
    )


def tree(spans: list[Span]) -> list[str]:
    """Return the names of spans, each below its parent and in order of their starts."""

    def below(parent: str | None, depth: int) -> Iterator[str]:
        found = [one for one in spans if one.parent == parent]
        for one in sorted(found, key=lambda one: (one.start, one.name)):
            yield "  " * depth + one.name
            yield from below(one.id, depth + 1)

    return list(below(None, 0))


def test_agent_that_waits_in_two_engines_has_one_trace() -> None:
    exporter = InMemorySpanExporter()
    with Engine() as engine:
        end = export_traces(engine, exporter)
        [wait] = engine.run("desk.yaml").waits
        end()
    first = exported(exporter)
    exporter = InMemorySpanExporter()
    with Engine() as engine:
        end = export_traces(engine, exporter)
        done = engine.approvals.approve(wait["id"]).result
        assert done is not None
        end()
        spans = list(recorded_spans(engine, done.execution))

    assert sorted(first + exported(exporter)) == plain(spans)
    assert tree(spans) == [
        "invoke_workflow desk",
        "  invoke_agent clerk",
        "    clerk@1",
        "      chat scripted/replies.yaml",
        "    find",
        "      execute_tool find",
        "    clerk@2",
        "      chat scripted/replies.yaml",
        "    pay",
        "      wait",
        "      execute_tool pay",
        "    clerk@3",
        "      chat scripted/replies.yaml",
    ]
    chat = next(one for one in spans if one.name.startswith("chat"))
    assert chat.attributes["gen_ai.usage.input_tokens"] == 12
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.agent.name"] == "clerk"
    assert "secret" not in json.dumps(spans)


# Shows V62
def test_content_is_included_only_if_it_is_asked_for() -> None:
    with Engine(None) as engine:
        execution = engine.run("parts.yaml").execution
        usual = json.dumps(list(recorded_spans(engine, execution)))
        full = json.dumps(list(recorded_spans(engine, execution, content=True)))

    assert not re.search(r"\b4711\b", usual)  # ids and times may contain these digits
    assert "ValueError" in usual
    assert "card 4711 4711" in full


def test_maps_retries_and_waits_have_spans() -> None:
    with Engine(None) as engine:
        spans = list(recorded_spans(engine, engine.run("parts.yaml").execution))

    assert tree(spans)[1:] == [
        "  each",
        "    each[0]",
        "      one",
        "      two",
        "        wait",
        "    each[1]",
        "      one",
        "      two",
        "        wait",
        "  try",
        "    attempt",
        "    attempt",
    ]
    errors = [one.error for one in spans if one.name in ("attempt", "try")]
    assert errors == ["ValueError", "ValueError", None]


@pytest.mark.endurance
def test_trace_of_a_killed_process_is_continued(folder: Path) -> None:
    (folder / "dies.yaml").write_text(
        "flowengine: 1\nid: dies\ntools: {die: {python: 'shop:die_once', effect: idempotent}}\n"
        "steps:\n  - {id: first, output: 1}\n"
        "  - {id: inner, group: [{id: die, call: die}]}\n"
    )
    compile_flow("dies.yaml")
    program = "import flowengine; flowengine.Engine().run('dies.yaml', id='d1')"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    exporter = InMemorySpanExporter()
    with Engine() as engine:
        end = export_traces(engine, exporter)
        engine.resume("d1")
        end()
        recorded = plain(list(recorded_spans(engine, "d1")))

    live = exported(exporter)
    assert set(live) < set(recorded)
    assert {name for *_, name, _, _ in set(recorded) - set(live)} == {"first"}


class Collector(BaseHTTPRequestHandler):
    """Receives spans like a collector: protobuf over HTTP."""

    received: list[ExportTraceServiceRequest]
    status = 200

    def do_POST(self) -> None:
        """Record a request."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.received.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Suppress request logging."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ExportTraceServiceRequest]]:
    monkeypatch.setattr(Collector, "received", [], raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        yield Collector.received
        server.shutdown()
        thread.join()


def test_collector_that_the_environment_names_receives_the_trace_of_a_command(
    collector: list[ExportTraceServiceRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = flowengine("run", "parts.yaml", "--id", "p1")
    received = [
        (span.span_id.hex(), span.name, span.status.code, span.start_time_unix_nano)
        for request in collector
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    [resource] = flowengine("events", "p1", "--otel").json()["resourceSpans"]
    printed = [
        (
            span["spanId"],
            span["name"],
            span["status"].get("code", 0),
            int(span["startTimeUnixNano"]),
        )
        for span in resource["scopeSpans"][0]["spans"]
    ]

    assert done.code == 0
    assert sorted(received) == sorted(printed)


def test_fork_links_to_the_span_of_its_origin() -> None:
    with Engine(None) as engine:
        first = engine.run("parts.yaml").execution
        fork = engine.executions.fork(first, from_step="try").execution
        *_, origin = recorded_spans(engine, first)
        *_, root = recorded_spans(engine, fork)

    assert root.links == ((origin.trace, origin.id),)


def test_collector_that_is_down_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://ana:hunter2@127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    with Engine(None) as engine:
        engine.run("parts.yaml")

    told = f"traces were not exported: no collector answers at http://127.0.0.1:{port}"
    assert caplog.messages == [told]


HANDED = """
flowengine: 1
id: handed
inputs: {url: {type: string}}
steps:
  - {id: program, run: "printf %s $TRACEPARENT"}
  - {id: function, python: "shop:parent"}
  - {id: request, http: "${{ inputs.url }}"}
  - {id: own, http: {url: "${{ inputs.url }}", headers: {Traceparent: mine}}}
  - {id: again, run: {script: "printf %s $TRACEPARENT", env: {TRACEPARENT: mine}}}
outputs:
  all:
    - ${{ steps.program.output.stdout }}
    - ${{ steps.function.output }}
    - ${{ steps.request.output.body }}
    - ${{ steps.own.output.body }}
    - ${{ steps.again.output.stdout }}
"""


class Echo(BaseHTTPRequestHandler):
    """Answers with the header of the trace."""

    def do_GET(self) -> None:
        body = (self.headers.get("traceparent") or "none").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def test_programs_and_servers_continue_the_trace_of_their_attempt(folder: Path) -> None:
    parent = "from flowengine.sdk import StepContext\ndef parent(context: StepContext):\n"
    (folder / "shop.py").write_text(f"{parent}    return context.traceparent\n")
    (folder / "handed.yaml").write_text(HANDED)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    inputs = {"url": f"http://127.0.0.1:{server.server_address[1]}/"}
    exporter = InMemorySpanExporter()
    label = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    with Engine(None) as engine:
        end = export_traces(engine, exporter)
        found = engine.run("handed.yaml", inputs, labels=label).outputs
        end()
        off = engine.run("handed.yaml", inputs, labels=label).outputs
    server.shutdown()
    thread.join()
    server.server_close()

    spans = {
        str((span.attributes or {})["flowengine.step.address"]): f"{span.context.span_id:016x}"
        for span in exporter.get_finished_spans()
        if span.name == "attempt"
    }
    steps = ("program", "function", "request")
    assert found == {"all": [*(f"00-{'a' * 32}-{spans[one]}-01" for one in steps), "mine", "mine"]}
    assert off == {"all": ["", None, "none", "mine", "mine"]}

# Shows V61
"""Metrics of executions, as an exporter receives them (V61)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from flowengine import Engine
from flowengine.telemetry import export_metrics, export_traces
from tests.telemetry.test_traces import DESK, REPLIES, SHOP

TELL = """
from flowengine.sdk import StepContext

def tell(context: StepContext) -> None:
    context.log.warning("working")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "telling.py").write_text(TELL)
    usage = "{input_tokens: 12, output_tokens: 5, cost_usd: 0.25}"
    (tmp_path / "replies.yaml").write_text(
        REPLIES.replace("{input_tokens: 12, output_tokens: 5}", usage)
    )
    (tmp_path / "desk.yaml").write_text(DESK)
    return tmp_path


def points(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], Any]]]:
    """Return the attributes and values of each metric. Of histograms, count and sum."""
    data: Any = reader.get_metrics_data()
    return {
        metric.name: [
            (
                dict(point.attributes),
                (point.count, point.sum) if hasattr(point, "sum") else point.value,
            )
            for point in metric.data.data_points
        ]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if scope.scope.name == "flowengine"
    }


def test_durations_tokens_costs_and_the_age_of_approvals() -> None:
    reader = InMemoryMetricReader()
    with Engine(None) as engine:
        end = export_metrics(engine, reader)
        [wait] = engine.run("desk.yaml").waits
        before = points(reader)
        engine.approvals.approve(wait["id"])
        found = points(reader)
        end()

    [(_, age)] = before["flowengine.approvals.age"]
    assert age > 0
    assert "flowengine.executions.ended" not in before
    assert [value for _, value in found["flowengine.approvals.age"]] == [0]
    counts = [
        {about["status"]: value for about, value in seen["flowengine.executions.open"]}
        for seen in (before, found)
    ]
    assert counts == [
        {"running": 0, "waiting": 1, "stalled": 0},
        {"running": 0, "waiting": 0, "stalled": 0},
    ]
    assert found["flowengine.executions.ended"] == [({"flow": "desk", "status": "succeeded"}, 1)]
    tokens = {
        about["gen_ai.token.type"]: value for about, value in found["gen_ai.client.token.usage"]
    }
    assert (tokens["input"], tokens["output"]) == ((3, 12), (3, 5))
    [(about, cost)] = found["flowengine.cost"]
    assert (about["gen_ai.agent.name"], cost) == ("clerk", 0.25)
    [(about, (calls, _))] = found["gen_ai.client.operation.duration"]
    assert (about["gen_ai.operation.name"], calls) == ("chat", 3)
    kinds = {about["kind"] for about, _ in found["flowengine.step.duration"]}
    assert {"agent", "agent_turn", "python"} <= kinds
    [(_, (waits, seconds))] = found["flowengine.wait.duration"]
    assert (waits, seconds >= 0) == (1, True)
    assert found["flowengine.queue.size"] == [({}, 0)]


def test_work_that_no_process_takes_has_a_size_and_an_age() -> None:
    reader = InMemoryMetricReader()
    with Engine(None) as engine:
        end = export_metrics(engine, reader)
        engine.start("desk.yaml")
        engine.start("desk.yaml")
        found = points(reader)
        end()

    assert found["flowengine.queue.size"] == [({}, 2)]
    [(_, age)] = found["flowengine.queue.age"]
    assert age >= 0
    assert ({"status": "running"}, 2) in found["flowengine.executions.open"]


def test_lines_of_the_log_have_the_ids_of_the_span(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "tell.yaml").write_text(
        "flowengine: 1\nid: tell\nsteps: [{id: tell, python: 'telling:tell'}]\n"
    )
    exporter = InMemorySpanExporter()
    with Engine(None) as engine, caplog.at_level(logging.WARNING, "flowengine.step"):
        end = export_traces(engine, exporter)
        engine.run("tell.yaml")
        end()
        engine.run("tell.yaml")
    traced, plain = (record.__dict__ for record in caplog.records if "working" in record.message)
    [span] = [one for one in exporter.get_finished_spans() if one.name == "attempt"]
    assert traced["otelTraceID"] == f"{span.context.trace_id:032x}"
    assert traced["otelSpanID"] == f"{span.context.span_id:016x}"
    assert "otelTraceID" not in plain

# Shows V60
"""Spans of environments: the same while an execution runs and from its journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from flowengine import Engine
from flowengine.execution_environment import register_provider, unregister_provider
from flowengine.telemetry import Span, export_traces, recorded_spans
from tests.execution_environment.toy import Toy
from tests.telemetry.test_traces import exported, plain, tree

FUNCTIONS = """
import os
from pathlib import Path
from flowengine.sdk import NeedsApproval

def use(toy, early=None):
    return toy.echo("x")

def fail(toy):
    raise ValueError("no")

def act(toy):
    if not Path("asked").exists():
        Path("asked").touch()
        raise NeedsApproval({"action": "send", "target": {"to": "ana"}})
"""


@pytest.fixture(autouse=True)
def toy(folder: Path) -> Iterator[Toy]:
    Path("things.py").write_text(FUNCTIONS)
    provider = Toy()
    register_provider(provider)
    yield provider
    unregister_provider("toy")


def write(steps: str) -> str:
    Path("flow.yaml").write_text(f"flowengine: 1\nid: flow\n{steps}")
    return "flow.yaml"


def openings(spans: list[Span]) -> list[tuple[str, str]]:
    """Return each environment's name, and what it is below, in order of the openings."""
    names = {one.id: (one.name, one.attributes.get("flowengine.step.address")) for one in spans}
    found = [one for one in spans if one.name.startswith("environment ")]
    return [
        (one.name, " ".join(str(part) for part in names[one.parent or ""] if part))
        for one in sorted(found, key=lambda one: one.start)
    ]


def test_an_environment_is_below_the_attempt_that_opened_it(toy: Toy) -> None:
    flow = write("""
environments: {desk: {kind: toy}, own: {kind: toy, scope: step}}
steps:
  - {id: first, python: "things:use", environments: {toy: desk}}
  - id: second
    python: "things:fail"
    effect: idempotent
    environments: {toy: own}
    retry: {attempts: 2, delay: 1ms}
    on_error: [{output: 0}]
  - {id: third, python: "things:use", environments: {toy: desk}}
""")
    exporter = InMemorySpanExporter()
    with Engine("store") as engine:
        end = export_traces(engine, exporter)
        execution = engine.run(flow).execution
        end()
        spans = list(recorded_spans(engine, execution))

    assert exported(exporter) == plain(spans)
    assert tree(spans)[1:] == [
        "  first",
        "    attempt",
        "      environment desk",
        "  second",
        "    attempt",
        "      environment own",
        "    attempt",
        "      environment own",
        "  third",
        "    attempt",
    ]
    desk = next(one for one in spans if one.name == "environment desk")
    assert {key: desk.attributes[f"flowengine.environment.{key}"] for key in ("kind", "scope")} == {
        "kind": "toy",
        "scope": "execution",
    }
    assert toy.opens == 3


def test_one_that_stays_open_while_the_execution_waits_was_opened_once(toy: Toy) -> None:
    flow = write("""
environments: {desk: {kind: toy, on_wait: keep}}
steps:
  - {id: first, python: "things:use", environments: {toy: desk}}
  - {id: pause, approval: Go on?}
  - {id: last, python: "things:use", environments: {toy: desk}}
""")
    with Engine("store") as engine:
        [wait] = engine.run(flow).waits
        done = engine.approvals.approve(wait["id"]).result
        assert done is not None
        spans = list(recorded_spans(engine, done.execution))

    assert openings(spans) == [("environment desk", "attempt first")]
    assert toy.opens == 1

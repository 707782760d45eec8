# Shows D3
"""*Reset* of Temporal, as on its page: steps that may run once ask before they run again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from flowengine import Engine
from flowengine.engines.temporal.connection import connect, read_address
from flowengine.engines.temporal.objects import objects
from tests.engines.world import until

pytestmark = pytest.mark.endurance

FLOW = """\
flowengine: 1
id: reset
signals: {paid: {key: "7"}}
tools:
  once: {python: "acts:act", effect: once}
  again: {python: "acts:act", effect: idempotent}
steps:
  - {id: first, call: once, with: {name: first}}
  - {id: look, call: again, with: {name: look}}
  - {id: each, map: {over: 30, concurrency: 1}, call: again, with: {name: each}}
  - {id: hear, wait: {signal: paid}}
  - {id: last, call: once, with: {name: last}}
outputs: {n: "${{ steps.last.output }}"}
"""
FUNCTIONS = """
def act(name: str) -> str:
    with open("LOG", "a") as log:
        log.write(name + "\\n")
    return name
"""


async def reset(store: str, id: str, summary: str) -> None:
    """Reset an execution to before an attempt, in the run that has it, without later messages."""
    client = await connect(read_address(store), objects())
    async for row in client.list_workflows(f"WorkflowId = '{id}'"):
        handle = client.get_workflow_handle(id, run_id=row.run_id)
        async for event in handle.fetch_history_events():
            given = event.activity_task_scheduled_event_attributes
            if not given.activity_id:
                continue
            if await client.data_converter.decode([event.user_metadata.summary]) != [summary]:
                continue
            execution = WorkflowExecution(workflow_id=id, run_id=row.run_id)
            request = ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=execution,
                reason="a test",
                workflow_task_finish_event_id=given.workflow_task_completed_event_id,
                request_id=f"{id} {summary} {row.run_id}",
                reset_reapply_exclude_types=[
                    ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL
                ],
            )
            await client.workflow_service.reset_workflow_execution(request)
            return
    raise AssertionError(f"{id} has no attempt {summary}")


def acted(log: Path) -> list[str]:
    """Return the names of the steps that have run, without repetitions in a row."""
    lines = log.read_text().split()
    return [line for line, before in zip(lines, ["", *lines], strict=False) if line != before]


def test_a_reset_execution_asks_before_it_repeats_what_may_run_once(
    store: str, tmp_path: Path
) -> None:
    """Also in runs that continue the one that was reset, and after another *Reset*."""
    log, flow = tmp_path / "log", tmp_path / "flow.yaml"
    flow.write_text(FLOW)
    (tmp_path / "acts.py").write_text(FUNCTIONS.replace("LOG", str(log)))
    whole = ["first", "look", "each", "last"]

    def asked(engine: Engine, step: str, run_before: int) -> str:
        until(lambda: engine.executions.summary("resets")["status"] == "stalled")
        shown = engine.executions.show("resets")
        [wait] = shown["waits"]
        assert (wait["kind"], wait["address"]) == ("question", step)
        assert len(shown["warnings"]) == run_before
        message = shown["warnings"][-1]["message"]
        assert f"attempt 1 of {step} has succeeded in run " in message, message
        found = [one["execution"] for one in engine.executions.list(flow="reset").items]
        assert found.count("resets") == 1
        done = [
            one["execution"]
            for one in engine.executions.list(flow="reset", status="succeeded").items
        ]
        assert "resets" not in done
        return str(wait["id"])

    with Engine(store) as engine:
        engine.run(flow, id="resets")
        engine.signal("paid", key="7")
        assert engine.executions.result("resets").outputs == {"n": "last"}
        assert acted(log) == whole

        asyncio.run(reset(store, "resets", "first #1"))
        engine.approvals.decide(asked(engine, "first", 1), "result", value="mine", resume=False)
        until(lambda: engine.executions.summary("resets")["status"] == "waiting")
        assert acted(log) == [*whole, "look", "each"]
        engine.signal("paid", key="7", resume=False)
        wait = asked(engine, "last", 2)
        assert acted(log) == [*whole, "look", "each"]

        asyncio.run(reset(store, "resets", "each[20] #1"))
        until(lambda: engine.executions.summary("resets")["status"] == "waiting")
        assert acted(log) == [*whole, "look", "each"]
        engine.signal("paid", key="7", resume=False)
        assert asked(engine, "last", 2) == wait
        result = engine.approvals.decide(wait, "retry").result
        assert result is not None
        assert result.outputs == {"n": "last"}
        assert acted(log) == [*whole, "look", "each", "last"]
        assert [entry["seq"] for entry in engine.executions.events("resets", from_seq=3)][:2] == [
            3,
            4,
        ]

"""Histories recorded once replay with the code of today, or open executions would fail.

`histories/NAME.json` has the histories of a flow of `histories/`: one per run, and one per key or
lock. With `UPDATE_GOLDEN=1`, missing ones are recorded. Delete those that cannot replay only if the
release notes say that such executions must have ended before.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.temporal import workflow
from flowengine.engines.temporal.address import read_address
from flowengine.engines.temporal.connection import connect
from tests.engines import world
from tests.engines.temporal_server import RunningWorker, temporal_server

HERE = Path(__file__).parent / "histories"
FLOWS = sorted(HERE.glob("*.yaml"))
INPUTS: dict[str, Any] = {"steps": {"count": 16}}


async def histories(address: str, execution: str) -> list[Any]:
    """Return the ended runs of an execution, and what else its namespace has."""
    client = await connect(read_address(address))
    found = []
    async for row in client.list_workflows():
        if row.id == execution or row.id.startswith(("flowengine-key-", "flowengine-lock-")):
            handle = client.get_workflow_handle(row.id, run_id=row.run_id)
            events = [event async for event in handle.fetch_history_events()]
            if len(events) > 3:
                found.append([row.id, json.loads((await handle.fetch_history()).to_json())])
    return sorted(found, key=lambda one: (one[0], str(one[1]["events"][0]["eventTime"])))


def record(address: str, path: Path) -> None:
    """Run a flow to its end."""
    with Engine(address, workdir="/") as engine:
        id = path.stem
        result = engine.run(path, INPUTS.get(id, {}), id=id)
        while not result.ended:
            for wait in result.waits:
                if wait["kind"] == "signal":
                    engine.signal("paid", 5, key="7", resume=False)
                else:
                    world.answer(engine, wait, HERE)
            result = engine.resume(id)
    recorded = asyncio.run(histories(address, id))
    path.with_suffix(".json").write_text(f"[{','.join(map(written, recorded))}]\n")


def written(recorded: list[Any]) -> str:
    """Return a history as text with a line for each event."""
    id, history = recorded
    events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in history["events"])
    text = f'["{id}", {{"events": [\n{events}\n]}}]'
    return re.sub(r'"stackTrace":"(?:[^"\\]|\\.)*"', '"stackTrace":""', text)  # has paths


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> list[Any]:
    """The histories of a flow."""
    path: Path = request.param
    if os.environ.get("UPDATE_GOLDEN") and not path.with_suffix(".json").exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("FLOWENGINE_OBJECTS", raising=False)
            with temporal_server("own") as addresses, RunningWorker(f"{addresses}/own"):
                record(f"{addresses}/own", path)
    found: list[Any] = json.loads(path.with_suffix(".json").read_text())
    return found


def replay(recorded: list[Any]) -> None:
    """Replay histories.

    Raises:
        Exception: The code of today gives other commands.
    """
    from temporalio.client import WorkflowHistory
    from temporalio.worker import Replayer

    from flowengine.engines.temporal.payloads import converter
    from flowengine.engines.temporal.shared import SharedWorkflow
    from flowengine.engines.temporal.worker import runner_of_workflows

    replayer = Replayer(
        workflows=[workflow.FlowExecution, SharedWorkflow],
        workflow_runner=runner_of_workflows(),
        data_converter=converter(None),
    )
    for id, history in recorded:
        asyncio.run(replayer.replay_workflow(WorkflowHistory.from_json(id, history)))


@pytest.mark.parametrize("recorded", FLOWS, ids=lambda path: path.stem, indirect=True)
def test_recorded_histories_replay(recorded: list[Any]) -> None:
    replay(recorded)


def test_updates_are_accepted_before_signals_of_their_task_are_taken() -> None:
    """The first task of a run has no command, and a signal arrived while the second waited.

    This history had the commands of the signal first, and did not replay. They were moved.
    """
    replay(json.loads((HERE / "signals_with_updates.json").read_text()))


@pytest.mark.parametrize("recorded", FLOWS[:1], ids=lambda path: path.stem, indirect=True)
def test_other_commands_do_not_replay(recorded: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow.WorkflowDriver, "_show", lambda self, append: None)
    with pytest.raises(Exception, match="Nondeterminism error"):
        replay(recorded)


def test_several_runs_are_recorded() -> None:
    ids = [id for path in FLOWS for id, _ in json.loads(path.with_suffix(".json").read_text())]
    assert ids.count("steps") > 1
    assert {id.rpartition("-")[0] for id in ids} >= {"flowengine-key", "flowengine-lock"}


FLOW = """
flowengine: 1
id: f
signals: {paid: {key: "1"}}
steps:
  - {id: hear, wait: {signal: paid}}
  - {id: act, run: "true"}
  - {id: said, output: old}
outputs: {said: "${{ steps.said.output }}"}
"""


@pytest.mark.endurance
def test_executions_stay_on_their_version_of_the_engine_and_of_the_flow(
    server: str, tmp_path: Path
) -> None:
    address, flow = f"{server}/versions", tmp_path / "flow.yaml"
    flow.write_text(FLOW)
    with (
        Engine(address) as engine,
        RunningWorker(address, "--deployment", "own:1") as old,
        RunningWorker(address, "--deployment", "own:2") as new,
    ):
        asyncio.run(set_current(address, "1"))
        assert engine.run(flow, id="begun").status == "waiting"
        asyncio.run(set_current(address, "2"))
        flow.write_text(FLOW.replace("output: old", "output: new"))
        found = engine.signal("paid", key="1")  # its workflow is on the new version by now
        assert found.result is not None
        assert found.result.outputs == {"said": "old"}
        assert engine.run(flow, id="next").status == "waiting"
        engine.signal("paid", key="1")
        assert engine.result("next").outputs == {"said": "new"}
        for worker, id in ((old, "begun"), (new, "next")):
            assert [f"execution={id} " in line for line in worker.log] == [True]


async def set_current(address: str, build: str) -> None:
    """Make a version of the deployment the one on which executions begin."""
    from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
    from temporalio.service import RPCError

    client = await connect(read_address(address))
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace, deployment_name="own", build_id=build
    )
    for _ in range(600):
        try:
            await client.workflow_service.set_worker_deployment_current_version(request)
        except RPCError:  # the server does not know its worker yet
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError("the version is not known")

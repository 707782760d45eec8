# Shows D10
"""Executions stay on the code that began them, and queries see whole histories."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import flowengine
from flowengine import Engine
from flowengine.engines.temporal import workflow
from flowengine.engines.temporal.connection import connect, read_address
from flowengine.errors import StoreError
from tests.engines.temporal_server import RunningWorker, StoreNamed

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
    server: StoreNamed, tmp_path: Path
) -> None:
    address, flow = server("versions"), tmp_path / "flow.yaml"
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
        assert engine.executions.result("next").outputs == {"said": "new"}
        for worker, id in ((old, "begun"), (new, "next")):
            assert [f"execution={id} " in line for line in worker.log] == [True]


@pytest.fixture(scope="module")
def other_code(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """Runs a program with a version of the engine that gives its commands in another order."""
    folder = tmp_path_factory.mktemp("other code")
    package = Path(flowengine.__file__).parent
    hidden = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, folder / package.name, ignore=hidden)
    changed = folder / Path(workflow.__file__).relative_to(package.parent)
    *first, memo, after = re.split(
        r"(?=        if changed:\n|        if memo:\n)", changed.read_text()
    )
    shown, rest = after.split("\n\n", 1)
    changed.write_text(f"{''.join(first)}{shown}\n{memo}\n{rest}")
    return "env", f"PYTHONPATH={folder}", "PYTHONDONTWRITEBYTECODE=1"


@pytest.mark.endurance
def test_executions_stay_on_the_code_on_which_they_began(
    server: StoreNamed, other_code: Sequence[str], tmp_path: Path
) -> None:
    address, flow = server("other-code"), tmp_path / "flow.yaml"
    flow.write_text(FLOW)
    own = "--deployment", "own:1"
    with Engine(address) as engine:
        with RunningWorker(address, *own, via=other_code) as old:
            asyncio.run(set_current(address, "1"))
            assert engine.run(flow, id="old-code").status == "waiting"
            assert old.stop() == 0
        with (
            RunningWorker(address, "--deployment", "own:2") as new,
            RunningWorker(address, *own, via=other_code) as old,  # it has cached nothing
        ):
            asyncio.run(set_current(address, "2"))
            engine.signal("paid", key="1", resume=False)  # this code cannot read its history
            assert asyncio.run(result_of(address, "old-code"))["outputs"] == {"said": "old"}
            assert engine.run(flow, id="new-code").status == "waiting"
            engine.signal("paid", key="1")
            assert engine.executions.result("new-code").status == "succeeded"
            for worker, id in ((old, "old-code"), (new, "new-code")):
                assert [f"execution={id} " in line for line in worker.log] == [True]
        with pytest.raises(StoreError, match="history of execution old-code cannot be read"):
            engine.executions.show("old-code")


@pytest.mark.endurance
def test_other_code_without_a_deployment_is_an_error_that_loses_nothing(
    server: StoreNamed, other_code: Sequence[str], tmp_path: Path
) -> None:
    address, flow = server("faults"), tmp_path / "flow.yaml"
    flow.write_text(FLOW)
    with Engine(address) as engine:
        with RunningWorker(address):
            assert engine.run(flow, id="unfit-code").status == "waiting"
        with RunningWorker(address, via=other_code) as worker:
            engine.signal("paid", execution="unfit-code", resume=False)
            failing = r"its workflow task fails again and again \(.*: .*Nondeterminism error"
            with pytest.raises(StoreError, match=failing):
                engine.executions.why("unfit-code")
            assert worker.stop() == 0
        assert any("Nondeterminism error" in line for line in worker.log)
        with RunningWorker(address):
            assert asyncio.run(result_of(address, "unfit-code"))["outputs"] == {"said": "old"}
            assert engine.resume("unfit-code").outputs == {"said": "old"}


async def result_of(address: str, id: str) -> Any:
    """Wait for the end of a workflow, and return its result."""
    return await (await connect(read_address(address))).get_workflow_handle(id).result()


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

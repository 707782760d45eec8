"""Ids that the engine derives, and names that it reads, are not for clients of a server to choose.

Only a program with access to the store can choose one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.cli.commands.chat import CHAT
from flowengine.kernel.notation.addresses import separate_id
from flowengine.kernel.notation.traces import LABEL
from flowengine.runner.session_places import SESSION
from flowengine.server.executions import ENGINE_LABELS, OPERATOR_LABELS
from flowengine.server.talks import Talk
from flowengine.tool_environment import LocalEnvironment, ToolResult, tool
from flowengine.tool_environment.calls import TASK, TOOL
from tests.engines.world import Clock
from tests.server.api import EXPENSE, LOCAL, OWNER, Api

MONDAY = int(datetime(2027, 11, 1, tzinfo=UTC).timestamp() * 1000)
PAYROLL = """
flowengine: 1
id: payroll
start: [{schedule: "0 9 * * *"}]
flows:
  child: {steps: [{id: rest, wait: {for: 1h}}]}
tools: {tell: {python: "telling:tell"}}
steps:
  - {id: begin, flow: child, background: true}
  - {id: ask, approval: {title: Pay?, assignees: ["user:ben"], notify: [tell]}}
"""
TAKEN = "is taken by one of 'expense' by user:mallory"


@pytest.fixture
def clock() -> Clock:
    return Clock(MONDAY)


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Iterator[Engine]:
    with Engine(tmp_path / "store", user=OWNER, clock=clock, linger=0) as engine:
        yield engine


@pytest.fixture
def others(tmp_path: Path, engine: Engine) -> Any:
    """Takes an id as a program with access to the store."""
    flow = tmp_path / "expense.yaml"
    flow.write_text(EXPENSE)
    mallory = engine.acting_as("user:mallory", via="rest")
    return lambda id: mallory.start(flow, {"amount": 1}, id=id)


def flow_in(folder: Path) -> Path:
    (folder / "telling.py").write_text("def tell(approval: dict) -> None: pass\n")
    path = folder / "payroll.yaml"
    path.write_text(PAYROLL)
    return path


# Shows V21
def test_clients_choose_no_id_and_no_label_of_the_engine(api: Api) -> None:
    sam, otto = api.token("user:sam"), api.token("user:otto")
    body: dict[str, Any] = {"flow": "expense", "inputs": {"amount": 1}}
    derived = [separate_id("a", 1), "payroll-20271101T090000Z-0123abcd"]
    for id in (*derived, *(f"{id}.2" for id in derived)):
        refused = api("POST", "/v1/executions", {**body, "id": id}, token=sam, code=422)
        assert refused["field"] == "id"
    for number, id in enumerate(["expense-1", "2f1e0d3c4b5a69788796a5b4c3d2e1f0", "m-20271101"]):
        api("POST", "/v1/executions", {**body, "id": id}, token=sam, code=201)
        fork = {"from_step": "ask", "id": derived[0], "labels": {"n": str(number)}}
        api.engine.resume(id)
        api("POST", f"/v1/executions/{id}/fork", fork, token=otto, code=422)
    assert {SESSION, TASK, TOOL, CHAT} == ENGINE_LABELS
    assert {"model", LABEL} == OPERATOR_LABELS
    for label in ENGINE_LABELS:
        labels = {label: "x"}
        api("POST", "/v1/executions", {**body, "labels": labels}, token=LOCAL, code=422)
        fork = {"from_step": "ask", "labels": labels}
        api("POST", "/v1/executions/expense-1/fork", fork, token=LOCAL, code=422)
    for label in OPERATOR_LABELS:
        labels = {label: "x"}
        api("POST", "/v1/executions", {**body, "labels": labels}, token=sam, code=403)
        api("POST", "/v1/executions", {**body, "labels": labels}, token=otto, code=201)
    api("POST", "/v1/executions", {**body, "labels": {"team": "x"}}, token=sam, code=201)


# Shows V11
def test_a_schedule_runs_although_its_id_is_taken(
    engine: Engine, clock: Clock, others: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine.flows.deploy(flow_in(tmp_path))
    clock.time += 9 * 3_600_000
    [day] = engine.flows.record_past("payroll", _at(clock.time), _at(clock.time))
    assert day.execution is not None
    # The process died before it moved the schedule, and the next version of the program goes on.
    [again] = engine.flows.start_due()
    assert again.execution == day.execution
    following = day.execution.replace("1101", "1102")
    others(following)
    clock.time += 24 * 3_600_000
    [tuesday] = engine.flows.start_due()
    assert tuesday.execution == f"{following}.2"
    assert engine.flows.start_due() == []
    found = engine.executions.list(flow="payroll").items
    assert [item["execution"] for item in found] == [tuesday.execution, day.execution]
    assert TAKEN in caplog.text


# Shows V37
def test_ids_of_detached_flows_and_notifications_are_known_to_nobody_before(
    engine: Engine, tmp_path: Path
) -> None:
    """Nor do they belong to an earlier execution with the same id."""
    path = flow_in(tmp_path)
    with Engine(tmp_path / "elsewhere", user=OWNER, linger=0) as elsewhere:
        elsewhere.run(path, id="it")
        known = {item["execution"]: item["flow"] for item in elsewhere.executions.list().items}
    engine.run(path, id="it")
    begun = {item["execution"]: item["flow"] for item in engine.executions.list().items}
    assert sorted(begun.values()) == sorted(known.values())
    assert len(begun) == 3
    assert begun.keys() & known.keys() == {"it"}
    told = [
        reason["what"] for reason in engine.executions.why("it") if "notification" in reason["what"]
    ]
    assert told == []


# Shows V40
def test_a_conversation_is_that_of_its_user(api: Api) -> None:
    """Its id may be taken by a program: it is not continued, and not another one either."""
    id = separate_id("talk", OWNER, "expense", "one")
    api.engine.acting_as("user:mallory", via="ag-ui").start(api.flows[0], {"amount": 1}, id=id)
    principal = api.application.identity.local()

    def read(name: str) -> str:
        async def begin() -> str:
            talk = Talk(api.application, principal, "", "expense", name, "ag-ui")
            if name != "one":
                await talk.start({"amount": 2})
            await talk.read()
            return talk.execution

        return asyncio.run(begin())

    with pytest.raises(Exception, match="the id of this conversation is taken"):
        read("one")
    record = api.engine.store.execution(read("two"))
    assert (record.flow, record.started_by) == ("expense", OWNER)


async def _called(engine: Engine) -> ToolResult | None:
    async with LocalEnvironment(engine=engine, execution_id="day") as environment:
        await environment.register_tool(tool(name="pay")(lambda: "paid"))
        call = {"tool_call_id": "1", "tool_name": "pay"}
        return (await environment.execute_tool(call)).tool_result


def test_a_call_of_a_tool_environment_is_not_that_of_a_client(engine: Engine, others: Any) -> None:
    others(separate_id("call", "day", "1"))
    result = asyncio.run(_called(engine))
    assert result is not None
    assert (result.status, result.ran) == ("invalid", "no")
    assert "it is another call" in str(result.message)


def _at(time: int) -> datetime:
    return datetime.fromtimestamp(time / 1000, UTC)

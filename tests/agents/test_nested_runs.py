"""Agents in Python, started by a step or tool, are bound by the budget and rules around it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from flowengine import Engine
from flowengine.agents.models.port import ModelFacts, ModelRequest
from tests.agents.flows import NAME, Case, call

TOOLS = f'''
import asyncio
from contextvars import ContextVar, copy_context
from pathlib import Path
from threading import Thread
from time import sleep

from flowengine import Agent, Engine, quick
from flowengine.runner import MetaChain

FOLDER = Path(__file__).parent
WHO = ContextVar("who", default="nobody")
ASK = [{{"role": "user", "content": "Pay Bo."}}]

def pay(amount: int) -> str:
    """Pay."""
    with open(FOLDER / "called.txt", "a") as file:
        file.write(f"pay {{amount}}\\n")
    return "paid"

async def waits(amount: int) -> None:
    await asyncio.sleep(0)

clerk = Agent(name="Clerk", model="{NAME}", functions=[pay])

def on_a_thread(n: int = 0) -> str:
    """Have it paid."""
    return MetaChain().run(clerk, ASK).termination

async def on_the_loop() -> str:
    return (await MetaChain().run_async(clerk, ASK)).termination

def streamed() -> str:
    *_, last = MetaChain().stream(clerk, ASK)
    return last.response.termination

@quick
def at_once() -> str:
    return on_a_thread()

async def beside_the_loop() -> str:
    return await asyncio.to_thread(on_a_thread)

def on_a_thread_of_its_own() -> str:
    found = []
    around = copy_context()
    thread = Thread(target=lambda: found.append(around.run(on_a_thread)))
    thread.start()
    thread.join()
    return found[0]

def deeper() -> str:
    boss = Agent(name="Boss", model="{NAME}", functions=[on_a_thread])
    return MetaChain().run(boss, [{{"role": "user", "content": "Delegate."}}]).termination

def fails() -> str:
    while not (FOLDER / "asked").exists():
        sleep(0.001)
    raise RuntimeError("so all is over")

def plain() -> str:
    with Engine(None) as engine:
        return told(engine.run(FOLDER / "inner.yaml"))

async def plain_on_the_loop() -> str:
    async with Engine(None) as engine:
        return told(await engine.run_async(FOLDER / "inner.yaml"))

def plain_again() -> str:
    with Engine(FOLDER / "inner.db") as engine:
        id = engine.run(FOLDER / "inner.yaml", dict(first=True)).execution
        [wait] = engine.approvals.list(execution=id).items
        engine.approvals.approve(wait["id"], resume=False)
        return told(engine.resume(id))

def started() -> str:
    with Engine(FOLDER / "inner.db") as engine:
        return told(engine.resume(engine.start(FOLDER / "inner.yaml")))

def told(result) -> str:
    return result.status if result.error is None else result.error["type"]

def among_others(n: int) -> str:
    if n:
        return WHO.get()
    WHO.set("the function of another step")
    return plain()

def kept() -> str:
    with Engine(FOLDER / "inner.db") as engine:
        response = MetaChain(engine).run(clerk, ASK, id="inner")
        return response.termination or response.waits[0]["title"]
'''
INNER = """
flowengine: 1
id: inner
inputs: {first: {type: boolean, default: false}}
steps:
  - {id: ask, when: "${{ inputs.first }}", approval: Go on?}
  - id: all
    loop: {until: "${{ round.number == 9 }}", max: 9}
    python: "tools:pay"
    with: {amount: 1}
"""
PAY = {"calls": [call("pay", amount=1)], "usage": {"input_tokens": 100, "cost_usd": 0.5}}
DONE = {"text": "Done.", "usage": {"input_tokens": 100, "cost_usd": 0.5}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "inner.yaml").write_text(INNER)


def flow(step: str, head: str = "") -> str:
    return f"""
flowengine: 1
id: outer
{head}
steps:
  - {{id: work, {step}}}
outputs: {{how: "${{{{ steps.work.output }}}}"}}
"""


def python(function: str) -> str:
    return f'python: "tools:{function}"'


def delegating(request: ModelRequest) -> dict[str, Any]:
    """Replies of two agents, where a tool of one runs the other."""
    if [one.name for one in request.tools] == ["pay"]:
        return PAY
    asked = request.messages[-1]["role"] == "user"
    return {"calls": [call("on_a_thread", n=1)]} if asked else {"text": "budget"}


def delegating_once(request: ModelRequest) -> dict[str, Any]:
    """The same, but agents call their tool only once."""
    return delegating(request) if request.messages[-1]["role"] == "user" else {"text": "Done."}


@pytest.mark.parametrize(
    "way",
    [
        "on_a_thread",
        "on_the_loop",
        "streamed",
        "at_once",
        "beside_the_loop",
        "on_a_thread_of_its_own",
        "kept",
    ],
)
def test_what_a_step_starts_gets_what_is_left_of_the_budget(tmp_path: Path, way: str) -> None:
    case = Case(tmp_path, flow(python(way), "budget: {tool_calls: 4, tokens: 100000}"), [PAY] * 9)
    result = case.run()

    assert result.outputs == {"how": "budget"}, result.error
    assert case.called == ["pay 1"] * 3
    with case.engine_open() as engine:
        [budget] = engine.executions.show(case.id)["budgets"]
    assert budget["tool_calls"] == {"used": 4, "running": 0, "limit": 4}
    assert budget["tokens"]["used"] == 400
    assert budget["tokens"]["estimated"] == 0


@pytest.mark.parametrize("way", ["plain", "plain_on_the_loop", "plain_again"])
def test_a_flow_that_a_step_runs_is_bound_by_the_budget_and_rules_around_it(
    tmp_path: Path, way: str
) -> None:
    case = Case(tmp_path, flow(python(way), "budget: {tool_calls: 4}"), [])
    assert case.run().outputs == {"how": "BudgetExceeded"}

    assert case.called == ["pay 1"] * 3
    with case.engine_open() as engine:
        [budget] = engine.executions.show(case.id)["budgets"]
    assert budget["tool_calls"] == {"used": 4, "running": 0, "limit": 4}

    case = Case(tmp_path, flow(python(way), "rules: [{deny: '*pay'}]"), [])
    assert case.run().outputs == {"how": "Refused"}
    assert case.called == ["pay 1"] * 3


def test_a_flow_that_a_step_only_records_is_bound_by_nothing_around_it(tmp_path: Path) -> None:
    case = Case(tmp_path, flow(python("started"), "budget: {tool_calls: 4}"), [])
    assert case.run().outputs == {"how": "succeeded"}
    assert case.called == ["pay 1"] * 9


def test_a_run_in_a_run_in_a_flow_is_bound_by_the_flow(tmp_path: Path) -> None:
    text = flow(python("deeper"), "budget: {tool_calls: 4}")
    case = Case(tmp_path, text, [delegating] * 9)
    assert case.run().status == "succeeded"

    assert case.called == ["pay 1"] * 2  # and the step, and the call of the second agent
    with case.engine_open() as engine:
        [budget] = engine.executions.show(case.id)["budgets"]
    assert budget["tool_calls"]["used"] == 4


def test_runs_at_the_same_time_do_not_exceed_the_budget(tmp_path: Path) -> None:
    step = 'map: {over: "${{ [1, 2, 3, 4, 5] }}", concurrency: 5}, '
    text = flow(step + python("on_a_thread"), "budget: {tool_calls: 9, tokens: 1000000}")
    case = Case(tmp_path, text, [PAY] * 40)
    result = case.run()
    assert result.outputs == {"how": ["budget"] * 5}, result.error

    assert len(case.called) == 4
    with case.engine_open() as engine:
        [budget] = engine.executions.show(case.id)["budgets"]
    assert budget["tool_calls"]["used"] == 9


def test_what_a_function_sets_in_its_context_and_runs_does_not_reach_other_steps(
    tmp_path: Path,
) -> None:
    """What its run has used is counted between the steps that follow, on another thread."""
    (tmp_path / "inner.yaml").write_text(INNER.replace("9", "60").replace("pay", "waits"))
    given = list(range(300))
    step = f'map: {{over: "${{{{ {given} }}}}", concurrency: 2}}, with: {{n: "${{{{ item }}}}"}}, '
    case = Case(tmp_path, flow(step + python("among_others"), "budget: {tool_calls: 1000}"), [])
    result = case.run()
    assert result.outputs == {"how": ["succeeded", *["nobody"] * 299]}, result.error


def test_what_cleans_up_is_counted_and_not_bounded(tmp_path: Path) -> None:
    final = f"finally:\n  - {{id: tidy, {python('on_a_thread')}}}"
    text = flow(python("pay") + ", with: {amount: 7}", "budget: {tool_calls: 1, tokens: 100}")
    case = Case(tmp_path, f"{text}{final}\n", [PAY, PAY, DONE])
    assert case.run().status == "succeeded"

    assert case.called == ["pay 7", "pay 1", "pay 1"]
    with case.engine_open() as engine:
        [budget] = engine.executions.show(case.id)["budgets"]
    assert (budget["tool_calls"]["used"], budget["tokens"]["used"]) == (4, 300)


HANGING = """
import sys
from pathlib import Path
from flowengine import Engine
from flowengine.agents.models.registry import register
from flowengine.agents.models.scripted import ScriptedModel
from tests.agents.test_nested_runs import PAY, hang

register(sys.argv[1], ScriptedModel([PAY, hang], facts=hang.facts))
with Engine("store.db") as engine:
    engine.run("flow.yaml", id="it")
"""


def hang(request: ModelRequest) -> dict[str, Any]:
    """Kill the process while the provider answers a request that it will bill."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
    return {}


hang.facts = ModelFacts(longest_reply=500)  # type: ignore[attr-defined]


@pytest.mark.endurance
@pytest.mark.parametrize("way", ["kept", "on_the_loop"])
def test_what_a_run_has_used_and_may_have_used_is_counted_after_a_crash(
    tmp_path: Path, way: str
) -> None:
    """Reservations of interrupted requests count too, because the provider bills them."""
    step = f"{python(way)}, effect: idempotent"
    text = flow(step, "budget: {tool_calls: 5, tokens: 100000}")
    case = Case(tmp_path, text, [PAY, PAY, PAY, PAY, PAY])
    done = subprocess.run([sys.executable, "-c", HANGING, NAME], cwd=tmp_path, check=False)
    assert done.returncode == -9

    with case.engine_open() as engine:
        [before] = engine.executions.show("it")["budgets"]
        assert before["tool_calls"]["used"] == 2  # the step, and one payment
        assert before["tokens"]["used"] >= 100 + 500
        assert engine.resume("it").outputs == {"how": "budget"}
        [after] = engine.executions.show("it")["budgets"]
    assert after["tool_calls"]["used"] == 5
    assert len(case.called) == 3
    assert after["tokens"]["used"] >= 100 + 500 + 300


@pytest.mark.parametrize(
    ("rules", "way", "refused"),
    [
        ('[{deny: "tools:pay"}]', "on_a_thread", True),
        ('[{deny: "tools:pay"}]', "on_the_loop", True),
        ('[{deny: "tools:pay"}]', "deeper", True),
        ('[{deny: "p?y"}, {allow: "*"}]', "on_a_thread", True),
        ('[{deny: "agent_function:*"}]', "on_a_thread", True),
        ('[{deny: "*pay", when: "${{ args.amount > inputs.limit }}"}]', "on_a_thread", True),
        ('[{deny: "*pay", when: "${{ args.amount > inputs.limit + 1 }}"}]', "on_a_thread", False),
        ('[{allow: "*pay"}, {ask: "*pay"}]', "on_a_thread", False),
        ('[{deny: "tools:pay", effect: pure}]', "on_a_thread", False),
        ('[{deny: "tools:pay", agent: "Cl*"}]', "on_a_thread", True),
        ('[{deny: "tools:pay", agent: other}]', "on_a_thread", False),
    ],
)
def test_what_the_flow_denies_a_run_in_it_may_not_do(
    tmp_path: Path, rules: str, way: str, refused: bool
) -> None:
    head = f"rules: {rules}\ninputs: {{limit: {{type: integer, default: 0}}}}"
    case = Case(tmp_path, flow(python(way), head), [delegating_once] * 4)
    assert case.run().outputs == {"how": "resolved"}

    assert case.called == ([] if refused else ["pay 1"])
    told = [one["content"] for request in range(len(case.model.requests))
            for one in case.sent(request) if one["role"] == "tool"]  # fmt: skip
    assert any("refuses it" in one for one in told) == refused


def test_the_rules_of_an_agent_hold_for_what_its_tool_starts(tmp_path: Path) -> None:
    text = f"""
flowengine: 1
id: outer
defaults: {{model: {NAME}}}
rules: [{{deny: "tools:pay", agent: boss}}]
tools: {{delegate: {{python: "tools:on_a_thread", with: {{n: 1}}}}}}
agents: {{boss: {{instructions: Delegate., tools: [delegate]}}}}
steps: [{{id: work, agent: boss, with: {{prompt: Go.}}}}]
"""
    delegated = {"calls": [call("delegate")]}
    case = Case(tmp_path, text, [delegated, PAY, DONE, DONE])
    assert case.run().status == "succeeded"

    assert case.called == []
    assert "rules[0]" in case.sent(2)[-1]["content"]


def test_where_the_flow_asks_a_run_that_is_kept_waits_and_another_is_refused(
    tmp_path: Path,
) -> None:
    text = flow(python("kept"), "rules: [{ask: 'tools:pay'}]")
    case = Case(tmp_path, text, [PAY, DONE])
    assert "pay" in case.run().outputs["how"]
    assert case.called == []
    with case.engine_open(), Engine(tmp_path / "inner.db") as inner:
        [wait] = inner.approvals.list().items
        assert wait["rule"] == "outer: rules[0] (ask: tools:pay)"
        inner.approvals.approve(wait["id"])
    assert case.called == ["pay 1"]

    case = Case(tmp_path, flow(python("on_a_thread"), "rules: [{ask: 'tools:pay'}]"), [PAY])
    error = case.run().error
    assert "waits for a decision" in error["message"], error
    assert case.called == ["pay 1"]


def test_what_an_attempt_started_begins_nothing_more_when_it_is_withdrawn(tmp_path: Path) -> None:
    """A function on a thread cannot be stopped, but the agents that it runs are."""
    over, told = Event(), Event()

    def late(request: ModelRequest) -> dict[str, Any]:
        (tmp_path / "asked").touch()
        assert over.wait(300)
        return PAY

    def last(request: ModelRequest) -> dict[str, Any]:
        told.set()
        return DONE

    both = [f"{{id: {way}, {python(way)}}}" for way in ("on_a_thread", "fails")]
    text = f"""
flowengine: 1
id: outer
rules: [{{deny: "other:pay"}}]
steps: [{{id: both, parallel: [{", ".join(both)}]}}]
"""
    case = Case(tmp_path, text, [late, last])
    with case.engine_open() as engine:
        assert engine.run(case.path).status == "failed"
        over.set()
        assert told.wait(300)
    assert case.called == []
    assert "was not called" in case.sent(1)[-1]["content"]

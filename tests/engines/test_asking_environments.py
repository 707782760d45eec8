"""Environments that require approval: what waits, who decides, and when they are opened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import Conflict
from tests.command_line import compile_flow
from tests.execution_environment.toy import Toy

FUNCTIONS = """
def use(toy, text="x"):
    with open("used.txt", "a") as file:
        file.write(text)
    return toy.echo(text)

def plain():
    return 1
"""
ASKS = "environments: {toy: {kind: toy, approval: required}}\n"
USE = 'steps: [{id: a, python: "things:use", environments: [toy]}]\n'
OUTPUT = 'outputs: {a: "${{ steps.a.output }}"}\n'


def write(flow: str) -> str:
    Path("flow.yaml").write_text(f"flowengine: 1\nid: it\n{flow}")
    return "flow.yaml"


def used() -> str:
    file = Path("used.txt")
    return file.read_text() if file.exists() else ""


def test_nothing_is_opened_before_the_answer_and_another_engine_opens_it_then(toy: Toy) -> None:
    with Engine("store") as engine:
        result = engine.run(write(ASKS + USE + OUTPUT))
        [wait] = result.waits
    assert (result.status, toy.opens, used()) == ("waiting", 0, "")
    assert wait["kind"] == "approval"
    assert wait["subject"]["kind"] == "toy"

    with Engine("store") as engine:
        decision = engine.approve(wait["id"])

    assert decision.result is not None
    assert decision.result.outputs == {"a": "x"}
    assert (toy.opens, toy.releases, used()) == (1, 1, "x")


def test_a_rejection_is_an_error_of_the_step_that_its_handler_routes(toy: Toy) -> None:
    flow = """
steps:
  - id: a
    python: "things:use"
    environments: [toy]
    on_error: [{type: Rejected, next: b}]
    next: end
  - {id: b, python: "things:plain"}
outputs: {b: "${{ default(steps.b.output, 0) }}", why: "${{ steps.a.error.type }}"}
"""
    with Engine("store") as engine:
        [wait] = engine.run(write(ASKS + flow)).waits
        result = engine.reject(wait["id"], comment="not on this machine").result

    assert result is not None
    assert result.outputs == {"b": 1, "why": "Rejected"}
    assert (toy.opens, used()) == (0, "")


def test_without_a_handler_the_execution_fails_and_says_who_said_no(toy: Toy) -> None:
    with Engine("store") as engine:
        [wait] = engine.run(write(ASKS + USE)).waits
        result = engine.reject(wait["id"], comment="not here", by="user:ben").result

    assert result is not None
    assert result.error is not None
    assert result.error["type"] == "Rejected"
    assert "rejected by user:ben: not here" in result.error["message"]


def test_the_first_answer_stands(toy: Toy) -> None:
    with Engine("store") as engine:
        [wait] = engine.run(write(ASKS + USE)).waits
        engine.approve(wait["id"], by="user:ana")

        with pytest.raises(Conflict, match="already approved by user:ana"):
            engine.reject(wait["id"])


def test_who_may_decide_is_as_for_every_approval(toy: Toy) -> None:
    asks = """
environments:
  toy:
    kind: toy
    approval:
      title: May the toy be opened for ${{ inputs.who }}?
      body: It costs money.
      claim: true
      assignees: ["user:ana"]
      choices: [approve, {id: reject, comment: required}]
"""
    with Engine("store") as engine:
        result = engine.run(
            write(f"inputs: {{who: {{type: string}}}}\n{asks}{USE}"), {"who": "Zoe"}
        )
        [wait] = result.waits
        assert wait["title"] == "May the toy be opened for Zoe?"
        with pytest.raises(Exception, match="user:ana"):
            engine.approve(wait["id"], by="user:ben")
        with pytest.raises(Exception, match="comment"):
            engine.reject(wait["id"], by="user:ana")
        assert toy.opens == 0

        engine.claim(wait["id"], by="user:ana")
        engine.delegate(wait["id"], "user:ben", by="user:ana")
        assert engine.approve(wait["id"], by="user:ben").result.status == "succeeded"  # type: ignore[union-attr]


def test_one_question_is_asked_for_all_that_share_one(toy: Toy) -> None:
    flow = """
steps:
  - id: m
    map: 3
    group: [{id: a, python: "things:use", environments: [toy]}]
  - {id: b, python: "things:use", environments: [toy]}
"""
    with Engine("store") as engine:
        [wait] = engine.run(write(ASKS + flow)).waits
        result = engine.approve(wait["id"]).result

    assert result is not None
    assert result.status == "succeeded"
    assert (toy.opens, used()) == (1, "xxxx")


def test_the_answer_outlives_waits_in_which_it_is_given_back(toy: Toy) -> None:
    flow = """
steps:
  - {id: a, python: "things:use", environments: [toy]}
  - {id: w, approval: Go on?}
  - {id: b, python: "things:use", environments: [toy]}
"""
    with Engine("store") as engine:
        [first] = engine.run(write(ASKS + flow)).waits
        result = engine.approve(first["id"]).result
    assert result is not None
    [second] = result.waits
    assert second["step"] == "w"
    assert (toy.opens, toy.releases) == (1, 1)

    with Engine("store") as engine:
        result = engine.approve(second["id"]).result

    assert result is not None
    assert (result.status, toy.opens, toy.releases) == ("succeeded", 2, 2)


def test_the_pending_questions_of_a_map_are_decided_together(toy: Toy) -> None:
    asks = "environments: {toy: {kind: toy, scope: region, approval: ask}}\n"
    flow = """
steps:
  - id: m
    map: 3
    group: [{id: a, python: "things:use", environments: [toy]}]
"""
    with Engine("store") as engine:
        result = engine.run(write(asks + flow))
        waits = engine.waits(batch="toy").items
        assert len(waits) == len(result.waits) == 3
        for wait in waits:
            last = engine.approve(wait["id"]).result

    assert last is not None
    assert (last.status, toy.opens, toy.releases) == ("succeeded", 3, 3)


def test_cancelling_withdraws_the_question(toy: Toy) -> None:
    with Engine("store") as engine:
        result = engine.run(write(ASKS + USE))
        [wait] = result.waits
        engine.cancel(result.execution)

        assert not engine.waits(execution=result.execution).items
        with pytest.raises(Conflict, match="withdrawn"):
            engine.approve(wait["id"])
    assert toy.opens == 0


def test_trying_again_asks_again(toy: Toy) -> None:
    with Engine("store") as engine:
        result = engine.run(write(ASKS + USE + OUTPUT))
        engine.reject(result.waits[0]["id"])
        [wait] = engine.retry(result.execution).waits
        last = engine.approve(wait["id"]).result

    assert last is not None
    assert last.outputs == {"a": "x"}


def test_a_condition_on_arguments_says_which_are_asked_about(toy: Toy) -> None:
    flow = """
environments:
  toy:
    kind: toy
    args: {type: object, properties: {open: {type: boolean}}, required: [open]}
    config: {image: "${{ string(args.open) }}"}
    approval: ${{ args.open }}
steps:
  - {id: a, python: "things:use", with: {text: a}, environments: {toy: {toy: {open: false}}}}
  - {id: b, python: "things:use", with: {text: b}, environments: {toy: {toy: {open: true}}}}
"""
    with Engine("store") as engine:
        [wait] = engine.run(write(flow)).waits
        assert (wait["step"], used()) == ("b", "a")
        assert wait["subject"]["args"] == {"open": True}
        assert engine.approve(wait["id"]).result.status == "succeeded"  # type: ignore[union-attr]


def test_time_that_runs_out_is_expired(toy: Toy) -> None:
    asks = "environments: {toy: {kind: toy, approval: {expires: 50ms}}}\n"
    steps = """
steps:
  - {id: a, python: "things:use", environments: [toy], on_error: [{type: Expired, output: none}]}
"""
    with Engine("store", linger=10) as engine:
        result = engine.run(write(asks + steps + OUTPUT))

    assert result.outputs == {"a": "none"}
    assert toy.opens == 0


CHILD = """
import sys
sys.path.insert(0, {root!r})
from flowengine import Engine
from flowengine.execution_environment import register_provider
from tests.execution_environment.toy import Toy
register_provider(Toy())
with Engine("store") as engine:
    engine.subscribe(lambda update: print("wait", flush=True) if update.kind == "wait" else None)
    engine.run("flow.yaml", id="it")
    print("over", flush=True)
    sys.stdin.read()
"""


@pytest.mark.endurance
def test_a_process_killed_while_people_are_asked_loses_nothing(toy: Toy) -> None:
    compile_flow(write(ASKS + USE + OUTPUT))
    root = str(Path(__file__).parents[2])
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(root=root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "wait\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()

    with Engine("store") as engine:
        [wait] = engine.waits().items
        result: Any = engine.approve(wait["id"]).result

    assert result.outputs == {"a": "x"}
    assert (toy.opens, used()) == (1, "x")


def test_a_fork_has_the_answers_up_to_there(toy: Toy) -> None:
    flow = """
steps:
  - {id: a, python: "things:use", environments: [toy]}
  - {id: b, python: "things:use", environments: [toy]}
"""
    with Engine("store") as engine:
        result = engine.run(write(ASKS + flow))
        engine.approve(result.waits[0]["id"])
        after = engine.fork(result.execution, from_step="b")
        before = engine.fork(result.execution, from_step="a")

    assert (after.status, after.waits) == ("succeeded", [])
    assert before.status == "waiting"
    assert len(before.waits) == 1


def test_a_rejection_holds_for_an_execution_and_not_for_its_forks(toy: Toy) -> None:
    handled = "on_error: [{type: Rejected, output: refused}]"
    flow = f"""
steps:
  - {{id: a, python: "things:use", environments: [toy], {handled}}}
  - {{id: b, python: "things:use", environments: [toy], {handled}}}
outputs: {{a: "${{{{ steps.a.output }}}}", b: "${{{{ steps.b.output }}}}"}}
"""
    with Engine("store") as engine:
        result = engine.run(write(ASKS + flow))
        rejected: Any = engine.reject(result.waits[0]["id"]).result
        forked = engine.fork(result.execution, from_step="b")
        after: Any = engine.approve(forked.waits[0]["id"]).result

    assert rejected.outputs == {"a": "refused", "b": "refused"}
    assert forked.status == "waiting"
    assert after.outputs == {"a": "refused", "b": "x"}


def test_why_and_show_tell_what_it_waits_for(toy: Toy) -> None:
    with Engine("store") as engine:
        result = engine.run(write(ASKS + USE))
        [reason] = engine.why(result.execution)
        [step] = engine.show(result.execution)["steps"]

    assert reason["address"] == "a"
    assert (step["address"], step["status"]) == ("a", "waiting")


def test_one_that_mounts_another_asks_about_both(toy: Toy) -> None:
    flow = """
environments:
  box: {kind: files, approval: ask}
  toy: {kind: toy, config: {mounts: {box: /box}}}
steps: [{id: a, python: "things:use", environments: [toy]}]
"""
    with Engine("store") as engine:
        [wait] = engine.run(write(flow)).waits
        assert (wait["title"], toy.opens) == ("Open the environment 'box'?", 0)
        result = engine.approve(wait["id"]).result

    assert result is not None
    assert (result.status, toy.opens) == ("succeeded", 1)


def test_trying_again_after_expiry_gives_time_anew(toy: Toy) -> None:
    asks = "environments: {toy: {kind: toy, approval: {expires: 1s}}}\n"
    flow = """
steps:
  - id: both
    parallel:
      - {id: a, python: "things:use", environments: [toy]}
      - {id: b, python: "things:use", environments: [toy]}
"""
    clock = Clock()
    with Engine("store", linger=0, clock=clock) as engine:
        assert engine.run(write(asks + flow), id="it").status == "waiting"
        clock.time += 1_000
        result = engine.resume("it")
        assert result.error is not None
        assert result.error["type"] == "Expired"

    with Engine("store", linger=0, clock=clock) as engine:
        [wait] = engine.retry(result.execution).waits
        last = engine.approve(wait["id"]).result

    assert last is not None
    assert (last.status, toy.opens, used()) == ("succeeded", 1, "xx")


CALL = """
environments: {toy: {kind: toy}}
tools: {use: {python: "things:use", approval: ask, environments: [toy], timeout: 1s}}
steps: [{id: a, call: use, on_error: [{type: Rejected, output: no}]}]
outputs: {a: "${{ steps.a.output }}"}
"""


class Clock:
    """A clock that moves only when a test sets it."""

    time = 1_800_000_000_000

    def now(self) -> int:
        return self.time


def test_a_call_is_approved_then_its_environment_opened_then_it_runs_then_that_is_released(
    toy: Toy,
) -> None:
    """The timeout covers the work only: the approval takes an hour."""
    clock = Clock()
    with Engine("store", clock=clock) as engine:
        [wait] = engine.run(write(CALL.replace("1s", "60s"))).waits
        assert (wait["tool"], toy.opens, used()) == ("use", 0, "")
        clock.time += 3_600_000
        result = engine.approve(wait["id"]).result
    assert result is not None
    assert result.outputs == {"a": "x"}
    assert (toy.opens, toy.releases, used()) == (1, 1, "x")


def test_for_a_call_that_is_rejected_nothing_is_opened(toy: Toy) -> None:
    with Engine("store") as engine:
        [wait] = engine.run(write(CALL)).waits
        result = engine.reject(wait["id"]).result
    assert result is not None
    assert result.outputs == {"a": "no"}
    assert (toy.opens, used()) == (0, "")


def test_work_that_does_not_end_fails_once_its_own_time_is_over(toy: Toy) -> None:
    Path("things.py").write_text(
        "import asyncio\nasync def use(toy):\n    await asyncio.Event().wait()\n"
    )
    with Engine("store") as engine:
        [wait] = engine.run(write(CALL)).waits
        result = engine.approve(wait["id"]).result
    assert result is not None
    assert result.error is not None
    assert result.error["type"] == "Timeout"
    assert (toy.opens, toy.releases) == (1, 1)

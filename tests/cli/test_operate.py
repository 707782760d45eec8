# Shows F5
"""Inspecting and operating executions: list, show, why, events, signal, cancel, retry, fork."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from flowengine.util import loops
from tests.cli.conftest import CommandLine, also_served, steady

READY = """\
flowengine: 1
id: ready
version: "2"
state: {level: {type: integer, default: 1}}
inputs: {flag: {type: string}}
steps:
  - id: first
    output: ${{ state.level }}
  - id: second
    run: {command: [test, -e, "${{ inputs.flag }}"]}
    effect: idempotent
outputs:
  level: ${{ state.level }}
"""
ORDER = """\
flowengine: 1
id: order
inputs: {order: {type: string}}
signals:
  paid:
    key: ${{ inputs.order }}
    data: {type: object, properties: {amount: {type: number}}, required: [amount]}
steps:
  - id: hold
    wait: {first: [{id: paid, signal: paid}, {id: late, for: 3d}]}
    next: {outcome: {paid: end, late: end}}
outputs:
  amount: ${{ steps.hold.output.data.amount }}
"""


@pytest.fixture
def failed(flowengine: CommandLine, tmp_path: Path) -> str:
    """The ID of an execution that fails until a file exists."""
    flow = flowengine.write("ready.yaml", READY)
    flowengine("run", flow, "-i", f"flag={tmp_path / 'flag'}", "--label", "team=it", code=1)
    return flowengine.newest()


@pytest.fixture
def order(flowengine: CommandLine) -> str:
    """The ID of an execution that waits for a signal."""
    flowengine("run", flowengine.write("order.yaml", ORDER), "-i", "order=B7", code=4)
    return flowengine.newest()


def test_a_journal_is_followed_to_its_end(flowengine: CommandLine, order: str) -> None:
    process = flowengine.spawn("--json", "events", order, "--follow")
    assert process.stdout is not None
    first = process.stdout.readline()
    flowengine("signal", order, "paid", "--data", '{"amount": 5}')
    rest, _ = process.communicate(timeout=60)

    assert json.loads(first)["type"] == "started"
    assert [json.loads(line)["type"] for line in rest.splitlines()] == ["message"]
    assert process.returncode == 0


@also_served
def test_a_cancel_that_came_too_late_says_how_the_execution_ended(
    flowengine: CommandLine, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process ended it between the check and the cancellation."""

    def too_late(*_: object, **__: object) -> str:
        flowengine("signal", order, "paid", "--data", '{"amount": 50}')
        return order

    monkeypatch.setattr("flowengine.engines.operating.ask_to_cancel", too_late)
    done = flowengine("cancel", order, code=7)

    assert "succeeded before it could be cancelled" in done.err
    assert "asked to be" not in done.err


@pytest.mark.endurance
# Shows F32
def test_an_execution_held_by_another_process_is_left_to_it(flowengine: CommandLine) -> None:
    """A cancellation waits for that process."""
    flow = flowengine.write(
        "slow.yaml", "flowengine: 1\nid: slow\nsteps: [{id: a, run: sleep 60}]\n"
    )
    process = flowengine.spawn("run", str(flow))
    flowengine.wait_until_running(process)
    execution = flowengine.newest()

    held = flowengine("resume", execution, code=7)
    cancelled = flowengine("cancel", execution)
    _, err = process.communicate(timeout=60)

    assert str(process.pid) in held.err
    assert cancelled.err.endswith(" cancelled\n")
    assert process.returncode == 6, err


def test_interrupting_saves_and_says_how_to_go_on(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "slow.yaml",
        "flowengine: 1\nid: slow\nsteps: [{id: a, run: sleep 60, effect: idempotent}]\n",
    )
    process = flowengine.spawn("run", str(flow), start_new_session=True)
    flowengine.wait_until_running(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert steady(err).endswith(
        "interrupted; saved as EXECUTION; to resume: flowengine resume EXECUTION\n"
    )
    assert "was running when its process ended" in flowengine("why", flowengine.newest()).out


def test_an_interrupt_while_the_event_loop_is_made_is_told_in_one_line(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = loops.new_event_loop

    def interrupted() -> asyncio.AbstractEventLoop:
        os.kill(os.getpid(), signal.SIGINT)
        return make()

    monkeypatch.setattr(loops, "new_event_loop", interrupted)
    text = "flowengine: 1\nid: slow\nsteps: [{id: a, run: sleep 60}, {id: b, run: sleep 60}]\n"
    err = flowengine("run", flowengine.write("slow.yaml", text), code=130).err
    gc.collect()  # Python would warn of a coroutine that was never awaited, and of half a loop

    assert steady(err).endswith(
        "interrupted; saved as EXECUTION; to resume: flowengine resume EXECUTION\n"
    )


@also_served
def test_a_reader_that_goes_away_is_no_error(flowengine: CommandLine, failed: str) -> None:
    process = flowengine.spawn("list")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()

    assert process.wait(60) == 141
    assert err == ""


@pytest.mark.endurance
def test_a_text_from_another_alphabet_is_shown_on_a_poor_terminal(
    flowengine: CommandLine, hello: Path
) -> None:
    env = {"PYTHONIOENCODING": "latin-1", "PATH": ""}
    process = flowengine.spawn("--json", "run", str(hello), "-i", "name=漢字", env=env)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 0, err
    assert json.loads(out)["outputs"] == {"message": "Hello, 漢字!"}


def test_python_m_is_the_same_program(flowengine: CommandLine) -> None:
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "flowengine", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == flowengine("--version").out

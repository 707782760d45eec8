"""Inspecting and operating executions: list, show, why, events, signal, cancel, retry, fork."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.kernel.notation.times import parse_time
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
    run: {argv: [test, -e, "${{ inputs.flag }}"]}
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


@also_served
def test_executions_are_listed_newest_first_and_filtered(
    flowengine: CommandLine, failed: str, hello: Path
) -> None:
    flowengine("run", hello)

    listed = flowengine("list").out.splitlines()
    labelled = flowengine("--json", "list", "--label", "team=it", "--since", "1h").json()

    assert listed[0].split() == ["ID", "FLOW", "STATUS", "STARTED", "ENDED", "LABELS"]
    assert [line.split()[1] for line in listed[1:]] == ["hello", "ready"]
    assert listed[2].endswith("team=it")
    assert [one["execution"] for one in labelled] == [failed]
    assert flowengine("list", "--limit", "1").err == "there are more: --limit 50 lists up to 50\n"
    assert flowengine("list", "--status", "stalled").err.startswith("no matching executions in ")


def test_nothing_is_made_in_a_folder_where_nothing_was_run(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    listed = flowengine("list")
    shown = flowengine("show", "01k8", code=9)

    there_is_none = f"no store exists at {tmp_path}/.flowengine or in a directory above it\n"
    assert (listed.out, listed.err) == ("", there_is_none)
    assert shown.err == (
        f"error: {there_is_none}  the first run creates it, and --store PATH names another one\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_all_about_an_execution_is_shown(flowengine: CommandLine, failed: str) -> None:
    flag = json.loads(flowengine("--json", "show", failed).out)["inputs"]["flag"]

    shown = steady(flowengine("show", failed[:8]).out).replace(flag, "FLAG")

    assert shown == (
        "execution   EXECUTION\n"
        "flow        ready version 2\n"
        "status      failed\n"
        "started     TIME by user:ana\n"
        "ended       TIME, after 0.0s\n"
        "durability  power\n"
        "labels      team=it\n"
        "on host     second\n"
        "inputs\n"
        "  flag: FLAG\n"
        "steps\n"
        "  first          succeeded   0.0s     1\n"
        "  second         failed      0.0s     ExitCode: exit code 1\n"
        "error       ExitCode at second: exit code 1\n"
        "try again   flowengine retry EXECUTION\n"
    )


@pytest.mark.endurance
@pytest.mark.parametrize("command", ["show", "why", "events"])
def test_without_an_id_the_newest_execution_is_meant(
    flowengine: CommandLine, hello: Path, failed: str, command: str
) -> None:
    before = flowengine(command, failed)
    assert flowengine(command).out == before.out

    flowengine("run", hello)
    assert flowengine(command).out != before.out


@also_served
def test_one_step_is_shown_with_input_and_attempts(flowengine: CommandLine, failed: str) -> None:
    shown = steady(flowengine("show", failed, "--step", "second").out)

    assert shown.startswith("step        second (run)\nstatus      failed\n")
    assert "input       {argv: [test, " in shown
    assert "attempt 1   failed      TIME to TIME  ExitCode: exit code 1\n" in shown
    assert "has no step 'third'" in flowengine("show", failed, "--step", "third", code=9).err


@also_served
@pytest.mark.parametrize("level", ["power", "process", "none"])
def test_the_durability_in_force_is_shown(flowengine: CommandLine, hello: Path, level: str) -> None:
    flowengine("--durability", level, "run", hello)

    assert (
        f"durability  {level}\n"
        in flowengine("--durability", level, "show", flowengine.newest()).out
    )


@also_served
def test_the_journal_is_shown_as_lines(flowengine: CommandLine, failed: str) -> None:
    lines = flowengine("events", failed).out.splitlines()
    entries = [json.loads(line) for line in flowengine("--json", "events", failed).out.splitlines()]

    assert lines[0].split()[:3] == ["0", entries[0]["at"], "started"]
    assert "failed     second  error=" in lines[-1]
    assert [entry["seq"] for entry in entries] == list(range(len(entries)))
    last = flowengine("--json", "events", failed, "--from-seq", str(len(entries) - 1)).out
    assert json.loads(last) == entries[-1]


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
def test_why_names_what_is_waited_for_and_a_command_that_works(
    flowengine: CommandLine, order: str
) -> None:
    said = flowengine("why", order).out

    assert said.startswith("hold: waiting for a message 'paid' with key 'B7'\n  since       ")
    assert "  command     flowengine signal --key B7 paid --data JSON\n" in said
    [reason] = flowengine("--json", "why", order).json()
    assert (reason["address"], "wait" in reason) == ("hold", True)


def test_a_signal_without_data_is_shown_without_it(flowengine: CommandLine) -> None:
    text = "flowengine: 1\nid: w\nsignals: {go: {}, paid: {data: {type: object}}}\nsteps:\n"
    flowengine.write(
        "w.yaml",
        text + "  - {id: w, wait: {first: [{id: g, signal: go}, {id: p, signal: paid}]}}\n",
    )
    flowengine("run", "w.yaml", "-q", code=4)
    id = flowengine.newest()

    said = [
        line.split("send")[1].strip()
        for line in flowengine("show", id).out.splitlines()
        if "send " in line
    ]

    assert [line.split(" ", 3)[3] for line in said] == ["go", "paid --data JSON"]


@also_served
def test_a_signal_moves_the_execution_that_has_its_key(flowengine: CommandLine, order: str) -> None:
    bare = flowengine("signal", "--key", "B7", "paid", code=3)
    wrong = flowengine("signal", "--key", "B7", "paid", "--data", '{"amount": "x"}', code=3)
    nobody = flowengine("signal", "--key", "B8", "paid", "--data", '{"amount": 5}', code=9)
    flowengine.write("paid.json", '{"amount": 5}')
    done = flowengine("signal", "--key", "B7", "paid", "--data", "@paid.json")

    assert bare.err == (
        "error: signal 'paid' must be a map, not null\n  give its data: --data JSON\n"
    )
    assert "--data" not in wrong.err
    assert "signal 'paid': 'amount' must be a number" in wrong.err
    assert "B8" in nobody.err
    assert done.out == "amount: 5\n"
    assert steady(done.err).startswith("paid sent to EXECUTION\nexecution EXECUTION order\n")


def test_a_signal_with_an_id_counts_once_and_may_only_be_recorded(
    flowengine: CommandLine, order: str
) -> None:
    for _ in range(2):
        words = ["signal", order, "paid", "--data", '{"amount": 5}', "--id", "msg-1"]
        told = flowengine(*words, "--no-resume")
    assert steady(told.err) == (
        "paid was already sent to EXECUTION\n"
        "not resumed, to resume it: flowengine resume EXECUTION\n"
    )
    words = ["signal", order, "paid", "--data", '{"amount": 50}', "--id", "msg-1"]
    other = flowengine(*words, code=7)
    assert "'amount' is 5 there and 50 here" in other.err

    assert flowengine("resume", order).out == "amount: 5\n"
    assert flowengine("events", order).out.count("message") == 1


ANSWERED = """
flowengine: 1
id: answered
signals: {go: {}}
steps:
  - {id: begin, next: {all: [ask, hold]}}
  - {id: ask, approval: "Go on?", next: pause}
  - {id: hold, wait: {signal: go}, next: pause}
  - {id: pause, join: 1, wait: 50s}
"""


@also_served
def test_who_answers_says_how_long_to_stay(flowengine: CommandLine) -> None:
    file = flowengine.write("answered.yaml", ANSWERED)
    flowengine("run", file, "--id", "e1", code=4)
    said = flowengine("approve", "--all", "--execution", "e1", "--linger", "0", code=4).err
    assert "waiting     until" in said
    flowengine("run", file, "--id", "e2", code=4)
    flowengine("approve", "--all", "--execution", "e2", "--no-resume")
    said = flowengine("signal", "e2", "go", "--linger", "0", code=4).err
    assert "waiting     until" in said


EITHER = ANSWERED.replace("join: 1, wait: 50s", "join: {need: 1, late: cancel}, output: done")


@also_served
def test_all_that_can_move_is_resumed_at_once(flowengine: CommandLine) -> None:
    file = flowengine.write("answered.yaml", EITHER)
    for name in ("sent", "decided", "neither", "cancelled"):
        flowengine("run", file, "--id", name, code=4)
    flowengine("signal", "sent", "go", "--no-resume")
    flowengine("approve", "--all", "--execution", "decided", "--no-resume")
    flowengine("cancel", "cancelled")

    told = flowengine("--json", "resume", "--due").json()

    assert {(one["execution"], one["status"]) for one in told} == {
        ("sent", "succeeded"),
        ("decided", "succeeded"),
    }
    assert flowengine("resume", "--due").err == ""
    flowengine("resume", code=2)
    flowengine("resume", "sent", "--due", code=2)


@pytest.mark.parametrize("words", [["paid"], ["01k8", "paid", "--key", "B7"]])
def test_a_signal_needs_one_place_to_go_to(flowengine: CommandLine, words: list[str]) -> None:
    done = flowengine("signal", *words, code=2)

    assert done.err.startswith("error: a signal needs an execution or a key")


@also_served
def test_executions_are_cancelled_and_those_that_have_ended_are_not(
    flowengine: CommandLine, order: str, failed: str
) -> None:
    done = flowengine("cancel", order, failed, "--reason", "ordered twice", code=7)
    shown = flowengine("--json", "show", order).json()

    assert "cancelled\n" in done.err
    assert f"error: execution {failed} has failed at 20" in done.err
    assert shown["status"] == "cancelled"
    again = flowengine("cancel", order, code=7).err
    assert again == f"error: execution {order} was cancelled at {shown['ended_at'][:19]}Z\n"
    assert shown["error"]["message"] == "ordered twice"


@also_served
def test_a_cancel_that_came_too_late_says_how_the_execution_ended(
    flowengine: CommandLine, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process ended it between the check and the cancellation."""

    def too_late(*_: object, **__: object) -> str:
        flowengine("signal", order, "paid", "--data", '{"amount": 50}')
        return order

    monkeypatch.setattr("flowengine.engines.messages.ask_to_cancel", too_late)
    done = flowengine("cancel", order, code=7)

    assert "succeeded before it could be cancelled" in done.err
    assert "asked to be" not in done.err


@also_served
def test_retry_starts_from_what_failed_and_keeps_the_rest(
    flowengine: CommandLine, failed: str, tmp_path: Path
) -> None:
    flowengine("retry", failed, code=1)
    (tmp_path / "flag").touch()
    done = flowengine("retry", failed)

    assert done.out == "level: 1\n"
    assert "first" not in done.err
    assert "only a failed execution can be retried" in flowengine("retry", failed, code=7).err


@also_served
def test_fork_begins_at_a_step_with_other_state_and_says_where_it_came_from(
    flowengine: CommandLine, failed: str, tmp_path: Path
) -> None:
    (tmp_path / "flag").touch()

    done = flowengine("fork", failed, "--from-step", "second", "--set", "level=7", "--id", "other")

    assert done.out == "level: 7\n"
    assert f"forked from {failed[:12]} at second\n" in done.err
    assert flowengine("--json", "show", failed).json()["status"] == "failed"
    wrong = flowengine("fork", failed, "--from-step", "second", "--set", "level=x", code=3)
    assert wrong.err == "error: state 'level' must be a whole number, not 'x'\n"
    assert "nowhere" in flowengine("fork", failed, "--from-step", "nowhere", code=9).err


def test_a_fork_names_where_it_came_from_by_a_short_id(
    flowengine: CommandLine, hello: Path
) -> None:
    ran = flowengine("--json", "run", hello).json()["execution"]

    forked = flowengine("fork", ran, "--from-step", "greet", "--id", "other")

    assert f"forked from {ran[:12]} at greet\n" in forked.err
    assert f"forked from {ran[:12]} at greet\n" in flowengine("show", "other").out
    assert "was forked from left at greet\n" in flowengine("diff", ran, "other").out
    assert flowengine("--json", "show", "other").json()["forked_from"] == f"{ran} at greet"


@also_served
def test_old_executions_are_deleted(flowengine: CommandLine, failed: str, order: str) -> None:
    kept = flowengine("prune")
    gone = flowengine("prune", "--older-than", "0s")

    assert kept.out == "deleted 0 executions and 0 files (0.0 MiB)\n"
    assert gone.out == "deleted 1 executions and 0 files (0.0 MiB)\n"
    assert [one["execution"] for one in flowengine("--json", "list").json()] == [order]


@pytest.mark.endurance
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


def test_an_interrupt_waits_until_a_module_is_imported(flowengine: CommandLine) -> None:
    """Libraries in Rust end their import with a panic otherwise."""
    flowengine.write("sitecustomize.py", INTERRUPTING)
    text = "flowengine: 1\nid: own\nsteps: [{id: a, run: 'true'}, {id: b, run: sleep 60}]\n"
    flow = flowengine.write("flow.yaml", text)
    process = flowengine.spawn("run", str(flow), env={**os.environ, "PYTHONPATH": "."})
    _, err = process.communicate(timeout=60)

    assert (flowengine.folder / "imported").exists()
    assert process.returncode == 130
    assert "interrupted; saved as " in err


INTERRUPTING = """
import os, signal, sys


class Finder:
    def find_spec(name, path, target=None):
        if name == "jsonschema_rs":
            os.kill(os.getpid(), signal.SIGINT)
            open("imported", "w").close()


sys.meta_path.insert(0, Finder)
"""


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


def test_a_store_that_cannot_be_used_has_its_own_code(flowengine: CommandLine, hello: Path) -> None:
    flowengine.write("file", "no folder")

    assert flowengine("--store", "file", "run", hello, code=10).err.startswith("error: the store ")


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


COUNTED = """\
flowengine: 1
id: counted
steps:
  - {id: each, map: {over: [1, 2, 3]}, run: sleep 0.2, effect: idempotent}
  - id: again
    loop: {until: "${{ output.stdout == '2' }}", max: 3}
    run: {script: "sleep 0.2; echo >> rounds; printf $(wc -l < rounds)", cwd: .}
"""


def test_maps_and_loops_take_as_long_as_their_parts(flowengine: CommandLine) -> None:
    done = flowengine("run", flowengine.write("counted.yaml", COUNTED))
    steps = {
        step["address"]: step
        for step in flowengine("--json", "show", flowengine.newest()).json()["steps"]
    }

    for whole, parts in (("each", ["each[0]", "each[1]", "each[2]"]), ("again", ["again@1"])):
        began = parse_time(steps[whole]["started_at"])
        assert began == min(parse_time(steps[part]["started_at"]) for part in parts)
        assert began < parse_time(steps[whole]["ended_at"])
    assert [steps[f"again@{n}"]["attempts"] for n in (1, 2)] == [1, 1]
    assert "attempts" not in flowengine("show", flowengine.newest()).out
    [told] = [line.split() for line in done.err.splitlines() if line.split()[:1] == ["again"]]
    assert float(told[2].removesuffix("s")) >= 0.4
    drawn = flowengine("graph", flowengine.newest()).out
    assert "3 succeeded" in drawn
    assert "2 succeeded" in drawn


VOTED = """\
flowengine: 1
id: voted
steps:
  - {id: ask, approval: {title: Pay?, need: 2}}
"""


@also_served
def test_the_vote_that_closes_an_approval_is_counted(flowengine: CommandLine) -> None:
    [wait] = flowengine("run", flowengine.write("voted.yaml", VOTED), code=4).ids
    voted = flowengine("approve", wait, "--as", "user:ben", code=4)
    assert re.match(r"\w+ user:ben voted 'approve' at 2", voted.err)
    assert "approved by" not in voted.err
    assert re.search(r"votes +1 of 2", flowengine("approvals", "show", wait).out)
    flowengine("approve", wait, "--as", "user:zoe")

    assert re.search(r"votes +2 of 2", flowengine("approvals", "show", wait).out)


def test_what_was_interrupted_is_listed_with_the_command_that_resumes_it(
    flowengine: CommandLine,
) -> None:
    flow = flowengine.write(
        "long.yaml",
        "flowengine: 1\nid: long\nsteps: [{id: a, run: 'sleep 60', effect: idempotent}]\n",
    )
    process = flowengine.spawn("run", str(flow), "--id", "it")
    flowengine.wait_until_running(process)
    process.kill()
    process.communicate()

    listed = flowengine("list", "--status", "interrupted")
    shown = flowengine("show", "it")

    assert "it  long  interrupted" in listed.out
    assert "interrupted; to resume it: flowengine resume it\n" in listed.err
    assert "status      interrupted\nresume      flowengine resume it\n" in shown.out
    assert re.search(r"^  a +interrupted$", shown.out, re.MULTILINE)
    [step] = flowengine("--json", "show", "it", "--step", "a").json()["steps"]
    assert (step["status"], step["tries"][0]["status"]) == ("interrupted", "interrupted")
    assert "flowengine resume it" in flowengine("why", "it").out
    assert flowengine("list", "--status", "running").out == ""
    flowengine("cancel", "it", "--now")


def test_an_execution_that_was_only_recorded_says_so_until_a_process_begins_it(
    flowengine: CommandLine, hello: Path
) -> None:
    with Engine() as engine:
        id = engine.start(hello)
        assert engine.result(id).status == "recorded"
        assert [one["status"] for one in engine.executions(status="recorded").items] == ["recorded"]
        assert engine.executions(status="running").items == []
        assert engine.executions(status="interrupted").items == []
    listed = flowengine("list")
    assert "  recorded  " in listed.out
    command = listed.err.removeprefix("recorded; to begin it: flowengine ").strip().split()
    shown = flowengine("show", id)
    assert "status      recorded\n" in shown.out
    assert flowengine("--json", "show", id).json()["command"] == f"flowengine {' '.join(command)}"

    assert "Hello" in flowengine(*command).out
    assert flowengine("--json", "show", id).json()["status"] == "succeeded"


BROKEN = """\
flowengine: 1
id: broken
steps:
  - {id: look, output: 3}
  - {id: charge, run: {script: "exit 1", env: {LEVEL: "1"}}}
  - {id: tell, output: sent}
"""


@pytest.mark.parametrize(
    ("changes", "why", "at"),
    [
        ({"id: charge": "id: pay"}, "charge: it failed, and the new flow has no such step", "look"),
        (
            {'"1"': '"${{ steps.look.output }}"'},
            "'steps.look.output', which was not kept",
            "charge",
        ),
    ],
)
def test_a_fixed_file_that_does_not_fit_names_a_fork_that_works(
    flowengine: CommandLine, changes: dict[str, str], why: str, at: str
) -> None:
    flowengine.write("broken.yaml", BROKEN)
    flowengine("run", "broken.yaml", "--id", "it", code=1)
    fixed = BROKEN.replace("exit 1", "true")
    for old, new in changes.items():
        fixed = fixed.replace(old, new)
    flowengine.write("it is fixed.yaml", fixed)

    refused = flowengine("retry", "it", "--file", "it is fixed.yaml", code=7).err

    assert why in refused
    assert "running" not in refused
    command = refused.strip().rpartition("start a new execution: ")[2]
    assert command == f"flowengine fork it --from-step {at} --file 'it is fixed.yaml'"
    flowengine(*shlex.split(command)[1:])


def test_a_fixed_file_may_read_the_result_of_the_step_that_runs_again(
    flowengine: CommandLine,
) -> None:
    flowengine.write("broken.yaml", BROKEN)
    flowengine("run", "broken.yaml", "--id", "it", code=1)
    fixed = BROKEN.replace("exit 1", "echo paid").replace(
        "output: sent", "output: '${{ steps.charge.output.stdout }}'"
    )
    flowengine.write("fixed.yaml", fixed)
    flowengine("retry", "it", "--file", "fixed.yaml")
    assert '"paid' in flowengine("show", "it", "--step", "tell").out


def test_a_fixed_file_without_a_step_to_begin_at_names_no_fork(flowengine: CommandLine) -> None:
    text = BROKEN.replace("  - {id: look, output: 3}\n", "")
    flowengine.write("broken.yaml", text)
    flowengine("run", "broken.yaml", "--id", "begun", code=1)
    flowengine.write("fixed.yaml", text.replace("id: charge", "id: pay"))

    refused = flowengine("retry", "begun", "--file", "fixed.yaml", code=7).err

    assert "change only what failed and what comes after it\n" in refused
    assert "fork" not in refused

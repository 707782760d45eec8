"""`flowengine run` for its user: output streams and exit codes."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CommandLine, steady


def test_outputs_are_on_standard_output_and_progress_is_not(
    flowengine: CommandLine, hello: Path
) -> None:
    done = flowengine("run", hello, "-i", "name=Ada")

    assert done.out == "message: Hello, Ada!\n"
    assert steady(done.err) == (
        "execution EXECUTION hello\n  greet          succeeded   0.0s\nsucceeded in 0.0s\n"
    )


def test_an_execution_that_waits_says_for_what_and_how_to_answer(
    flowengine: CommandLine, refund: Path
) -> None:
    done = flowengine("run", refund, "-i", "amount=80", "-i", 'assignees=["user:ben"]', code=4)

    assert done.out == ""
    assert steady(done.err) == (
        "execution EXECUTION refund version 3\n"
        "  ask            waiting     approval WAIT1\n"
        "waiting for 1 approval\n"
        "  WAIT1  Refund 80 EUR?\n"
        "        assignees  user:ben\n"
        "        show       flowengine approvals show WAIT1\n"
        "        approve    flowengine approve WAIT1 --form cost_center=VALUE\n"
        "        reject     flowengine reject WAIT1 --comment TEXT\n"
        "        later      flowengine approvals decide WAIT1 --choice later\n"
        "saved as EXECUTION; nothing runs while it waits\n"
    )


def test_json_is_one_object_and_nothing_else(flowengine: CommandLine, refund: Path) -> None:
    done = flowengine("--json", "run", refund, "-i", "amount=80", code=4).json()

    assert list(done) == ["execution", "flow", "status", "outputs", "waits", "error"]
    assert (done["flow"], done["status"], done["outputs"]) == ("refund", "waiting", None)
    [wait] = done["waits"]
    assert wait["subject"] == {"amount": 80, "account": "travel"}
    assert [choice["id"] for choice in wait["choices"]] == ["approve", "reject", "later"]


@pytest.mark.parametrize(
    "command",
    ["run bad.yaml", "run none.yaml --detach", "signal --key k s --file bad.yaml"],
)
def test_what_cannot_run_leaves_nothing_behind(
    flowengine: CommandLine, tmp_path: Path, command: str
) -> None:
    flowengine.write("bad.yaml", "flowengine: 1\nid: bad\nsteps: [{id: a, next: b}]\n")

    flowengine(*command.split(), code=9 if "none.yaml" in command else 3)

    assert [one.name for one in tmp_path.iterdir()] == ["bad.yaml"]


def test_quiet_shows_results_only(flowengine: CommandLine, hello: Path) -> None:
    done = flowengine("run", hello, "-q")

    assert (done.out, done.err) == ("message: Hello, world!\n", "")


def test_quiet_says_nothing_of_what_is_waited_for(flowengine: CommandLine, refund: Path) -> None:
    done = flowengine("-q", "run", refund, "-i", "amount=80", code=4)

    assert (done.out, done.err) == ("", "")


def test_verbose_shows_starts_and_outputs(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "words.yaml",
        "flowengine: 1\nid: words\nsteps:\n"
        "  - {id: count, run: {argv: [echo, two words]}, output: '${{ result.stdout }}'}\n",
    )

    done = flowengine("-v", "run", flow)

    assert "  count          running     {argv: [echo, two words]}\n" in done.err
    assert '"two words\\n"\n' in done.err


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ("{type: string}", "5", "5"),
        ("{type: string}", "=a=b", "=a=b"),
        ("{type: integer}", "5", 5),
        ("{type: number}", "5", 5),
        ("{type: boolean}", "true", True),
        ("{type: array}", '[1, "a"]', [1, "a"]),
        ("{type: object}", '{"a": null}', {"a": None}),
        ('{type: [string, "null"]}', "null", None),
        ('{type: [string, "null"]}', "5", "5"),
        ("{type: [string, integer]}", "5", 5),
        ("{enum: [red, green]}", "red", "red"),
        ("{}", "plain text", "plain text"),
        ("{}", "[1]", [1]),
    ],
)
def test_an_input_is_read_by_its_declared_type(
    flowengine: CommandLine, schema: str, text: str, value: Any
) -> None:
    flow = flowengine.write(
        "echo.yaml",
        f"flowengine: 1\nid: echo\ninputs: {{x: {schema}}}\nsteps: [{{id: a}}]\n"
        "outputs: {x: '${{ inputs.x }}'}\n",
    )

    assert flowengine("--json", "run", flow, "-i", f"x={text}").json()["outputs"] == {"x": value}


def test_inputs_come_from_a_file_or_standard_input_and_single_ones_win(
    flowengine: CommandLine, hello: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flowengine.write("inputs.json", '{"name": "Ben"}')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO('{"name": "Zoé"}'.encode())))

    assert flowengine("run", hello, "-i", "@inputs.json").out == "message: Hello, Ben!\n"
    assert flowengine("run", hello, "-i", "-").out == "message: Hello, Zoé!\n"
    both = flowengine("run", hello, "-i", "name=Cleo", "-i", "@inputs.json")
    assert both.out == "message: Hello, Cleo!\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-i", "nmae=Ada"], 3, "error: there is no input 'nmae'\n  inputs: amount, assignees\n"),
        (["-i", "amuont=3"], 3, "error: there is no input 'amuont'\n  did you mean 'amount'?\n"),
        (["-i", "amount=much"], 3, "error: input 'amount' must be a number, not 'much'\n"),
        (["-i", "amount=NaN"], 3, "error: input 'amount' must be a number, not 'NaN'\n"),
        (["-i", "amount=1e999"], 3, "'amount' must be a number of 64 bits, not 1e999\n"),
        (["-i", "amount=01"], 3, "error: input 'amount' must be a number, not '01'\n"),
        (
            ["-i", "assignees=[1e999]"],
            3,
            "input 'assignees' cannot be read as JSON: 1e999 is too large for a number. Send it"
            " as text\n",
        ),
        ([], 3, "error: input 'amount' is missing\n  give it: -i amount=VALUE\n"),
        (["-i", "amount"], 2, "'amount' is not NAME=VALUE, @FILE or -\n"),
        (["-i", "=1"], 2, "'=1' is not NAME=VALUE, @FILE or -\n"),
        (["-i", "amount=1", "-i", "amount=2"], 2, "error: input 'amount' is given twice\n"),
        (["-i", "@none.json"], 9, "error: cannot read none.json: No such file or directory\n"),
        (["-i", "@list.json"], 3, "error: the inputs in list.json must be a map\n"),
        (
            ["-i", "@bad.json"],
            3,
            "bad.json cannot be read as JSON: Expecting value (line 2, column 1)\n",
        ),
    ],
)
def test_wrong_inputs_name_the_field_and_nothing_runs(
    flowengine: CommandLine, refund: Path, words: list[str], code: int, said: str
) -> None:
    flowengine.write("list.json", "[1]")
    flowengine.write("bad.json", '{"amount":\n}')

    done = flowengine("run", refund, *words, code=code)

    assert said in done.err
    assert flowengine("--json", "list").json() == []


def test_an_invalid_file_is_reported_whole_and_as_json(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "bad.yaml",
        "flowengine: 1\nid: bad\ninputs: {amount: {type: number}}\nsteps:\n"
        '  - {id: a, when: "${{ inputs.amout > 5 }}", next: nowhere}\n',
    )

    done = flowengine("run", flow.name, code=3)
    errors = flowengine("--json", "run", flow.name, code=3).json()["errors"]

    assert done.err.startswith("bad.yaml:5:24: error[E301]: 'inputs.amout' is not declared\n")
    assert "did you mean 'inputs.amount'?" in done.err
    assert done.err.endswith("2 errors in bad.yaml; nothing was run\n")
    assert [(one["line"], one["column"], one["code"]) for one in errors] == [
        (5, 24, "E301"),
        (5, 52, "E201"),
    ]


def test_a_failure_names_the_step_the_error_and_what_to_do(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "no.yaml",
        "flowengine: 1\nid: no\nsteps:\n"
        "  - {id: a, fail: {type: OutOfStock, message: There is none left.}}\n",
    )

    done = flowengine("run", flow, code=1)

    assert steady(done.err).endswith(
        "  a              failed      OutOfStock: There is none left.\n"
        "failed in 0.0s\n"
        "error: OutOfStock at a: There is none left.\n"
        "  look        flowengine show EXECUTION\n"
        "  try again   flowengine retry EXECUTION --file FILE\n"
    )
    error = flowengine("--json", "run", flow, code=1).json()["error"]
    assert (error["type"], error["step"]) == ("OutOfStock", "a")


def test_a_flow_that_cancels_itself_ends_with_its_own_code(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "stop.yaml", "flowengine: 1\nid: stop\nsteps: [{id: a, cancel: execution}]\n"
    )

    assert "cancelled in 0.0s\n" in steady(flowengine("run", flow, code=6).err)


def test_events_are_lines_of_json(flowengine: CommandLine, refund: Path) -> None:
    done = flowengine("run", "--events", refund, "-i", "amount=80", code=4)

    [started] = [json.loads(line) for line in done.out.splitlines()]
    assert (started["seq"], started["type"]) == (0, "started")
    assert started["inputs"]["amount"] == 80


def test_what_a_step_prints_is_a_result_but_not_beside_json(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "say.yaml",
        "flowengine: 1\nid: say\nsteps:\n"
        '  - {id: a, call: std.print, with: {text: "one\\e[31m\\ntwo"}}\n',
    )

    assert flowengine("run", flow).out == "one\ufffd[31m\ntwo\n"
    assert flowengine("--json", "run", flow).json()["status"] == "succeeded"


def test_steps_that_run_on_the_host_are_named_first(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "host.yaml", "flowengine: 1\nid: host\nsteps: [{id: build, run: echo hi}]\n"
    )

    done = flowengine("run", flow)

    assert done.err.startswith("unsandboxed on this host: build\nexecution ")
    assert "without a sandbox" not in done.err


def test_a_failure_on_the_host_does_not_repeat_that_it_was_unsandboxed(
    flowengine: CommandLine,
) -> None:
    flow = flowengine.write(
        "host.yaml", "flowengine: 1\nid: host\nsteps: [{id: build, run: exit 3}]\n"
    )

    done = flowengine("run", flow, "--id", "first", code=1)

    assert done.err.count("unsandboxed") == 1
    assert "without a sandbox" not in done.err + flowengine("show", "first", "--step", "build").out


def test_the_lines_of_an_error_stay_lines_that_imitate_nothing(flowengine: CommandLine) -> None:
    (flowengine.folder / "keys.py").write_text(
        "def find(): raise ValueError('no key:\\nin FILE')\n"
    )
    flow = flowengine.write(
        "keys.yaml", "flowengine: 1\nid: keys\nsteps: [{id: a, python: 'keys:find'}]\n"
    )

    done = flowengine("run", flow, "--id", "first", code=1)

    assert "error: ValueError at a: no key:\n  | in FILE\n" in done.err
    for view in (["show", "first"], ["show", "first", "--step", "a"], ["why", "first"]):
        assert "ValueError: no key:\n  | in FILE\n" in flowengine(*view).out.replace(" at a", "")


LOUD = """
import os, subprocess, sys, threading

print("imported")
early = sys.stdout


def speak(text):
    print(text, "print")
    early.write(f"{text} write without an end")
    sys.__stdout__.write(f"{text} original\\n")
    sys.stdout.buffer.write(f"{text} bytes\\n".encode())
    os.write(1, f"{text} descriptor\\n".encode())
    subprocess.run(["echo", text, "child"])
    thread = threading.Thread(target=print, args=[text, "thread"])
    thread.start()
    thread.join()
    return text


async def speak_later(text):
    return speak(text)


def add(old, new):
    print("reducer")
    return old + new
"""
TALK = """\
flowengine: 1
id: talk
state:
  sum: {type: integer, default: 0, reducer: {python: "loud:add"}}
steps:
  - {id: one, python: "loud:speak", with: {text: thread}, set: {sum: 1}}
  - {id: ask, approval: {title: More?}}
  - {id: two, python: "loud:speak_later", with: {text: loop}, set: {sum: 2}}
outputs: {said: "${{ steps.two.output }}"}
"""
WAYS = ("print", "write without an end", "original", "bytes", "descriptor", "child", "thread")


@pytest.mark.endurance
def test_what_functions_print_does_not_stand_among_results(flowengine: CommandLine) -> None:
    flowengine.write("loud.py", LOUD)
    flowengine.write("talk.yaml", TALK)

    def run(*words: str) -> tuple[str, str]:
        return flowengine.spawn(*words).communicate(timeout=60)

    out, heard = run("run", "talk.yaml", "--json")
    waiting = json.loads(out)
    assert all(f"thread {way}" in heard for way in WAYS)
    assert "imported" in heard
    out, heard = run("--json", "approve", waiting["waits"][0]["id"])
    assert json.loads(out)["executions"][0]["outputs"] == {"said": "loop"}
    assert all(f"loop {way}" in heard for way in WAYS)
    assert "reducer" in heard
    out, heard = run("run", "talk.yaml", "--events", "--id", "x")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [0, 1]
    flowengine("--json", "approve", "--all", "--execution", "x", "--no-resume")
    assert run("resume", "x", "-q")[0] == "said: loop\n"


def test_what_functions_print_is_apart_where_the_command_line_is_called_from_python(
    flowengine: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    flowengine.write("soft.py", "def speak():\n    print('soft')\n    return 1\n")
    flow = flowengine.write(
        "soft.yaml", "flowengine: 1\nid: soft\nsteps: [{id: a, python: soft:speak}]\n"
    )

    done = flowengine("--json", "run", flow)

    assert done.json()["status"] == "succeeded"
    assert "soft\n" in done.err
    sys.stdout.write("restored\n")
    assert capsys.readouterr().out == "restored\n"


def test_the_same_id_again_is_the_same_execution(flowengine: CommandLine, hello: Path) -> None:
    first = flowengine("--json", "run", hello, "--id", "greeting-1", "-i", "name=Ada").json()
    again = flowengine("--json", "run", hello, "--id", "greeting-1", "-i", "name=Ada").json()

    assert first == again
    assert first["execution"] == "greeting-1"
    assert len(flowengine("--json", "list").json()) == 1


def test_the_same_id_with_other_inputs_or_another_flow_is_a_conflict(
    flowengine: CommandLine, hello: Path
) -> None:
    other = flowengine.write("other.yaml", "flowengine: 1\nid: other\nsteps: [{id: a, set: {}}]\n")
    run = ("--json", "run", hello, "--id", "greeting-1")
    flowengine(*run, "-i", "name=Ada")

    [error] = flowengine(*run, "-i", "name=Ben", code=7).json()["errors"]
    assert '"Ada" there and "Ben" here' in error["message"]
    for option in ([], ["--detach"]):
        done = flowengine("run", other, "--id", "greeting-1", *option, code=7)
        assert "of the flow 'hello' and not 'other'" in done.err
        assert done.out == ""


def test_the_same_id_after_the_file_was_changed_continues_as_it_began_and_says_so(
    flowengine: CommandLine, hello: Path
) -> None:
    run = ("run", hello, "--id", "greeting-1", "-i", "name=Ada")
    first = flowengine(*run)
    assert "warning" not in first.err
    hello.write_text(hello.read_text().replace("Hello", "Goodbye"))

    again = flowengine(*run)

    assert again.out == first.out
    assert "warning: greeting-1 was started before this file changed" in again.err


def test_it_stays_for_a_wait_that_is_due_soon_and_else_says_when_to_go_on(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "flowengine: 1\nid: nap\nsteps: [{id: nap, wait: 50ms}]\noutputs: {done: true}\n"
    flow = flowengine.write("nap.yaml", text)
    long = flowengine.write("long.yaml", text.replace("50ms", "1h"))

    stayed = flowengine("run", flow)
    left = flowengine("run", long, "--linger", "0s", code=4)
    later = time.time() + 3_700
    monkeypatch.setattr(time, "time", lambda: later)
    monkeypatch.setattr(time, "time_ns", lambda: int(later * 1e9))

    assert stayed.out == "done: true\n"
    assert "  nap            waiting     until TIME\nwaiting for time\n" in steady(left.err)
    assert steady(left.err).endswith(
        "saved as EXECUTION; to resume after TIME: flowengine resume EXECUTION\n"
    )
    assert flowengine("resume", flowengine.newest()).out == "done: true\n"


@pytest.mark.endurance
def test_a_detached_run_goes_on_in_the_background(flowengine: CommandLine, hello: Path) -> None:
    process = flowengine.spawn("run", str(hello), "--detach", "-i", "name=Ada")
    out, err = process.communicate(timeout=60)

    events = flowengine("events", out.strip(), "--follow")

    assert process.returncode == 0
    assert "runs in the background" in err
    assert "started" in events.out
    assert flowengine("--json", "show", out.strip()).json()["outputs"] == {"message": "Hello, Ada!"}


def test_a_run_that_is_only_recorded_is_left_to_a_process_that_resumes_what_is_due(
    flowengine: CommandLine, hello: Path
) -> None:
    recorded = flowengine("run", hello, "--no-resume", "-i", "name=Ada")
    execution = recorded.out.strip()

    assert "not resumed, to resume it: flowengine resume" in recorded.err
    assert flowengine("--json", "show", execution).json()["outputs"] is None
    flowengine("resume", "--due", "--linger", "0s")
    assert flowengine("--json", "show", execution).json()["outputs"] == {"message": "Hello, Ada!"}


def test_a_store_that_is_named_is_named_in_the_hints_too(
    flowengine: CommandLine, refund: Path, tmp_path: Path
) -> None:
    store = tmp_path / "my store"
    done = flowengine("--store", store, "run", refund, "-i", "amount=80", code=4)

    assert f"flowengine --store '{store}' reject" in done.err
    assert not (tmp_path / ".flowengine").exists()


def test_warnings_of_the_check_are_said_before_it_runs(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "spare.yaml",
        "flowengine: 1\nid: spare\nsecrets: {KEY: {env: KEY}}\nsteps: [{id: a}]\n",
    )

    first, again = flowengine("run", flow.name), flowengine("run", flow.name)

    for done in (first, again):  # the second one comes from the store's cache
        assert done.err.startswith("spare.yaml:3:11: warning[W105]: ")


def test_a_bare_nothing_is_a_time_to_stay_and_another_bare_number_is_none(
    flowengine: CommandLine,
) -> None:
    flow = flowengine.write("wait.yaml", "flowengine: 1\nid: w\nsteps: [{id: a, wait: 1h}]\n")

    assert "saved as" in flowengine("run", flow, "--linger", "0", code=4).err
    refused = flowengine("run", flow, "--linger", "5", code=2).err
    assert "'5' is not a duration: give the unit, for example 5s" in refused


def test_who_waits_for_a_lock_of_another_execution_is_named_beside_what_else_waits(
    flowengine: CommandLine,
) -> None:
    flow = flowengine.write(
        "both.yaml",
        """
flowengine: 1
id: both
steps:
  - id: both
    parallel:
      - {id: sign, approval: "Sure?"}
      - {id: pay, lock: {key: desk, scope: global, hold: true}, approval: "Pay?"}
""",
    )
    flowengine("run", flow, "--id", "first", code=4)
    told = flowengine("run", flow, "--id", "second", "--linger", "0", code=4).err

    assert "waiting for 1 approval\n" in told
    assert "both/pay: waiting for the lock 'desk', which execution first holds\n" in told
    assert "look  flowengine why first\n" in told


HELD = """
flowengine: 1
id: held
concurrency: {max: 1, then: THEN}
steps: [{id: sure, approval: Sure?}]
"""


@pytest.mark.endurance
@pytest.mark.parametrize("then", ["queue", "cancel"])
def test_it_does_not_stay_for_ever_for_executions_that_nobody_drives(
    flowengine: CommandLine, then: str
) -> None:
    """After `--linger`, waits are left to others, but requested cancellations are carried out."""
    file = str(flowengine.write("held.yaml", HELD.replace("THEN", then)))
    flowengine("run", file, "--id", "e1", code=4)
    linger = {"queue": "100ms", "cancel": "1h"}[then]

    process = flowengine.spawn("run", file, "--id", "e2", "--linger", linger)
    try:
        process.communicate(timeout=60)
    finally:
        process.kill()

    assert process.returncode == 4
    found = {one["execution"]: one for one in flowengine("--json", "list").json()}
    assert found["e1"]["status"] == {"queue": "waiting", "cancel": "cancelled"}[then]
    [wait] = flowengine("--json", "approvals", "list").json()
    assert wait["execution"] == {"queue": "e1", "cancel": "e2"}[then]


@pytest.mark.parametrize(
    "rest", ["", "- {id: ask, approval: {title: More?}}", "- {id: pause, wait: 2h}"]
)
def test_a_store_that_is_deleted_meanwhile_is_said_and_nothing_else(
    flowengine: CommandLine, rest: str
) -> None:
    flow = flowengine.write(
        "gone.yaml",
        "flowengine: 1\nid: gone\nsteps:\n"
        f"  - {{id: a, run: {{argv: [rm, -r, '{flowengine.folder}/.flowengine']}}}}\n  {rest}\n",
    )

    done = flowengine("run", flow, code=10)

    assert "was deleted or moved while it was in use" in done.err
    assert "saved as" not in done.err
    assert "succeeded in" not in done.err


def test_what_a_run_leaves_is_private_whatever_the_umask(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "keep.yaml",
        "flowengine: 1\nid: keep\nsteps:\n"
        "  - {id: a, run: {script: 'echo hi > out.txt', files: {out: out.txt}}}\n",
    )
    before = os.umask(0)
    try:
        flowengine("run", flow)
    finally:
        os.umask(before)

    store = flowengine.folder / ".flowengine"
    kept = [store, *store.rglob("*")]
    assert len(kept) > 4
    assert [one for one in kept if one.stat().st_mode & 0o077] == []


def test_short_ids_tell_executions_of_one_moment_apart(
    flowengine: CommandLine, hello: Path
) -> None:
    shown = [flowengine("run", hello).err.split()[1] for _ in range(3)]

    assert all(len(short) >= 12 for short in shown)
    for short in shown:  # including those shown before the others existed
        assert flowengine("--json", "show", short).json()["execution"].startswith(short)


def test_columns_stand_still(flowengine: CommandLine) -> None:
    """From the first line on, they are as wide as the flow's longest address."""
    flowengine.write(
        "wide.yaml",
        "flowengine: 1\nid: wide\nsteps:\n"
        "  - {id: a, call: std.glob, with: {pattern: '*.txt'}}\n"
        "  - id: group_of_steps\n"
        "    group:\n"
        "      - {id: each, map: {over: '${{ [1, 2] }}'}, output: 1}\n"
        "      - {id: part, flow: other}\n"
        "  - id: undone\n"
        "    group:\n"
        "      - {id: booked, output: 1, compensate: {call: std.print, with: {text: off}}}\n"
        "      - {id: no, fail: {message: no}}\n"
        "    on_error: [{compensate: true, output: 1}]\n"
        "    finally: [{id: cleaned_up_afterwards, output: 1}]\n"
        "  - {id: z, output: 1}\n"
        "flows:\n"
        "  other:\n"
        "    steps:\n"
        "      - {id: first, output: 1}\n"
        "      - {id: again, flow: other, when: '${{ 1 > 2 }}'}\n",
    )

    done = flowengine("run", "wide.yaml", "-v")

    rows = [line for line in done.err.splitlines() if line.startswith("  ")]
    places = {len(line[: line.index(line.split()[1])]) for line in rows}
    assert any("booked/compensate" in row for row in rows)
    assert any("finally/cleaned_up_afterwards" in row for row in rows)
    assert len(places) == 1, done.err


def test_columns_stand_still_beside_long_keys_of_items(flowengine: CommandLine) -> None:
    flowengine.write(
        "keys.yaml",
        "flowengine: 1\nid: keys\nsteps:\n"
        "  - id: each\n"
        "    map: {over: '${{ [\"a\", \"a file with a long name\"] }}', as: f, key: '${{ f }}'}\n"
        "    group: [{id: read, output: 1}, {id: longer_than_that, output: 1}]\n",
    )

    done = flowengine("run", "keys.yaml")

    rows = [line for line in done.err.splitlines() if line.startswith("  ")]
    assert rows[0].startswith("  each[a]/read ")
    assert len({row.index(" succeeded") for row in rows}) == 1, done.err


def test_functions_and_modules_have_any_name_that_python_allows(flowengine: CommandLine) -> None:
    flowengine.write("öl.py", "def größe_2(n):\n    return n + 1\n")
    flow = "flowengine: 1\nid: names\nsteps: [{id: a, python: '%s', with: {n: 1}}]\n"
    flow += "outputs: {n: '${{ steps.a.output }}'}\n"
    flowengine.write("names.yaml", flow % "öl:größe_2")
    assert flowengine("--json", "run", "names.yaml").json()["outputs"] == {"n": 2}

    for wrong in ("öl:2größe", "öl:größe-2", "öl", "ö l:größe"):
        flowengine.write("names.yaml", flow % wrong)
        assert "E103" in flowengine("check", "names.yaml", code=3).err


def test_items_of_a_long_map_are_counted_unless_they_need_attention(
    flowengine: CommandLine,
) -> None:
    flowengine.write("odd.py", "def odd(n):\n    assert n != 7\n")
    flowengine.write(
        "long.yaml",
        "flowengine: 1\nid: long\nsteps:\n  - id: each\n"
        "    map: {over: 40, on_item_error: continue}\n"
        "    group: [{id: odd, python: 'odd:odd', with: {n: '${{ item }}'}}]\n",
    )

    lines = flowengine("run", "long.yaml").err.splitlines()

    counts = [line.split() for line in lines if " of 40 items" in line]
    assert (len(counts), counts[0]) == (10, ["each", "running", "4", "of", "40", "items"])
    failed = [line.split()[0] for line in lines if " failed " in line]
    assert failed == ["each[7]/odd", "each[7]"]
    assert len(lines) < 20
    assert len(flowengine("run", "long.yaml", "--verbose").err.splitlines()) > 80

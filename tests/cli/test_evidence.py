"""Causes of failures: `run`, `-v` and `show --step` show the location and the printed output."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import also_served, steady

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import CommandLine

PRICES = """\
def total(order):
    return sum(price(name) for name in order)

def price(name):
    return {"tea": 3}[name]
"""
BROKEN = """\
flowengine: 1
id: broken
steps:
  - {id: sum, python: "prices:total", with: {order: [tea, milk]}}
"""
COMMAND = """\
flowengine: 1
id: command
steps:
  - id: build
    run: |
      for n in $(seq 30); do echo compiling $n; done
      echo no space left >&2
      exit 3
"""


@also_served
def test_a_function_that_raises_shows_the_frames_of_its_author(flowengine: CommandLine) -> None:
    flowengine.write("prices.py", PRICES)
    flow = flowengine.write("broken.yaml", BROKEN)

    told = flowengine("run", flow, code=1).err

    line = "return sum(price(name) for name in order)"
    file = flowengine.folder / "prices.py"
    frames = (
        "  traceback\n"
        f"    {file}:2 in total: {line}\n"
        f"    {file}:2 in <genexpr>: {line}\n"
        f'    {file}:5 in price: return {{"tea": 3}}[name]\n'
    )
    assert f"error: KeyError at sum: 'milk'\n{frames}  look  " in told
    assert "--step sum\n" in told
    assert frames in flowengine("show", flowengine.newest(), "--step", "sum").out


@also_served
def test_a_command_that_fails_shows_the_end_of_what_it_printed(flowengine: CommandLine) -> None:
    flow = flowengine.write("command.yaml", COMMAND)

    told = flowengine("run", flow, code=1).err

    last = "".join(f"    compiling {n}\n" for n in range(21, 31))
    assert f"  stdout\n    …\n{last}  stderr\n    no space left\n" in told
    shown = flowengine("show", flowengine.newest(), "--step", "build").out
    assert "  stdout\n    compiling 1\n" in shown
    assert "    compiling 30\n  stderr\n    no space left\n" in shown


@also_served
def test_verbose_shows_why_each_attempt_failed(flowengine: CommandLine) -> None:
    flowengine.write("prices.py", PRICES)
    text = BROKEN.replace(
        "id: sum,", "id: sum, retry: {attempts: 2, delay: 1ms}, effect: idempotent,"
    )
    flow = flowengine.write("broken.yaml", text)

    told = flowengine("run", "-v", flow, code=1).err

    assert told.count("in price: return") == 3  # after each attempt, and at the end
    [step] = flowengine("--json", "show", flowengine.newest(), "--step", "sum").json()["steps"]
    assert [len(attempt["evidence"]["traceback"]) for attempt in step["tries"]] == [3, 3]


def test_a_map_that_fails_shows_why_its_first_item_did(flowengine: CommandLine) -> None:
    flowengine.write("prices.py", PRICES)
    flow = flowengine.write(
        "many.yaml",
        "flowengine: 1\nid: many\nsteps:\n"
        '  - {id: each, map: {over: [tea, milk], on_item_error: wait}, python: "prices:price", '
        'with: {name: "${{ item }}"}}\n',
    )

    told = flowengine("run", flow, code=1).err

    assert "prices.py:5 in price" in told
    assert steady(told).endswith(
        "show EXECUTION --step 'each[1]'\n  try again   flowengine retry EXECUTION\n"
    )


@also_served
def test_no_secret_is_in_what_is_kept_or_shown(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "correct horse battery staple " * 20
    monkeypatch.setenv("TOKEN", secret)
    flowengine.write(
        "leak.py",
        "import os\n\ndef leak():\n    raise ValueError('x' * 3900 + os.environ['TOKEN'])\n",
    )
    flow = flowengine.write(
        "leak.yaml",
        "flowengine: 1\nid: leak\nsecrets: {TOKEN: {env: TOKEN}}\nsteps:\n"
        "  - {id: say, run: {script: 'printf %04000d 0; echo \"$T\"; printf %03900d 0; exit 1', "
        "env: {T: '${{ secrets.TOKEN }}'}}, on_error: [{next: python}], next: python}\n"
        '  - {id: python, python: "leak:leak"}\n',
    )

    done = flowengine("run", "-v", flow, code=1)
    newest = flowengine.newest()
    shown = [flowengine("--json", "show", newest, "--step", step).out for step in ("say", "python")]
    shown.append(flowengine("events", newest).out)

    for text in (done.err, done.out, *shown):
        assert "battery" not in text
        assert "horse" not in text
    assert "***" in shown[0]


def streamed_after_the_first_line(flowengine: CommandLine, flow: Path) -> str:
    """Run a flow whose step prints `one`, then waits for the file `seen`.

    Returns:
        The output of `run -v` after that line, which appears while the step runs.
    """
    running = flowengine.spawn("run", "-v", str(flow))
    assert running.stderr is not None
    try:
        while "stdout" not in (line := running.stderr.readline()):
            assert line, "it ended before its first line was shown"
        assert line.split() == ["go", "stdout", "one"]
        flowengine.write("seen", "")
        return running.stderr.read()
    finally:
        running.kill()
        running.communicate()


@pytest.mark.endurance
def test_verbose_streams_what_programs_print(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "talk.yaml",
        "flowengine: 1\nid: talk\nsteps:\n"
        "  - {id: go, run: {script: 'echo one; while [ ! -e seen ]; do sleep 0.05; done; "
        "echo two >&2; printf end', cwd: .}, output: done}\n",
    )

    rest = streamed_after_the_first_line(flowengine, flow)

    assert "go             stderr      two\n" in rest
    assert "go             stdout      end\n" in rest


SHELL = """\
flowengine: 1
id: talk
secrets: {TOKEN: {env: TOKEN}}
environments:
  box: {kind: shell, provider: host, config: {env: {T: "secret:TOKEN"}}}
steps:
  - id: go
    in: box
    run:
      script: |
        cd $HERE
        printf '\\033[31mone\\033[0m\\n'
        while [ ! -e seen ]; do sleep 0.05; done
        printf "${T:0:9}"; sleep 0.3; echo "${T:9}"
        printf '1%%\\r100%%\\n'
        printf end
      env: {HERE: FOLDER}
    output: done
"""


@pytest.mark.endurance
def test_verbose_streams_what_a_shell_shows(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "correct-horse-battery")
    flow = flowengine.write("talk.yaml", SHELL.replace("FOLDER", str(flowengine.folder)))

    rest = streamed_after_the_first_line(flowengine, flow)

    for text in ("***", "100%", "end"):
        assert f"go             stdout      {text}\n" in rest
    assert "horse" not in rest


def test_a_step_that_timed_out_shows_what_it_had_printed(flowengine: CommandLine) -> None:
    for seconds in (1, 10, 50):  # on a busy machine, the line may come later
        flow = flowengine.write(
            "slow.yaml",
            "flowengine: 1\nid: slow\nsteps:\n"
            f"  - {{id: wait, timeout: {seconds}s, "
            "run: {script: 'echo asking the server; echo no answer >&2; touch printed; sleep 600', "
            "cwd: .}}\n",
        )
        told = flowengine("run", flow, code=1).err
        if (flowengine.folder / "printed").exists():
            break

    evidence = "  stdout\n    asking the server\n  stderr\n    no answer\n"
    assert f"did not end within its timeout\n{evidence}" in told
    assert evidence in flowengine("show", flowengine.newest(), "--step", "wait").out


def test_no_secret_is_in_what_is_streamed(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "correct-horse-battery")
    flow = flowengine.write(
        "leak.yaml",
        "flowengine: 1\nid: leak\nsecrets: {TOKEN: {env: TOKEN}}\nsteps:\n"
        '  - {id: say, run: {script: \'printf "${T:0:9}"; sleep 0.3; printf "${T:9}"\', '
        "env: {T: '${{ secrets.TOKEN }}'}}}\n",
    )

    told = flowengine("run", "-v", flow).err

    assert "stdout      ***\n" in told
    assert "horse" not in told


TALKING = """\
import sys, threading
from flowengine import quick

@quick
def hurry():
    print("quickly", "fine", sep="\\n")

@quick
def stumble():
    print("quick and", file=sys.stderr)
    print("gone")
    raise LookupError("lost")

def talk():
    print("looking up")
    print("careful", file=sys.stderr)
    print("no end", end="")
    raise LookupError("gone")

async def aside():
    print("async")
    print("loud", file=sys.stderr)
"""
TALK = """\
flowengine: 1
id: talk
steps:
  - {id: first, python: "talking:aside"}
  - {id: second, python: "talking:talk"}
"""


@also_served
def test_what_functions_print_is_part_of_the_evidence(flowengine: CommandLine) -> None:
    flowengine.write("talking.py", TALKING)
    flow = flowengine.write("talk.yaml", TALK)

    done = flowengine("run", flow, code=1)

    assert done.out == ""
    assert "async\nloud\n" in done.err  # unchanged without a follower
    assert "  stdout\n    looking up\n    no end\n  stderr\n    careful\n" in done.err
    shown = flowengine("show", flowengine.newest(), "--step", "second").out
    assert "  stdout\n    looking up\n    no end\n  stderr\n    careful\n" in shown


def test_verbose_streams_what_functions_print(flowengine: CommandLine) -> None:
    flowengine.write("talking.py", TALKING)
    flow = flowengine.write("talk.yaml", TALK)

    told = flowengine("-v", "run", flow, code=1).err.splitlines()

    lines = [line.split(maxsplit=2) for line in told]
    assert ["first", "stdout", "async"] in lines
    assert ["first", "stderr", "loud"] in lines
    assert ["second", "stdout", "no end"] in lines
    assert "async" not in told


QUICK = """\
flowengine: 1
id: quick
secrets: {TOKEN: {env: TOKEN}}
steps:
  - {id: first, python: "talking:hurry"}
  - {id: second, python: "talking:stumble"}
"""


@also_served
def test_what_quick_functions_print_is_streamed_and_evidence_as_well(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "quickly")
    flowengine.write("talking.py", TALKING)
    flow = flowengine.write("quick.yaml", QUICK)

    told = flowengine("-v", "run", flow, code=1)
    plain = flowengine("run", flow, code=1)

    lines = [line.split(maxsplit=2) for line in told.err.splitlines()]
    assert ["first", "stdout", "***"] in lines
    assert ["first", "stdout", "fine"] in lines
    assert ["second", "stderr", "quick and"] in lines
    evidence = "  stdout\n    gone\n  stderr\n    quick and\n"
    assert evidence in plain.err
    assert evidence in flowengine("show", flowengine.newest(), "--step", "second").out
    assert "quickly\nfine\n" in plain.err  # unchanged without a follower
    assert plain.out == told.out == ""


@also_served
def test_an_error_without_a_message_is_shown_by_its_type(flowengine: CommandLine) -> None:
    flowengine.write("sums.py", "def check() -> None:\n    assert 1 + 1 == 3\n")
    flow = "flowengine: 1\nid: sums\nsteps: [{id: a, python: 'sums:check'}]\n"
    ran = flowengine("run", flowengine.write("sums.yaml", flow), "--id", "silent", code=1)

    assert "  a              failed      AssertionError\n" in ran.err
    assert "error: AssertionError at a\n" in ran.err
    shown = flowengine("show", "silent").out + flowengine("show", "silent", "--step", "a").out
    assert "error       AssertionError at a\n" in shown
    assert "error       AssertionError\n" in shown
    assert "AssertionError:" not in shown + flowengine("events", "silent").out


@also_served
def test_what_was_cancelled_without_a_reason_has_none(flowengine: CommandLine) -> None:
    flow = "flowengine: 1\nid: long\nsteps: [{id: a, wait: 1d}]\n"
    flowengine("run", flowengine.write("long.yaml", flow), "--id", "stopped", code=4)
    flowengine("cancel", "stopped")

    assert "error       Cancelled\n" in flowengine("show", "stopped").out


@also_served
def test_the_log_of_each_attempt_is_shown(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "correct-horse-battery")
    flowengine.write(
        "telling.py",
        "import os\n"
        "from flowengine.sdk import StepContext\n"
        "def tell(context: StepContext):\n"
        "    for number in range(202):\n"
        "        context.log.info('line %d', number)\n"
        "    context.log.warning('\\x1b[31mkey %s\\nand more', os.environ['TOKEN'])\n",
    )
    flow = flowengine.write(
        "it.yaml",
        "flowengine: 1\nid: it\nsecrets: {TOKEN: {env: TOKEN}}\n"
        'steps: [{id: tell, python: "telling:tell"}]\n',
    )
    flowengine("run", flow)
    execution = flowengine.newest()
    lines = flowengine("show", execution, "--step", "tell").out.splitlines()
    at = lines.index("  log")
    assert lines[at + 1] == "    … (3 older lines are not kept)"
    assert re.fullmatch(r"    \S+ INFO    line 3", lines[at + 2])
    assert re.fullmatch(r"    \S+ WARNING \ufffd\[31mkey \*\*\*", lines[-2])
    assert lines[-1] == "  | and more"
    [step] = flowengine("--json", "show", execution, "--step", "tell").json()["steps"]
    assert step["tries"][0]["log"]["left_out"] == 3
    assert step["tries"][0]["log"]["lines"][-1]["text"] == "\x1b[31mkey ***\nand more"

"""What steps print is shown, without secrets. `evidence.md` shows the causes of failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import also_served

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import CommandLine


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

"""Steps shown as waiting do wait: those answered or restarted at the same moment do not appear."""

from __future__ import annotations

import re
import signal

import pytest

from tests.cli.conftest import CommandLine, also_served

OUTRUN = """\
flowengine: 1
id: outrun
signals: {go: {}, on: {}}
steps:
  - {id: a, wait: {signal: go}}
  - {id: b, wait: {signal: on}}
  - {id: ask, approval: {title: Sure?, choices: [{id: approve}, {id: reject}]}}
"""
KILLED = """\
flowengine: 1
id: killed
steps:
  - id: both
    parallel:
      - {id: paid, python: "dying:pay"}
      - {id: told, wait: {for: 1h}}
"""
DYING = """\
import os
from pathlib import Path


def pay() -> None:
    if not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), 9)
"""


def shown(text: str) -> list[tuple[str, str]]:
    """Return the steps shown as waiting, asking or succeeded."""
    return re.findall(r"^  (\S+) +(waiting|uncertain|succeeded)", text, re.MULTILINE)


@also_served
def test_resume_shows_what_still_waits_and_not_what_was_answered_before(
    flowengine: CommandLine,
) -> None:
    flowengine("run", flowengine.write("outrun.yaml", OUTRUN), "--id", "early", code=4)
    for name in ("go", "on"):
        flowengine("signal", "early", name, "--no-resume")

    done = flowengine("resume", "early", code=4)

    assert shown(done.err) == [("a", "succeeded"), ("b", "succeeded"), ("ask", "waiting")]


@pytest.mark.endurance
def test_a_fork_asks_nothing_about_what_it_begins_anew(flowengine: CommandLine) -> None:
    flowengine.write("dying.py", DYING)
    flowengine.write("killed.yaml", KILLED)
    died = flowengine.spawn("run", "killed.yaml", "--id", "dead")
    died.communicate(timeout=60)
    assert died.returncode == -signal.SIGKILL

    done = flowengine("fork", "dead", "--from-step", "both", "--id", "anew", code=4)

    assert "question" not in done.err
    assert shown(done.err)[-1] == ("both/paid", "succeeded")
    assert [w["title"] for w in flowengine("--json", "approvals", "list").json()] == []
    flowengine("resume", "dead", code=4)
    assert "question" in flowengine("fork", "dead", "--from-step", "both/told", code=4).err


def test_a_map_and_a_loop_of_waits_take_as_long_as_their_waits(flowengine: CommandLine) -> None:
    flowengine.write(
        "flow.yaml",
        "flowengine: 1\nid: waits\nsteps:\n  - {id: m, map: 2, wait: 200ms}\n"
        "  - {id: l, loop: {until: '${{ round.number == 2 }}', max: 3}, wait: 200ms}\n",
    )

    told = flowengine("run", "flow.yaml").err

    assert re.search(r"^  m +succeeded +[0-9.]+s$", told, re.MULTILINE)
    assert re.search(r"^  l +succeeded +[0-9.]+s$", told, re.MULTILINE)

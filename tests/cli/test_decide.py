"""Approvals on the command line at other times. `decide.md` shows the rest."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.cli.conftest import CommandLine

TIMED = """\
flowengine: 1
id: timed
steps:
  - {id: ask, approval: {title: Pay?, expires: {after: 7d, then: reject}}}
"""


def test_a_dry_run_promises_only_what_the_user_may_decide(
    flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {
        "a": "{title: Mine?}",
        "b": "{title: Of another?, assignees: ['user:ben']}",
        "c": "{title: Excluded?, exclude: ['user:ana']}",
        "d": "{title: To be claimed?, claim: true}",
        "e": "{title: Late?, expires: 1h}",
    }
    steps = "".join(f"      - {{id: {id}, approval: {text}}}\n" for id, text in asked.items())
    flowengine.write(
        "five.yaml", f"flowengine: 1\nid: five\nsteps:\n  - id: all\n    parallel:\n{steps}"
    )
    flowengine("run", "five.yaml", code=4)
    monkeypatch.setattr("flowengine.cli.deciding.is_overdue", lambda due: True)

    dry = flowengine("approve", "--all", "--dry-run")
    listed = flowengine("--json", "approve", "--all", "--dry-run").json()

    assert [line.split("  ")[-1] for line in dry.out.splitlines()[1:]] == ["Mine?"]
    assert [wait["title"] for wait in listed] == ["Mine?"]
    assert dry.err.startswith("1 would be decided, nothing was\n")
    told = [line.partition(" would be refused: ")[2] for line in dry.err.splitlines()[1:]]
    assert told[:3] == [
        "user:ana is not allowed to decide it, but user:ben",
        "user:ana is not allowed to decide it, it is excluded",
        "it must be claimed first",
    ]
    assert told[3].startswith("it expired at 20")


def test_an_overdue_approval_is_shown_as_overdue(
    flowengine: CommandLine, time_is: Callable[[float], None]
) -> None:
    flowengine("run", flowengine.write("timed.yaml", TIMED), code=4)
    newest = flowengine.newest()
    [wait] = flowengine("--json", "approvals", "list").json()
    assert "overdue" not in flowengine("approvals", "list").out

    time_is(time.time() + 8 * 86_400)

    assert " overdue" in flowengine("approvals", "list").out
    assert re.search(r"overdue +since ", flowengine("show", newest).out)
    shown = flowengine("show", wait["id"]).out
    assert re.search(r"overdue +since .*, then it is rejected", shown)
    why = flowengine("why", newest).out
    assert "(overdue)" in why
    for told in (shown, why, flowengine("show", newest).out):
        assert f"flowengine resume {newest[:12]}\n" in told
        assert "flowengine approve" not in told

"""Approval of environments on the command line: hints, terminals, hostile text."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.test_terminal import Terminal
from tests.engines.world import until

FLOW = """\
flowengine: 1
id: words
environments:
  db: {kind: sqlite, config: {path: words.db, mode: rwc}, approval: required}
steps:
  - id: it
    run: create table words (word text)
    in: db
  - {id: told, output: done}
outputs: {told: "${{ steps.told.output }}"}
"""


@pytest.fixture
def words(flowengine: CommandLine) -> CommandLine:
    flowengine.write("words.yaml", FLOW)
    return flowengine


@pytest.mark.endurance
# Shows E70
def test_without_a_terminal_nothing_is_read_and_the_execution_waits(words: CommandLine) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"y\n" * 1000)
    process = words.spawn("run", "words.yaml", stdin=reading)
    _, err = process.communicate(timeout=60)
    os.close(writing)
    left = b"".join(iter(lambda: os.read(reading, 65536), b""))
    os.close(reading)

    assert process.returncode == 4
    assert "flowengine approve " in err
    assert left == b"y\n" * 1000
    assert not (words.folder / "words.db").exists()


# Shows E82
def test_a_worker_on_a_terminal_asks_nobody(words: CommandLine) -> None:
    words.write(
        "words.yaml", FLOW.replace("steps:", "steps:\n  - {id: go, approval: {title: Go?}}")
    )
    words("run", "words.yaml", code=4)
    words("approve", "--all", "--no-resume")

    with closing(Terminal(words.folder, "worker")) as worker:
        worker.expect("started")
        worker.type("approve\nyes\n")
        until(lambda: "Open the environment 'db'?" in words("approvals", "list").out)
        worker.type("\x03")
        seen = worker.end(0)

    assert "Open" not in seen
    assert "Open the environment 'db'?" in words("approvals", "list").out
    assert not (words.folder / "words.db").exists()

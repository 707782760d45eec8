"""The tutorial, page by page in one directory: each command prints the output on its page."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.command_line import PROGRAM, flowengine
from tests.transcripts import both_streams, play

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial"
PAGES = ["first-flow", "tools", "approvals", "crashes", "agent", "deployment"]
KILLED = re.compile(r"flowengine run .* --id (monday|tuesday)")
"""Commands that the reader kills while they wait for the file with rates."""


def test_each_command_prints_what_its_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    waits: dict[str, str] = {}
    for page in PAGES:
        play(TUTORIAL / f"{page}.md", waits, printed)

    pictures = sorted(TUTORIAL.glob("*.svg"))
    assert pictures
    assert [one.read_text() for one in pictures] == [Path(one.name).read_text() for one in pictures]


def printed(command: str) -> str:
    """Run a command, and return its output on both streams."""
    if killed := KILLED.fullmatch(command):
        return killed_while_it_converts(shlex.split(command)[1:], killed[1])
    return both_streams(command)


def killed_while_it_converts(words: list[str], execution: str) -> str:
    with subprocess.Popen(
        [PROGRAM, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        while "convert        running" not in flowengine("show", execution).out:
            assert process.poll() is None
            time.sleep(0.3)
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def test_the_pages_lead_from_each_to_the_next() -> None:
    assert sorted(PAGES) == sorted(page.stem for page in TUTORIAL.glob("*.md"))
    for page, following in pairwise(PAGES):
        text = (TUTORIAL / f"{page}.md").read_text(encoding="utf-8")
        assert f"({following}.md)" in text.splitlines()[-1]

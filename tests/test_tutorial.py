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
from tests.transcripts import WAIT, exchanges, plain

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial"
PAGES = ["first-flow", "tools", "approvals", "crashes", "agent", "deployment"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KILLED = re.compile(r"flowengine run .* --id (monday|tuesday)")
"""Commands that the reader kills while they wait for the file with rates."""


def test_each_command_prints_what_its_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    waits: dict[str, str] = {}
    for page in PAGES:
        for language, text in BLOCK.findall((TUTORIAL / f"{page}.md").read_text(encoding="utf-8")):
            if named := re.match(r"# ([\w.]+)\n", text):
                Path(named[1]).write_text(text)
            for command, expected in exchanges(text) if language == "console" else []:
                shown = printed(command, waits)
                waits |= zip(WAIT.findall(expected), WAIT.findall(shown), strict=True)
                assert plain(shown, waits) == plain(expected, waits), f"{page}: {command}"


def printed(command: str, waits: dict[str, str]) -> str:
    """Run a command, and return its output on both streams."""
    for shown, real in waits.items():
        command = command.replace(shown, real)
    if command in {"rm rates.csv", 'echo "USD 1.08" > rates.csv'}:
        return subprocess.check_output(["sh", "-c", command], text=True)
    words = shlex.split(command)[1:]
    if killed := KILLED.fullmatch(command):
        return killed_while_it_converts(words, killed[1])
    done = flowengine(*words)
    return done.err + done.out


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
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def test_the_pages_lead_from_each_to_the_next() -> None:
    assert sorted(PAGES) == sorted(page.stem for page in TUTORIAL.glob("*.md"))
    for page, following in pairwise(PAGES):
        text = (TUTORIAL / f"{page}.md").read_text(encoding="utf-8")
        assert f"({following}.md)" in text.splitlines()[-1]

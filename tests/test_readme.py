"""What the README shows is what the program prints, ids, times and durations aside."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from flowengine.settings import current_user

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PLAYED = [block for block in BLOCKS if "kill -9" not in block]
"""All but the kill, whose moment is left to chance; `tests/examples/test_slow.py` plays that."""
WAIT = re.compile(r"approval ([0-9a-f]{4,})\b")


class Exchange(NamedTuple):
    """A command of a transcript, and what it prints."""

    command: str
    output: str


def exchanges(block: str) -> list[Exchange]:
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return [Exchange(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]


def plain(text: str, waits: dict[str, str]) -> list[str]:
    """Lines without what differs from run to run.

    Items of a map end in any order, and the widest so far sets the width of a column.
    """
    for shown, real in waits.items():
        text = re.sub(rf"\b({shown}|{real})\b", "WAIT", text)
    text = text.replace(current_user(), "user:ana")  # whoever runs the tests
    text = re.sub(r"\b01[0-9a-z]{6,24}\b", "EXECUTION", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"(\d+[dhm] )*\b[\d.]+[ms]?s\b|(\d+m \d+s)", "DURATION", text)
    return sorted(" ".join(line.split()) for line in text.splitlines())


def test_the_flows_are_the_examples() -> None:
    agents, flow = re.findall(r"^```yaml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)

    example = (ROOT / "examples" / "welcome.yaml").read_text(encoding="utf-8")
    assert example.split("\n", 1)[1] == flow
    assert agents in (ROOT / "examples" / "triage" / "triage.yaml").read_text(encoding="utf-8")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a checkout and a folder of invoices; commands begin in the checkout."""
    shutil.copytree(ROOT / "examples", tmp_path / "flowengine" / "examples")
    (tmp_path / "invoices").mkdir()
    for name in ("travel_quote.html", "order_confirmation.html"):
        sample = ROOT / "examples" / "document_review" / "samples" / name
        shutil.copy(sample, tmp_path / "invoices")
    return tmp_path


def test_its_transcripts_come_out_as_printed(home: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8"}
    folder = home / "flowengine"
    waits: dict[str, str] = {}
    for command, expected in (step for block in PLAYED for step in exchanges(block)):
        if command.startswith("cd ~/"):
            folder = home / command.removeprefix("cd ~/")
            continue
        line = command
        for shown, real in waits.items():
            line = line.replace(shown, real)
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        waits |= zip(WAIT.findall(expected), WAIT.findall(done.stdout), strict=False)

        assert plain(done.stdout, waits) == plain(expected, waits), line

"""The README's transcripts match the program's output, except for IDs, times and durations."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.transcripts import WAIT, both_streams, exchanges, plain

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PLAYED = [block for block in BLOCKS if "kill -9" not in block]
"""Without the kill, whose moment is random. `tests/examples/test_slow.py` covers it."""


def test_the_flows_are_the_examples() -> None:
    agents, flow = re.findall(r"^```yaml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)

    example = (ROOT / "examples" / "welcome.yaml").read_text(encoding="utf-8")
    assert example.split("\n", 1)[1] == flow
    assert agents in (ROOT / "examples" / "triage" / "triage.yaml").read_text(encoding="utf-8")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a checkout and a folder of invoices. Commands start in the checkout."""
    shutil.copytree(ROOT / "examples", tmp_path / "flowengine" / "examples")
    (tmp_path / "invoices").mkdir()
    for name in ("travel_quote.html", "order_confirmation.html"):
        sample = ROOT / "examples" / "document_review" / "samples" / name
        shutil.copy(sample, tmp_path / "invoices")
    return tmp_path


def test_its_transcripts_come_out_as_printed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "flowengine")
    waits: dict[str, str] = {}
    for command, expected in (step for block in PLAYED for step in exchanges(block)):
        line = command.replace("~", str(home))
        if line.startswith("cd "):
            monkeypatch.chdir(line.removeprefix("cd "))
            continue
        for shown, real in waits.items():
            line = line.replace(shown, real)
        printed = both_streams(line)
        waits |= zip(WAIT.findall(expected), WAIT.findall(printed), strict=False)

        assert plain(printed, waits) == plain(expected, waits), line

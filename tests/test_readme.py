"""The programs and transcripts of the README and the larger examples come out as printed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.transcripts import BLOCK, WAIT, both_streams, exchanges, plain, write_files

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "examples.md"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a checkout and a folder of invoices. Commands start in the checkout."""
    shutil.copytree(ROOT / "examples", tmp_path / "flowengine" / "examples")
    (tmp_path / "invoices").mkdir()
    for name in ("travel_quote.html", "order_confirmation.html"):
        sample = ROOT / "examples" / "document_review" / "samples" / name
        shutil.copy(sample, tmp_path / "invoices")
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_its_transcripts_come_out_as_printed(
    page: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "flowengine")
    monkeypatch.setenv("FLOWENGINE_MODEL", "scripted/replies.yaml")
    text = page.read_text(encoding="utf-8")
    write_files(text)
    waits: dict[str, str] = {}
    blocks = [block for language, block in BLOCK.findall(text) if language == "console"]
    # The moment of a kill is random. `tests/examples/test_slow.py` covers it.
    played = [step for block in blocks if "kill -9" not in block for step in exchanges(block)]
    assert played
    for command, expected in played:
        line = command.replace("~", str(home))
        if line.startswith("cd "):
            monkeypatch.chdir(line.removeprefix("cd "))
            continue
        for shown, real in waits.items():
            line = line.replace(shown, real)
        printed = both_streams(line)
        waits |= zip(WAIT.findall(expected), WAIT.findall(printed), strict=False)

        assert plain(printed, waits) == plain(expected, waits), line


def test_the_first_commands_of_the_readme_work(folder: Path) -> None:
    [line] = re.findall(r"^(flowengine init .*?) +#", PAGES[0].read_text(), re.MULTILINE)
    for command in line.split(" && "):
        printed = both_streams(command)
    assert "flowengine approve" in printed


def test_the_agent_of_the_readme_runs_in_python(folder: Path) -> None:
    write_files(PAGES[0].read_text())
    [call] = re.findall(r"`(Runner\(engine.*?)` runs it", PAGES[0].read_text())
    head = (
        "from desk import desk\nfrom flowengine import Engine, Runner\nwith Engine() as engine:\n"
    )
    Path("main.py").write_text(f"{head}    print({call}.waits[0]['title'])")
    told = both_streams("FLOWENGINE_MODEL=scripted/replies.yaml python main.py")
    assert told == "Call refund: order 7, amount 240?\n"

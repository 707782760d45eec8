# Shows F7
"""Programs and commands in the docs are run, and produce the output shown."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from flowengine import check
from tests.transcripts import BLOCK, CODES, Section, exchanges, run, sections, write_file

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "from").glob("*.md"))
PROGRAMS = [DOCS / "building.md", DOCS / "agents-in-python.md"]
"""Pages with programs and their output."""
SECTIONS = [
    *(one for page in PAGES for one in sections(page, "###")),
    *(one for page in PROGRAMS for one in sections(page) if "```console" in one.text),
]


@pytest.mark.endurance
@pytest.mark.parametrize("section", SECTIONS, ids=[f"{s.page.stem}: {s.title}" for s in SECTIONS])
def test_what_a_row_shows_happens(
    section: Section, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWENGINE_USER", "user:ana")
    programs = Path(sys.executable).parent  # contains the `python` that has flowengine
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    transcripts = []
    for language, text in BLOCK.findall(section.text):
        if language == "console":
            transcripts.append(text)
        elif language != "text":
            assert write_file(text), f"the first line of a block names its file: {text[:40]}"
    flows = set(folder.glob("*.yaml")) - set(folder.glob("*.test.yaml"))
    for file in flows:
        assert [str(one) for one in check(file)] == []
    assert transcripts
    for text in transcripts:
        assert play(text) == text


def play(transcript: str) -> str:
    """Run the commands of a transcript, and return it with their actual output."""
    told = []
    for command, _ in exchanges(transcript):
        done = run(command)
        assert done.code in CODES, done.err
        assert not command.startswith("python ") or done.code == 0, done.err
        ended = CODES[done.code]
        told.append(f"$ {command}\n{done.out}" + (f"{ended}\n" if ended else ""))
    return "\n".join(told)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_row_of_a_table_leads_to_its_section_or_says_that_it_is_not_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    anchors = {anchor(s.title) for s in SECTIONS if s.page == page}
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    named = set()
    for theirs, ours in rows:
        links = re.findall(r"\]\(#([\w-]+)\)", theirs)
        elsewhere = "not yet" in ours or re.search(r"\]\((?!#)", ours)
        assert links or elsewhere or theirs in {"there", "---"}, theirs
        named |= set(links)

    assert named == anchors


def anchor(title: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")

"""Programs and commands in the docs are run, and produce the output shown."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from flowengine import check
from tests.command_line import Done, flowengine, python

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "from").glob("*.md"))
PROGRAMS = [DOCS / "building.md", DOCS / "agents-in-python.md"]
"""Pages with programs and their output."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODES = {"(failed)": 1, "(waiting)": 4, "(cancelled)": 6, "(refused)": 7, "": 0}
"""Words in a transcript for the exit code of a command."""

NEEDS_PROCESS = re.compile(r"os\._exit\(|\bopen\(")
"""Marks programs that rely on the end of their process for cleanup."""


class Section(NamedTuple):
    """A section of a page, with its transcripts."""

    page: str
    title: str
    text: str


def sections() -> Iterator[Section]:
    for page in PAGES:
        for part in page.read_text(encoding="utf-8").split("\n### ")[1:]:
            title, _, text = part.partition("\n")
            yield Section(page.stem, title, text.partition("\n## ")[0])
    for page in PROGRAMS:
        for part in page.read_text(encoding="utf-8").split("\n## ")[1:]:
            title, _, text = part.partition("\n")
            if "```console" in text:
                yield Section(page.stem, title, text)


SECTIONS = list(sections())


@pytest.mark.endurance
@pytest.mark.parametrize("section", SECTIONS, ids=[f"{s.page}: {s.title}" for s in SECTIONS])
def test_what_a_row_shows_happens(
    section: Section, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWENGINE_USER", "user:ana")
    programs = Path(sys.executable).parent  # contains the `python` that has flowengine
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    transcripts = []
    for language, text in BLOCK.findall(section.text):
        if language == "console":
            transcripts.append(text)
        elif language != "text":
            name = re.match(r"# ([\w.]+)\n", text)
            assert name, f"the first line of a block names its file: {text[:40]}"
            (tmp_path / name[1]).write_text(text)
    flows = set(tmp_path.glob("*.yaml")) - set(tmp_path.glob("*.test.yaml"))
    for file in flows:
        assert [str(one) for one in check(file)] == []
    assert transcripts
    for text in transcripts:
        assert play(text) == text


def play(transcript: str) -> str:
    """Run the commands of a transcript, and return it with their actual output."""
    told = []
    for command in re.findall(r"^\$ (.*)$", transcript, re.MULTILINE):
        done = run(shlex.split(command))
        ended = next(word for word, number in CODES.items() if number == done.code)
        told.append(f"$ {command}\n{done.out}" + (f"{ended}\n" if ended else ""))
    return "\n".join(told)


def run(words: list[str]) -> Done:
    """Run a command like a shell."""
    env = {}
    while "=" in words[0]:
        name, _, env[name] = words.pop(0).partition("=")
    program = words.pop(0)
    if program == "python" and NEEDS_PROCESS.search(text_of(words)):
        done = Done(*in_process(words))
    else:
        done = {"flowengine": flowengine, "python": python}[program](*words, env=env)
    assert done.code in CODES.values(), done.err
    assert program != "python" or done.code == 0, done.err
    return done


def text_of(words: list[str]) -> str:
    """Return the text of a program."""
    return words[1] if words[0] == "-c" else Path(words[0]).read_text(encoding="utf-8")


def in_process(words: list[str]) -> tuple[int, str, str]:
    """Run a program in a separate process."""
    command = [sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_row_of_a_table_leads_to_its_section_or_says_that_it_is_not_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    anchors = {anchor(s.title) for s in SECTIONS if s.page == page.stem}
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

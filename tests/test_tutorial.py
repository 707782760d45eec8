"""The tutorial, page by page in one directory: each command prints the output on its page."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.command_line import PROGRAM, flowengine
from tests.transcripts import Terminal, play

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial"
PAGES = ["first-flow", "tools", "approvals", "crashes", "agent", "deployment", "python"]
BEGUN = re.compile(r"flowengine (run .* --id (monday|tuesday)) &")
"""Commands that the reader kills while they wait for the file with rates."""


@pytest.fixture
def reader(folder: Path) -> Iterator[Reader]:
    with patch.dict(os.environ), closing(Reader()) as reader:
        yield reader


class Reader(Terminal):
    """The terminal of a reader, who kills a process once it waits for the file with rates."""

    def __call__(self, command: str) -> str:
        """Run a command line, and return its output on both streams."""
        if not (begun := BEGUN.fullmatch(command)):
            return super().__call__(command)
        self._begin(f"{PROGRAM} {begun[1]} > out 2>&1")
        while "convert        running" not in flowengine("show", begun[2]).out:
            time.sleep(0.3)
        return Path("out").read_text()


def test_each_command_prints_what_its_page_shows(reader: Reader) -> None:
    waits: dict[str, str] = {}
    for page in PAGES:
        play(TUTORIAL / f"{page}.md", waits, reader)

    pictures = sorted(TUTORIAL.glob("*.svg"))
    assert pictures
    assert [one.read_text() for one in pictures] == [Path(one.name).read_text() for one in pictures]


def test_the_pages_lead_from_each_to_the_next() -> None:
    assert sorted(PAGES) == sorted(page.stem for page in TUTORIAL.glob("*.md"))
    for page, following in pairwise(PAGES):
        text = (TUTORIAL / f"{page}.md").read_text(encoding="utf-8")
        assert f"({following}.md)" in text.splitlines()[-1]

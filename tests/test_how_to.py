"""The pages by task, each in its own directory: each command prints what its page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine import check
from tests.transcripts import play

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "how-to").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_each_command_prints_what_its_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    play(page, {})
    flows = [file for file in tmp_path.glob("*.yaml") if "flowengine: 1\n" in file.read_text()]

    assert flows
    assert [str(one) for file in flows for one in check(file)] == []


def test_the_index_by_task_leads_to_each_page() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")

    assert [page.name for page in PAGES if f"(how-to/{page.name})" not in index] == []

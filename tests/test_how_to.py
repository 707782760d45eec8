# Shows G4
"""The pages by task, and guides with commands: each command prints what its page shows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.transcripts import Terminal, play

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "how-to").glob("*.md"))
GUIDES = [
    "agents", "browser", "documents", "durability", "environments", "evals", "extending",
    "models", "operating", "sandboxes", "server", "sizing", "telemetry", "temporal", "testing",
    "tool-environment",
    "language", "language/approvals", "language/budgets", "language/control-flow",
    "language/environments", "language/errors", "language/expressions", "language/locks",
    "language/signals", "language/subflows", "language/tools", "server/api", "server/operation",
    "server/protocols", "server/users",
]  # fmt: skip
SELDOM = {
    "agents", "browser", "documents", "durability", "environments", "extending", "how-to/batch",
    "how-to/code-mode", "how-to/completion-webhook", "how-to/custom-page", "how-to/mcp",
    "how-to/web-app", "language/environments", "language/errors", "language/tools", "models",
    "operating", "sandboxes", "server", "server/api", "server/operation", "server/protocols",
    "server/users", "temporal", "testing", "tool-environment",
}  # fmt: skip
"""Those that cost more than two CPU seconds: most start servers. A run plays an eighth of them."""
PLAYED = [*PAGES, *(DOCS / f"{name}.md" for name in GUIDES)]
"""Pages that are played, each in its own directory."""


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    """A terminal in its own directory."""
    with patch.dict(os.environ), closing(Terminal()) as terminal:
        yield terminal


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=name, marks=[pytest.mark.endurance(sample=8)] if name in SELDOM else []
        )
        for page in PLAYED
        for name in [page.relative_to(DOCS).with_suffix("").as_posix()]
    ],
)
def test_each_command_prints_what_its_page_shows(
    page: Path, tmp_path: Path, terminal: Terminal
) -> None:
    play(page, {}, terminal)
    flows = [file.name for file in tmp_path.glob("*.yaml") if "flowengine: 1\n" in file.read_text()]
    checked = terminal(f"flowengine check {' '.join(flows)}") if flows else ""

    assert (
        re.sub(r"^\w+\.yaml: ok(, unsandboxed on this host: .*)?\n", "", checked, flags=re.M) == ""
    )


def test_the_index_by_task_leads_to_each_page() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")

    assert [page.name for page in PAGES if f"(how-to/{page.name})" not in index] == []

"""`docs/acceptance.md` names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLE = (ROOT / "docs" / "acceptance.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+(?:::\w+)?)`", TABLE)))


@pytest.mark.parametrize("named", NAMED)
def test_a_named_test_exists(named: str) -> None:
    path, _, name = named.partition("::")

    assert (ROOT / path).exists(), f"{path} does not exist"
    if name:
        text = (ROOT / path).read_text()
        assert re.search(rf"(def|class) {name}\b", text), f"{path} has no {name}"


def test_every_row_has_a_test_and_a_state() -> None:
    rows = [line for line in TABLE.splitlines() if re.match(r"\| [A-Z]\d", line)]

    assert rows
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4, row
        assert "`" in cells[2], f"{cells[0]} names no test"
        assert cells[3].startswith(("done", "part")), row

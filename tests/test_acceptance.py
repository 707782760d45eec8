"""`docs/acceptance.md` names tests that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TABLE = (ROOT / "docs" / "acceptance.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+(?:::[^`]+)?)`", TABLE)))


def test_the_named_tests_exist() -> None:
    assert NAMED
    assert [fault for fault in map(fault_of, NAMED) if fault] == []


def fault_of(named: str) -> str:
    """Return the error in the name of a test, file or folder, or an empty string."""
    path, _, name = named.partition("::")
    if not (ROOT / path).exists():
        return f"{path} does not exist"
    text = text_of(path) if name else ""
    if path.endswith(".cases.yaml"):
        defined = re.search(rf"(?m)^  - name: {re.escape(name.partition(' [')[0])}$", text)
    elif path.endswith(".md"):
        defined = re.search(rf"(?m)^## {re.escape(name)}$", text)
    else:
        case = name.replace("_", " ")  # a file of documents has names with spaces
        defined = re.search(rf"(?m)(def|class) {name}\b|^{case}:", text)
    return "" if defined or not name else f"{path} has no {name}"


@cache
def text_of(path: str) -> str:
    """Return the text of a test file."""
    return (ROOT / path).read_text()


ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if re.match(r"\| [A-Z]\d", line)
]
LAST = {"D": 14, "E": 115, "F": 101, "G": 15, "M": 90, "P": 19, "S": 92, "T": 102, "V": 62, "W": 85}
"""Number of the last row per letter."""
UNUSED = {
    "F": [9, 18, 19, *range(26, 30), 39, *range(46, 50), *range(55, 60), *range(63, 70)],
    "T": [12, 18, 20, 24, 26, 59, 65, *range(80, 83), 86, 87, 97],
    "V": [8, 9, *range(15, 20), *range(25, 30), *range(41, 50), 59],
}


def test_no_row_is_missing() -> None:
    named: dict[str, set[int]] = {letter: set() for letter in LAST}
    for row in ROWS:
        for part in row[0].split(", "):
            found = re.fullmatch(r"([A-Z])(\d+)(?:\W\1(\d+))?", part)
            assert found, f"{part}: write one row, or the first and the last"
            first, last = int(found[2]), int(found[3] or found[2])
            named[found[1]] |= set(range(first, last + 1))

    for letter, last in LAST.items():
        assert named[letter] == set(range(1, last + 1)) - set(UNUSED.get(letter, ())), letter


def test_every_row_has_a_test_and_a_state() -> None:
    assert ROWS
    for row in ROWS:
        assert len(row) == 4, row
        if row[3].startswith("not yet"):
            assert row[2] == "none", f"{row[0]} is not built, and names tests"
            continue
        assert "`" in row[2], f"{row[0]} names no test"
        assert row[3].startswith(("done", "part")), row

"""Rules that linters cannot check. Each finding is `path:line: what: use this`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.in_temporal import LEFT_OUT, OF_KINDS, REASONS

TESTS = Path(__file__).parent
ROOT = TESTS.parent
BINARY = {
    ".pdf",
    ".docx",
    ".pptx",
    ".xlsx",
    ".xls",
    ".ods",
    ".epub",
    ".png",
    ".db",
    ".xz",
    ".webp",
    ".woff2",
}
LARGEST_FILE = 300_000

# Written in pieces, so that this file does not match itself.
MACHINE = re.compile(r"(?<![\w.])/(" + "work|root|home/[a-z]+|Users/[a-z]+" + r")/(?=\w)")
HOSTS = re.compile(
    "py" + r"pi\.org|python" + r"hosted\.org|npm" + r"js\.(com|org)|deb\." + r"debian"
)
MARKERS = re.compile(
    r"\b(TO" + "DO|FIX" + "ME|XX" + "X|HA" + r"CK)\b|break" + r"point\(\)|pdb\.set" + "_trace"
)
BLANKS = re.compile(r"[^\S\n](?=\n|\Z)")
MARKDOWN = "tests/envs/documents/cases"  # where two blanks at the end of a line are a line break


def files() -> list[Path]:
    """Return the project's files: tracked ones, and new ones that are not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # an unpacked source archive
        hidden = re.compile(r"(^|/)(\.(?!ci|gitignore)|__pycache__|build/|dist/)")
        paths = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        return sorted(ROOT / path for path in paths if not hidden.search(path.as_posix()))
    return sorted(ROOT / name for name in listed.stdout.split("\0") if name)


FILES = [path for path in files() if path.is_file() or path.is_symlink()]
TEXTS = [path for path in FILES if path.suffix not in BINARY and not path.is_symlink()]


def found(pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield the position of every line of a text file that matches a pattern."""
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        for number in sorted({text.count("\n", 0, m.start()) + 1 for m in pattern.finditer(text)}):
            yield place(path, number)


def place(path: Path, number: int) -> str:
    return f"{path.relative_to(ROOT)}:{number}"


@pytest.mark.parametrize(
    ("what", "pattern", "instead"),
    [
        ("path of one machine", MACHINE, "a path relative to the project, or tmp_path"),
        ("host of a package registry", HOSTS, "no host: each user's own settings say where from"),
        ("leftover marker", MARKERS, "do it now, or write it into docs/acceptance.md"),
    ],
)
def test_no_line_says_what_belongs_elsewhere(
    what: str, pattern: re.Pattern[str], instead: str
) -> None:
    assert [f"{one}: {what}: {instead}" for one in found(pattern)] == []


def test_text_files_end_with_one_newline_and_no_line_ends_with_blanks() -> None:
    wrong = [
        f"{one}: blanks at the end: remove them" for one in found(BLANKS) if MARKDOWN not in one
    ]
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            wrong.append(f"{path.relative_to(ROOT)}: end it with one newline")

    assert wrong == []


def test_no_file_is_empty_large_or_a_link() -> None:
    wrong = []
    for path in FILES:
        name = path.relative_to(ROOT)
        if path.is_symlink():
            wrong.append(f"{name}: a link: not every system unpacks it")
        elif path.stat().st_size == 0 and path.name != "py.typed":
            wrong.append(f"{name}: empty: remove it, or say in a docstring what it is for")
        elif path.stat().st_size > LARGEST_FILE:
            wrong.append(f"{name}: {path.stat().st_size} bytes: make it smaller")

    assert wrong == []


def test_listed_exceptions_of_temporal_are_names_of_tests() -> None:
    for module, test in REASONS:
        text = (TESTS / f"{module}.py").read_text()
        assert f"def {test.partition('[')[0]}(" in text, (module, test)
    for module, tests in OF_KINDS.items():
        text = (TESTS / f"{module}.py").read_text()
        assert all(f"def {test}(" in text for test in tests), module
    for module in LEFT_OUT:
        assert (TESTS / f"{module}.py").exists(), module

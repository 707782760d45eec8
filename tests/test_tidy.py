"""What a linter cannot check: each finding is `path:line: what: use this`."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BINARY = {".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".png", ".db"}
LONGEST_FUNCTION = 70
LARGEST_FILE = 300_000

# Written in pieces, so that this file does not find itself.
MACHINE = re.compile(r"(?<![\w.])/(" + "work|root|home/[a-z]+|Users/[a-z]+" + r")/(?=\w)")
HOSTS = re.compile(
    "py" + r"pi\.org|python" + r"hosted\.org|npm" + r"js\.(com|org)|deb\." + r"debian"
)
MARKERS = re.compile(
    r"\b(TO" + "DO|FIX" + "ME|XX" + "X|HA" + r"CK)\b|break" + r"point\(\)|pdb\.set" + "_trace"
)


def files() -> list[Path]:
    """What belongs to the project: tracked files, and new ones that are not ignored."""
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


def lines() -> Iterator[tuple[Path, int, str]]:
    """Yield every line of every text file, with its number."""
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), start=1):
            yield path, number, line


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
    found = [
        f"{place(path, number)}: {what}: {instead}"
        for path, number, line in lines()
        if pattern.search(line)
    ]

    assert found == []


def test_text_files_end_with_one_newline_and_no_line_ends_with_blanks() -> None:
    found = [
        f"{place(path, number)}: blanks at the end: remove them"
        for path, number, line in lines()
        if line != line.rstrip()
    ]
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            found.append(f"{path.relative_to(ROOT)}: end it with one newline")

    assert found == []


def test_functions_fit_a_screen() -> None:
    found = []
    for path in TEXTS:
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                at = place(path, node.lineno)
                found.append(f"{at}: {node.name} has {length} lines: split it")

    assert found == []


def test_no_file_is_empty_large_or_a_link() -> None:
    found = []
    for path in FILES:
        name = path.relative_to(ROOT)
        if path.is_symlink():
            found.append(f"{name}: a link: not every system unpacks it")
        elif path.stat().st_size == 0 and path.name != "py.typed":
            found.append(f"{name}: empty: remove it, or say in a docstring what it is for")
        elif path.stat().st_size > LARGEST_FILE:
            found.append(f"{name}: {path.stat().st_size} bytes: make it smaller")

    assert found == []

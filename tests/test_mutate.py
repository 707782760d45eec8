"""The mutation tester, applied to programs of a few lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mutate import changes

PROGRAM = """\
def larger(a, b):
    return a if a > b else b


def count(limit):
    number = 0
    while number < limit:
        number += 1
    return number


def unused(a):
    a.clear()
"""
TESTS = """\
from numbers_ import count, larger

def test_larger():
    assert larger(1, 2) == 2
    assert larger(2, 1) == 2

def test_count():
    assert count(3) == 3
"""
ENDS = """
import os

def test_that_ends_its_process():
    if count(0) == 0:
        os._exit(1)

def test_that_is_left():
    assert count(-1) == 0
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "numbers_.py").write_text(PROGRAM)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_numbers.py").write_text(TESTS)
    return tmp_path


def mutate(project: Path, *options: str) -> tuple[int, str, dict[str, tuple[bool, str]]]:
    """Return the exit code, the report, and by change whether it was caught, and how."""
    command = [sys.executable, "-m", "scripts.mutate", "numbers_.py", "--patience", "1"]
    command += [*options, "--tests", "tests"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    lines = (project / ".mutate/results.jsonl").read_text().splitlines()
    results = [json.loads(line) for line in lines]
    return (
        done.returncode,
        done.stdout,
        {one["change"]: (one["caught"], one["how"]) for one in results},
    )


@pytest.mark.endurance
def test_a_change_survives_only_if_no_test_notices_it(project: Path) -> None:
    code, report, results = mutate(project)

    assert results == {
        "return a if a > b else b  ->  return None": (True, "failed"),
        "a > b  ->  a >= b": (False, ""),  # an equivalent change
        "a > b  ->  not a > b": (True, "failed"),
        "0  ->  1": (False, ""),
        "number < limit  ->  number <= limit": (True, "failed"),
        "number < limit  ->  not number < limit": (True, "failed"),
        "left out: number += 1": (True, "endless"),
        "1  ->  2": (True, "failed"),
        "return number  ->  return None": (True, "failed"),
        "left out: a.clear()": (False, ""),
    }
    assert "numbers_.py:2: a > b  ->  a >= b  [1 of 1 tests]" in report
    assert "numbers_.py:13: left out: a.clear()  [0 of 0 tests]" in report
    assert "7 of 10 caught" in report
    assert code == 0

    before = project / "before.jsonl"
    (project / ".mutate/results.jsonl").rename(before)
    tests = TESTS.replace("count(3) == 3", "count(3) >= 3")
    (project / "tests/test_numbers.py").write_text(tests + ENDS)
    code, report, _ = mutate(project, "--against", str(before))

    assert "is left out: tests/test_numbers.py::test_that_ends_its_process\n" in report
    assert "6 of 10 caught; before: 7 of 10" in report
    assert (
        "caught no longer: numbers_.py:7: number < limit  ->  number <= limit; before by" in report
    )
    assert code == 1


def test_an_edit_of_one_function_draws_no_other_changes_of_another(tmp_path: Path) -> None:
    path = tmp_path / "numbers_.py"
    path.write_text(PROGRAM)
    before = {one.key: one for one in changes.places(tmp_path, path.name)}
    path.write_text(PROGRAM.replace("    number = 0\n", "    number = 0\n    limit = limit + 0\n"))
    after = {one.key: one for one in changes.places(tmp_path, path.name)}

    there = {one.key for one in before.values() if one.function != "count"}
    assert there == {one.key for one in after.values() if one.function != "count"}
    assert set(before) < set(after)


def test_what_cannot_matter_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "quiet.py"
    path.write_text('''\
"""No change."""
LIMIT = 3
def f(a: "int" = 1, *, kept: bool = True) -> None:
    """Return 1 if 2 > 1."""
    assert a > 1
    logger.info("%s", a + 1)
    for _ in zip(a, a, strict=True):
        pass
    match a:
        case 1:
            assert_never(a)
''')

    assert list(changes.places(tmp_path, path.name)) == []

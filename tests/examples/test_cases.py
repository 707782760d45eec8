"""Every example has test cases, which pass and together cover every branch (F71)."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.testing.suite import run_file

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.rglob("*.test.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".test.yaml"))
# Shows F71
def test_the_cases_of_an_example_pass_and_leave_no_branch_out(path: Path) -> None:
    report = run_file(str(path))

    told = [problem.message for outcome in report.outcomes for problem in outcome.problems]
    assert told == []
    missed = [report.coverage.name(branch) for branch in report.coverage.missed]
    assert missed == []


def test_there_are_cases() -> None:
    assert {path.name.removesuffix(".test.yaml") for path in FILES} >= {
        "expense", "hello", "lookup", "review", "slow", "trip", "welcome",
    }  # fmt: skip

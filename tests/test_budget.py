"""The size of the project: limits on code lines and modules in `budget.toml`."""

from __future__ import annotations

import tomllib

from scripts.mass import ROOT, code_lines, measure
from tests.budget import BUDGET
from tests.rows import each_row

COUNTED = '''"""A docstring,
of two lines."""

import os  # a comment counts as nothing


class Box:
    """A docstring."""

    size = 1
    """Its size."""


def text(it: str) -> str:
    # a comment
    """Also a docstring."""
    longer = """

    a text, not a docstring"""
    return (
        longer
        + it

    )
'''


def test_no_room_is_larger_than_its_budget() -> None:
    mass = measure(ROOT)
    sizes = {**mass.rooms, "modules": len(mass.modules), "loose modules": mass.loose}
    allowed = tomllib.loads(BUDGET.read_text())["lines"]

    assert sorted(allowed) == sorted(sizes), "budget.toml has a line for each room, and no other"
    over = [
        f"{room}: {size:,} instead of at most {allowed[room]:,}"
        for room, size in sizes.items()
        if size > allowed[room]
    ]
    assert not over, (
        "the code has grown beyond tests/budget.toml: remove lines there first, or raise the limit "
        "in the commit that adds a capability, and give the reason:\n" + "\n".join(over)
    )


@each_row(
    ("source", "lines"),
    [("", 0), ("# only\n", 0), ('"""Only."""\n', 0), ("x = 1\n\n\ny = 2\n", 2), (COUNTED, 11)],
)
def test_code_lines_are_those_without_comments_and_docstrings(source: str, lines: int) -> None:
    assert code_lines(source) == lines

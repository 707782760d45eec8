"""Warnings about state in environments that are released while an execution waits (W416)."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.flow.compile import compile_text

MODULE = """
from flowengine_envs.kinds.python import PythonSandbox
def use(box: PythonSandbox) -> int: ...
"""


def told(folder: Path, environment: str, steps: str) -> list[str]:
    """Return the warnings of a flow, each with its line within the steps."""
    (folder / "m.py").write_text(MODULE)
    text = f"flowengine: 1\nid: f\nenvironments:\n  box: {{{environment}}}\nsteps:\n{steps}"
    return [
        f"{one.line - 5} {one.code} {one.message}"
        for one in compile_text(text, folder=folder).diagnostics
    ]


A = "  - {id: a, python: 'm:use', environments: [box]}\n"
B = "  - {id: b, python: 'm:use', environments: [box]}\n"
ASK = "  - {id: ok, approval: Right?}\n"
LOST = (
    "3 W416 'box' is released while 'ok' waits (on_wait: release). Here its variables, names and "
    "directory are those of a new one, but files are kept"
)
RELEASED = "kind: python, on_wait: release"


def test_a_later_step_in_a_released_environment_is_warned_of(tmp_path: Path) -> None:
    assert told(tmp_path, RELEASED, A + ASK + B) == [LOST]


def test_also_where_waiting_and_use_are_inside_groups(tmp_path: Path) -> None:
    group = "  - id: g\n    group:\n      - {id: ok, approval: Right?}\n"
    (found,) = told(tmp_path, RELEASED, A + group + B)
    assert found.startswith("5 W416 'box' is released while 'g' waits")


def test_also_round_a_cycle(tmp_path: Path) -> None:
    ask = "  - {id: ok, approval: Again?, next: {outcome: {approve: a, reject: end}}}\n"
    (found,) = told(tmp_path, RELEASED, A + ask)
    assert found.startswith("1 W416")


@pytest.mark.parametrize(
    ("environment", "steps"),
    [
        ("kind: python", A + ASK + B),
        ("kind: python, on_wait: keep", A + ASK + B),
        (f"{RELEASED}, scope: step", A + ASK + B),
        (RELEASED, A + B + ASK),
        (RELEASED, ASK + A + B),
    ],
)
def test_nothing_is_said_where_nothing_is_lost(
    tmp_path: Path, environment: str, steps: str
) -> None:
    assert told(tmp_path, environment, steps) == []


def test_files_are_not_lost(tmp_path: Path) -> None:
    run = "  - {id: x, run: {script: 'echo'}, in: box}\n"
    steps = run + ASK + run.replace("x,", "y,")
    assert told(tmp_path, "kind: bash, on_wait: release", steps) == []

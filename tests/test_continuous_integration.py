"""What `.ci/run` does with tests that failed: only those with real processes run again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTEST = f"""\
#!/bin/sh
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
exec '{sys.executable}' -m pytest -c pytest.ini "$@"
"""
MAKEFILE = "test:\n\t@.venv/bin/pytest tests --no-skips\n"
CONFTEST = """\
def pytest_addoption(parser):
    parser.addoption("--no-skips", action="store_true")
"""
ONCE = """\
from pathlib import Path

def test_once():
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "lost on the way"

def test_well():
    pass
"""
LOUD = """\
import logging
from pathlib import Path

import pytest

@pytest.fixture(params=range(3))
def loud(request):
    yield
    assert Path(__file__).with_suffix(f".again{request.param}").exists(), "left behind"

def test_once(loud, request):
    seen = Path(__file__).with_suffix(f".seen{loud}{request.node.name}")
    if seen.exists():
        for each in range(3):
            Path(__file__).with_suffix(f".again{each}").touch()
        return
    seen.touch()
    logging.getLogger().error("FAILED ERROR tests/kernel")
    print("ERROR tests/kernel/test_a.py::test_b - printed by what was tested")
    assert False, "lost on the way"
"""
ALWAYS = "def test_always():\n    assert False\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that `.ci/run` runs, with tests of its own."""
    for name, text in (
        ("Makefile", MAKEFILE),
        ("pytest.ini", "[pytest]\naddopts = -ra\n"),
        ("tests/conftest.py", CONFTEST),
        (".venv/bin/pytest", PYTEST),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / ".venv/bin/pytest").chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    return tmp_path


def run(project: Path, tests: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in tests.items():
        path = project / "tests" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return subprocess.run(
        [project / ".ci" / "run"], capture_output=True, text=True, check=False, timeout=300
    )


def test_a_test_with_processes_that_passes_alone_is_named_with_its_error(project: Path) -> None:
    done = run(project, {"envs/test_a.py": ONCE})

    assert done.returncode == 0, done.stdout
    said = done.stdout.partition("Failed once, then passed alone")[2]
    assert "FAILED tests/envs/test_a.py::test_once - AssertionError: lost on the way" in said
    assert said.endswith("=== 1 passed, and 1 that failed before passed alone ===\n")


def test_what_a_test_logs_and_how_often_it_is_named_does_not_count(project: Path) -> None:
    done = run(project, {"envs/test_a.py": LOUD})

    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("=== 0 passed, and 3 that failed before passed alone ===\n")


def test_a_test_that_fails_again_has_failed(project: Path) -> None:
    done = run(project, {"envs/test_a.py": ONCE, "cli/test_b.py": ALWAYS})

    assert done.returncode != 0
    assert "passed alone" not in done.stdout


def test_no_test_without_processes_runs_again(project: Path) -> None:
    done = run(project, {"kernel/test_a.py": ONCE, "envs/test_b.py": ONCE})

    assert done.returncode != 0
    assert "passed alone" not in done.stdout
    assert not run(project, {}).returncode  # had it run again, it would have passed

"""Running of the tests: the sample, and the time limit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.endurance import SAMPLE

TESTS = Path(__file__).parent
PLUGINS = ("endurance", "time_limit")
CONFTEST = f"pytest_plugins = {[f'tests.{name}' for name in PLUGINS]}\n"
MANY = """\
import pytest

@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(20))
def test_many(seed):
    assert seed != 7

def test_one():
    pass
"""
HANGING = """\
import threading
import pytest

@pytest.fixture
def thing():
    yield
    threading.Event().wait()

def test_hanging(thing):
    assert False

def test_next():
    pass
"""


class Project:
    """A folder with tests, which are run with the settings of this project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tests = folder / "tests"
        self.tests.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\n")
        (self.tests / "conftest.py").write_text(CONFTEST)
        for name in PLUGINS:
            (self.tests / f"{name}.py").write_text((TESTS / f"{name}.py").read_text())

    def __call__(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run pytest in the folder."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False,
            timeout=300, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )  # fmt: skip

    def cases(self, *options: str) -> list[str]:
        """Return the tests that would run."""
        return re.findall("^tests.*::.*$", self("--collect-only", *options).stdout, re.MULTILINE)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.endurance
def test_a_run_takes_a_fixed_sample_and_a_case_that_fails_says_how_it_is_repeated(
    project: Project,
) -> None:
    (project.tests / "test_many.py").write_text(MANY)
    sample = project.cases()
    whole = project("--endurance").stdout
    failed = "tests/test_many.py::test_many[7]"

    assert "tests/test_many.py::test_one" in sample
    assert len(sample) == 1 + 20 / SAMPLE
    assert f"to repeat it: make endurance ARGS='{failed}'" in whole
    assert "1 failed, 20 passed" in whole
    assert "1 failed" in project(failed).stdout


@pytest.mark.endurance
def test_what_hangs_after_a_failure_ends_at_the_time_limit(project: Project) -> None:
    (project.tests / "test_hanging.py").write_text(HANGING)
    limit = ("-p", "pytest_timeout", "--timeout", "2", "--timeout-method", "thread")
    done = project("-p", "xdist", "-n", "1", *limit)

    assert done.returncode == 1
    assert "crashed while running 'tests/test_hanging.py::test_hanging'" in done.stdout
    assert re.search(r"\b1 passed", done.stdout)  # the next test ran all the same

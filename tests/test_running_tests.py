"""Running of the tests: the sample, order, the budget, and detection of unfinished work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.endurance import SAMPLE
from tests.order import TOGETHER, arranged

TESTS = Path(__file__).parent
PLUGINS = ("endurance", "budget", "rest", "shared", "time_limit")
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
DEAR = """\
import time

def test_dear():
    begun = time.process_time()
    while time.process_time() < begun + 0.1:
        pass
"""


SHARING = """\
import os
import subprocess
import sys
import pytest

BUSY = '''
import time
while time.process_time() < 1: pass
'''

@pytest.fixture(scope="module")
def shared():
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in os.sched_getaffinity(0)]
    yield programs
    for program in programs:
        program.wait()

def test_uses(shared):
    for program in shared:
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)

def test_ends(shared):
    pass
"""


LOSING = """\
import pytest

class Box:
    healthy = True

    def list(self):
        raise OSError("its processes have ended")

made = []

@pytest.fixture(scope="module")
def box():
    made.append(Box())
    yield made[-1]

def test_losing(box):
    box.healthy = False

def test_next(box):
    assert box.healthy
    assert len(made) == 2
"""


RESTLESS = """\
import threading

def for_ever():
    while True:
        pass

def test_restless():
    threading.Thread(target=for_ever, daemon=True).start()
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


INTERRUPTED = """\
import os
import signal

def test_first():
    pass

def test_second():
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
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


def test_each_process_begins_with_tests_that_share_something() -> None:
    others = [f"tests/flow/test_{number}.py::test_it" for number in range(40)]
    groups = [[f"{one}:{number}" for one in begins for number in range(3)] for begins in TOGETHER]
    tests = sorted([*others, *(test for group in groups for test in group)])

    spread, alone = arranged(tests, 4), arranged(tests, 1)

    share = len(tests) // 4
    for number, group in enumerate(groups):
        assert set(spread[number * share :][: len(group)]) <= set(group)
    assert sorted(spread) == sorted(alone) == tests
    assert alone[-40:] == sorted(others)


@pytest.mark.endurance
def test_a_folder_beyond_its_budget_fails_the_run_and_the_dearest_tests_are_named(
    project: Project,
) -> None:
    (project.tests / "kernel").mkdir()
    (project.tests / "kernel" / "test_dear.py").write_text(DEAR)
    (project.tests / "test_cheap.py").write_text("def test_cheap():\n    pass\n")
    budget = project.tests / "budget.toml"

    budget.write_text("[seconds]\nkernel = 0.01\ntests = 5\nshared = 5\n")
    over = project("--budget")
    budget.write_text("[seconds]\nkernel = 5\ntests = 5\nshared = 5\n")
    within = project("--budget")

    assert over.returncode == 1
    assert "over budget: kernel: " in over.stdout
    assert "over budget: tests: " not in over.stdout
    dearest = over.stdout.partition("the dearest:")[2].splitlines()[1]
    assert dearest.endswith("tests/kernel/test_dear.py::test_dear")
    assert within.returncode == 0


@pytest.mark.endurance
def test_a_shared_process_is_not_charged_to_the_test_that_waits_for_it(project: Project) -> None:
    (project.tests / "test_shared.py").write_text(SHARING)
    budget = project.tests / "budget.toml"
    budget.write_text("[seconds]\ntests = 100\nshared = 0\n")
    done = project("--budget")

    assert done.returncode == 1
    shared = re.search(r"over budget: shared: (\d+) processor seconds", done.stdout)
    assert shared is not None
    assert int(shared[1]) >= 1


@pytest.mark.endurance
def test_a_shared_resource_that_was_lost_is_made_anew_and_the_loss_is_told_once(
    project: Project,
) -> None:
    (project.tests / "test_losing.py").write_text(LOSING)
    done = project()

    assert "2 passed, 1 error" in done.stdout
    assert "lost during this test: box: its processes have ended" in done.stdout
    assert "ERROR tests/test_losing.py::test_losing" in done.stdout


@pytest.mark.endurance
def test_what_never_rests_fails_the_run_and_its_line_is_named(project: Project) -> None:
    (project.tests / "test_restless.py").write_text(RESTLESS)
    done = project("-p", "xdist", "-n", "1")

    assert done.returncode == 1
    assert re.search(r"1 passed", done.stdout)
    assert re.search(r"never rests .*/tests/test_restless\.py:[45]\b", done.stdout)


@pytest.mark.endurance
def test_what_hangs_after_a_failure_ends_at_the_time_limit(project: Project) -> None:
    (project.tests / "test_hanging.py").write_text(HANGING)
    limit = ("-p", "pytest_timeout", "--timeout", "2", "--timeout-method", "thread")
    done = project("-p", "xdist", "-n", "1", *limit)

    assert done.returncode == 1
    assert "crashed while running 'tests/test_hanging.py::test_hanging'" in done.stdout
    assert re.search(r"\b1 passed", done.stdout)  # the next test ran all the same


@pytest.mark.endurance
def test_an_interrupted_run_names_the_tests_that_were_running(project: Project) -> None:
    (project.tests / "test_interrupted.py").write_text(INTERRUPTED)
    done = project()

    assert done.returncode == pytest.ExitCode.INTERRUPTED
    named = re.findall(r"(\w+): was running when the run was interrupted", done.stdout)
    assert named == ["test_second"]

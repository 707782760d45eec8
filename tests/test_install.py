"""Installation by `make demo` and `make test`, on machines with and without uv.

All installers are replaced by scripts that only record their arguments, so nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
COPIED = ("Makefile", "pyproject.toml", "requirements", "scripts/install.sh", "scripts/debian.sh")

# A fake interpreter, also for the .venv that it creates. Files represent the state of the machine.
PYTHON = """\
#!/bin/bash
echo "$(basename "$0") $*" >>"$MACHINE/calls"
case $* in
  -c*) exec '{python}' "$@" ;;
  --version) echo Python 3.11.2 ;;
  "-m venv "*)
    [[ $* == *--without-pip* || -e $MACHINE/ensurepip ]] || exit 1
    mkdir -p .venv/bin && cp "$MACHINE/bin/fake" .venv/bin/python
    [[ $* == *--without-pip* ]] || touch .venv/has-pip ;;
  "-m pip --version") [[ $0 == .venv/* && -e .venv/has-pip ]] ;;
  "-m pip --python "*" --version") [[ -e $MACHINE/pip ]] ;;
  *requirements/uv.txt)
    [[ -e $MACHINE/uv-wheel ]] || {{ echo "No matching distribution found for uv" >&2; exit 1; }}
    cp "$MACHINE/bin/fake-uv" .venv/bin/uv ;;
esac
"""
UV = """\
#!/bin/bash
[[ $* == --version ]] && exit
echo "uv $*" >>"$MACHINE/calls"
if [[ $* == venv* ]]; then mkdir -p .venv/bin && cp "$MACHINE/bin/fake" .venv/bin/python; fi
[[ $* == venv* || -e $MACHINE/registry-for-uv ]] || { echo "Connection refused" >&2; exit 2; }
"""
APT = """\
#!/bin/bash
echo "apt-get $*" >>"$MACHINE/calls"
if [[ -e $MACHINE/locked ]]; then
  rm "$MACHINE/locked"
  echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)" >&2
  exit 100
fi
[[ $* != install* ]] || touch "$MACHINE/pip" "$MACHINE/ensurepip"
"""


class Machine:
    """A machine with a checkout. `has` creates the files that represent its state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkout = folder / "checkout"
        for name in COPIED:
            (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            copy: Any = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, self.checkout / name)
        programs = {"fake": PYTHON.format(python=sys.executable), "fake-uv": UV}
        for name, text in (programs | {"apt-get": APT, "id": "#!/bin/sh\necho 0\n"}).items():
            path = folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

    def has(self, *names: str) -> None:
        for name in names:
            (self.folder / name).touch()

    def make(self, *arguments: str) -> tuple[list[str], str]:
        """Run make. Return the calls of installers, and the output."""
        calls = self.folder / "calls"
        calls.write_text("")
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        env = {"PATH": path, "MACHINE": str(self.folder), "PYTHON": "fake", "UV": ""}
        overridden = dict(each.split("=") for each in arguments if "=" in each)
        done = subprocess.run(
            ["make", *(each for each in arguments if "=" not in each)],
            cwd=self.checkout,
            env=env | overridden,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        asked = re.compile(r"--version| -c ")
        return [
            line for line in calls.read_text().splitlines() if not asked.search(line)
        ], done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with Python and pip that reaches a registry, but without uv."""
    machine = Machine(tmp_path)
    machine.has("pip", "ensurepip", "uv-wheel", "registry-for-uv")
    return machine


VENV = "fake -m venv --without-pip .venv"
OUTER = "fake -m pip --python .venv/bin/python"
FETCH = (
    "install --quiet --disable-pip-version-check --no-deps --only-binary :all:"
    " --requirement requirements/uv.txt"
)
UV_INSTALL = "uv pip install --quiet --python .venv --compile-bytecode"
FOR_DEMO = [
    f"{UV_INSTALL} --constraint requirements/dev.txt hatchling editables",
    f"{UV_INSTALL} --constraint requirements/dev.txt --no-build-isolation --editable .[documents]",
]
FOR_TESTS = [
    "uv pip sync --quiet --python .venv --compile-bytecode requirements/dev.txt",
    f"{UV_INSTALL} --no-deps --no-build-isolation --editable .",
]
BY_PIP = "install --quiet --disable-pip-version-check"
DEMO_BY_PIP = [
    f"{BY_PIP} --constraint requirements/dev.txt hatchling editables",
    f"{BY_PIP} --constraint requirements/dev.txt --no-build-isolation --editable .[documents]",
]
TESTS_BY_PIP = [
    f"{BY_PIP} --requirement requirements/dev.txt",
    f"{BY_PIP} --no-deps --no-build-isolation --editable .",
]
DEMO = "python examples/document_review/demo.py"


def test_the_demo_fetches_uv_and_installs_only_what_it_needs(machine: Machine) -> None:
    calls, _ = machine.make("demo")

    assert calls == [VENV, f"{OUTER} {FETCH}", *FOR_DEMO, DEMO]
    assert machine.make("demo")[0] == [DEMO]


def test_the_tests_after_the_demo_add_what_they_need(machine: Machine) -> None:
    machine.make("demo")

    assert machine.make("install")[0] == [VENV, f"{OUTER} {FETCH}", *FOR_TESTS]


def test_the_demo_after_the_tests_has_nothing_to_install(machine: Machine) -> None:
    calls, _ = machine.make("install")

    assert calls == [VENV, f"{OUTER} {FETCH}", *FOR_TESTS]
    assert machine.make("demo")[0] == [DEMO]


def test_a_uv_on_the_path_is_used(machine: Machine) -> None:
    uv = machine.folder / "bin" / "fake-uv"

    calls, _ = machine.make("demo", f"UV={uv}")

    assert calls == ["uv venv --quiet --allow-existing --python fake .venv", *FOR_DEMO, DEMO]


def test_pip_installs_where_there_is_no_uv_for_the_machine(machine: Machine) -> None:
    (machine.folder / "uv-wheel").unlink()

    calls, printed = machine.make("demo")

    assert calls[2:] == [*(f"{OUTER} {each}" for each in DEMO_BY_PIP), DEMO]
    assert "there is no uv for this machine" in printed
    assert machine.make("install")[0][2:] == [f"{OUTER} {each}" for each in TESTS_BY_PIP]


@pytest.mark.parametrize("given", [False, True], ids=["fetched", "on the PATH"])
def test_pip_installs_where_uv_does_not_reach_the_registry(machine: Machine, given: bool) -> None:
    (machine.folder / "registry-for-uv").unlink()
    uv = f"UV={machine.folder / 'bin' / 'fake-uv'}"

    calls, printed = machine.make("install", *[uv] * given)

    assert calls[-2:] == [f"{OUTER} {each}" for each in TESTS_BY_PIP]
    assert "It does not read pip's configuration" in printed


def test_a_venv_gets_its_own_pip_where_the_interpreter_has_none(machine: Machine) -> None:
    (machine.folder / "pip").unlink()

    calls, _ = machine.make("demo")

    assert calls == [VENV, "fake -m venv .venv", f"python -m pip {FETCH}", *FOR_DEMO, DEMO]


def test_a_bare_debian_gets_what_it_lacks(machine: Machine) -> None:
    (machine.folder / "pip").unlink()
    (machine.folder / "ensurepip").unlink()
    machine.has("locked")  # by another process that installs packages

    calls, printed = machine.make("demo")

    packages = "install --yes --no-install-recommends python3-venv python3-pip"
    assert f"apt-get {packages}" in calls
    assert calls[-4:] == [f"{OUTER} {FETCH}", *FOR_DEMO, DEMO]
    assert "installing the Debian packages python3-venv python3-pip" in printed


def needed(project: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """Return the names of a distribution's dependencies on this machine, direct and indirect."""
    seen: set[tuple[str, frozenset[str]]] = set()
    left = [(project, extras)]
    while left:
        name, wanted = left.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        for each in map(Requirement, requires(name) or ()):
            met = [each.marker.evaluate({"extra": e}) for e in ("", *wanted) if each.marker]
            if not each.marker or any(met):
                plain = re.sub(r"[-_.]+", "-", each.name).lower()
                left.append((plain, frozenset(each.extras)))
    return {name for name, _ in seen}


def test_the_demo_installs_pinned_packages_and_no_tool_of_the_tests() -> None:
    lines = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    pinned = {line.split("==")[0] for line in lines}
    tools = (ROOT / "requirements" / "dev.in").read_text().split("\n", 1)[1].split()
    builder = {"editables", "hatchling"}
    demo = needed("flowengine", frozenset({"documents"})) - {"flowengine"}
    demo |= set().union(*map(needed, builder))

    assert demo - pinned == set()
    assert demo & set(tools) == builder
    assert len(demo) < len(pinned) / 2
    assert not demo & {"docker", "litellm", "playwright"}

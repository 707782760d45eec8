"""Packages as installed by users: names, entry points, pins, and the wheel itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import flowengine
import flowengine.sdk
from flowengine.registry import BUILT_IN

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


@pytest.mark.parametrize("package", [flowengine, flowengine.sdk], ids=lambda one: one.__name__)
def test_everything_a_package_exports_is_there(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        package.missing  # noqa: B018


def test_installed_programs_are_those_of_the_project_file() -> None:
    written = {("console_scripts", name, value) for name, value in PROJECT["scripts"].items()}

    installed = {(e.group, e.name, e.value) for e in distribution("flowengine").entry_points}

    assert installed == written, "entry points are read when a project is installed: make install"


def test_everything_built_in_can_be_loaded() -> None:
    for path in (path for classes in BUILT_IN.values() for path in classes.values()):
        module, name = path.split(":")
        assert isinstance(getattr(import_module(module), name), type), path


def test_wheel_holds_the_four_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}

    assert tops == {"flowengine", "flowengine_nodes", "flowengine_envs", "flowengine_documents"}
    assert {f"{top}/py.typed" for top in tops} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_wheel_runs_a_flow_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    (tmp_path / "hello.yaml").write_bytes((ROOT / "examples" / "hello.yaml").read_bytes())
    program = (
        "import sys, flowengine, flowengine.cli;"
        f"assert flowengine.__file__.startswith({str(site)!r});"
        "sys.exit(flowengine.cli.main())"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "run", "hello.yaml", "-i", "name=Ada"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "message: Hello, Ada!\n"), done.stderr


def test_the_changelog_goes_by_version_and_has_none_that_is_to_come() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    unreleased, *released = re.findall(r"^## (.+)$", text, re.MULTILINE)
    versions = []
    for heading in released:
        found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+) - \d{4}-\d\d-\d\d", heading)
        assert found, f"{heading}: write '0.2.0 - 2027-01-31'"
        versions.append(tuple(map(int, found.groups())))

    assert unreleased == "Unreleased"
    assert versions == sorted(set(versions), reverse=True)
    current = re.match(r"(\d+)\.(\d+)\.(\d+)", flowengine.__version__)
    assert current
    assert versions[:1] <= [tuple(map(int, current.groups()))]


def test_each_version_of_python_that_is_declared_is_one_that_is_tried() -> None:
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    script = (ROOT / "scripts" / "pythons.sh").read_text()
    tried = re.search(r"for version in ([\d. ]+); do", script)

    assert PROJECT["requires-python"] == f">={declared[0]}"
    assert tried
    assert declared[1:] == tried[1].split()


def test_hooks_before_a_commit_run_the_pinned_tools() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]

    assert [repo["repo"] for repo in hooks] == ["local"]
    for hook in hooks[0]["hooks"]:
        program = hook["entry"].split()[0]
        assert (ROOT / program).exists(), hook["id"]


def test_pins_are_exact_name_no_place_and_cover_what_the_project_needs() -> None:
    files = [ROOT / "requirements" / name for name in ("dev.txt", "uv.txt")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    pins = [line for line in lines if not line.lstrip().startswith("#")]
    wanted = list(PROJECT["dependencies"])
    for extra in PROJECT["optional-dependencies"].values():
        wanted += [need for need in extra if not need.startswith("flowengine[")]
    wanted += (ROOT / "requirements" / "dev.in").read_text().splitlines()[1:]
    wanted.append("uv")

    unpinned = [line for line in pins if not re.fullmatch(r"[a-z0-9.-]+==[\w.]+( ; .+)?", line)]
    pinned = {line.split("==")[0] for line in pins}
    missing = {re.split(r"[\[<>=!~ ]", need, maxsplit=1)[0] for need in wanted} - pinned - {"#", ""}

    assert unpinned == []
    assert missing == set(), "make lock"


def test_readme_names_only_commands_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text()))

    assert {"demo", "test"} <= named <= targets

# Shows E84
"""The examples of environments print the stored outputs, and leave nothing behind (E84)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.execution_environment.registry.entries import Registry
from flowengine.sdk.environments import VARIABLE
from flowengine.sdk.processes import marked
from flowengine_envs.browser import installation
from tests.envs.containers import skip_without_docker
from tests.examples.conftest import EXAMPLES, Shell
from tests.execution_environment.toy import until
from tests.own_environments import environments_for

HERE = EXAMPLES / "environments"


@pytest.fixture
def folder(flowengine: Shell) -> Iterator[Path]:
    """A copy of the examples, from which no process may survive."""
    shutil.copytree(HERE, flowengine.folder, dirs_exist_ok=True)
    flowengine.env["PATH"] = f"{Path(sys.executable).parent}:{flowengine.env['PATH']}"
    yield flowengine.folder
    kept = environments_for(flowengine.folder / ".flowengine", flowengine.env)
    assert not list(kept.glob("entries/*"))
    assert not list(kept.glob("workspaces/*/*/*"))
    ours = f".{Registry(kept).name}."  # in the mark of each process of these environments
    until(lambda: not any(ours in mark for mark in marked(VARIABLE).values()))


def stored(name: str) -> str:
    return (HERE / "output" / f"{name}.txt").read_text()


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """The address of a server that runs elsewhere."""
    server = subprocess.Popen(
        [sys.executable, "units_server.py", "http"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    yield server.stdout.readline().strip()
    server.terminate()
    server.wait()
    server.stdout.close()


@pytest.mark.parametrize("name", ["database", "folder", "mcp_stdio", "mcp_tool"])
def test_flows_that_need_no_sandbox(folder: Path, flowengine: Shell, name: str) -> None:
    done = flowengine("-q", "run", f"{name}.yaml")

    assert done.out == stored(name)


def test_an_approval_and_what_another_process_makes_of_the_answer(
    folder: Path, flowengine: Shell
) -> None:
    asked = flowengine("run", "approval.yaml", code=4)
    before = (folder / "approved.db").exists()
    done = flowengine("-q", "approve", "--all", "--batch", "db")

    assert (asked.out, before) == ("", False)
    assert "May 2 words be written to approved.db?" in asked.err
    assert done.out == stored("approval")


def test_a_server_over_http(folder: Path, flowengine: Shell, address: str) -> None:
    done = flowengine("-q", "run", "mcp_http.yaml", "-i", f"url={address}")

    assert done.out == stored("mcp_http")


@pytest.mark.skipif(not shutil.which("bwrap"), reason="apt-get install bubblewrap")
def test_a_page_that_works_with_scripts(folder: Path, flowengine: Shell) -> None:
    if installation.browser(None) is None:
        pytest.skip("no Chromium: apt-get install chromium")
    site = subprocess.Popen(
        [sys.executable, "harbour_site.py"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert site.stdout is not None
    try:
        assert site.stdout.readline()
        done = flowengine("-q", "run", "browser.yaml")
    finally:
        site.terminate()
        site.wait()
        site.stdout.close()

    assert done.out == stored("browser")


@pytest.mark.skipif(not shutil.which("bwrap"), reason="apt-get install bubblewrap")
def test_languages_in_sandboxes(folder: Path, flowengine: Shell) -> None:
    if not shutil.which("node"):
        pytest.skip("no Node.js: apt-get install nodejs")
    done = flowengine("-q", "run", "languages.yaml")

    assert done.out == stored("languages")


def test_containers(folder: Path, flowengine: Shell) -> None:
    skip_without_docker()
    done = flowengine("-q", "run", "container.yaml")

    assert done.out == stored("container")
    assert (folder / "drafts" / "list.txt").read_text() == "  *  milk\nto   do:\n"


@pytest.mark.endurance
@pytest.mark.skipif(not shutil.which("bwrap"), reason="apt-get install bubblewrap")
def test_health_and_reuse(folder: Path, flowengine: Shell) -> None:
    done = subprocess.run(
        [sys.executable, "health.py"],
        cwd=folder,
        env=flowengine.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == stored("health")

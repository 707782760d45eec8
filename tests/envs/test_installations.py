# Shows E40
"""Interpreters of the user's installation, run in the sandboxes of this machine."""

from __future__ import annotations

import os
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import EnvironmentUnavailable, Refused
from flowengine.sdk.environments import Provider, Sandbox
from flowengine_envs.kinds.node import NodeProvider
from flowengine_envs.kinds.python import Python
from flowengine_envs.sandboxes.docker.sandbox import Docker
from flowengine_envs.sandboxes.host import HostSandbox
from flowengine_envs.sandboxes.installations import installation
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.sandboxes.processes import has
from tests.envs.opening import open_resource, opened, request_for

NEEDS_BWRAP = pytest.mark.skipif(not has("bwrap"), reason="no bubblewrap")
HERE = [pytest.param(Namespace, marks=NEEDS_BWRAP), HostSandbox]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment of the Python that runs the tests."""
    folder = tmp_path_factory.mktemp("own") / "venv"
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python3.*/site-packages")
    (packages / "only_there.py").write_text("answer = 42\n")
    script = folder / "bin" / "tell"
    script.write_text(f"#!{folder}/bin/python\nimport only_there\nprint(only_there.answer)\n")
    script.chmod(0o755)
    return folder


def made(folder: Path, text: str, name: str) -> Path:
    program = folder / "bin" / name
    program.parent.mkdir(parents=True)
    program.write_text(text)
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("sandbox", HERE)
def test_a_virtual_environment_brings_its_packages_and_programs(
    sandbox: type[Sandbox], own: Path, tmp_path: Path
) -> None:
    config = {"interpreter": f"{own}/bin/python"}
    with opened(Python(), sandbox, tmp_path, config=config) as python:
        told = python.run("import only_there, sys; [only_there.answer, sys.prefix, sys.version]")
        tells = python.run("import subprocess; subprocess.check_output(['tell'], text=True)")

    assert told.value == [42, str(own), sys.version]
    assert tells.value == "42\n", tells


@NEEDS_BWRAP
def test_a_namespace_sees_it_and_cannot_write_it_nor_see_what_lies_beside(
    own: Path, tmp_path: Path
) -> None:
    (own.parent / "beside").write_text("private")
    config = {"interpreter": f"{own}/bin/python"}
    with opened(Python(), Namespace, tmp_path, config=config) as python:
        beside = python.run(f"import os; os.listdir({str(own.parent)!r})")
        written = python.run(f"open('{own}/lib/new', 'w')")
        home = python.run(f"os.path.exists({os.path.expanduser('~/.bashrc')!r})")

    assert beside.value == [own.name]
    assert written.error is not None
    assert written.error.type == "OSError"
    assert home.value is False
    assert not (own / "lib/new").exists()


@NEEDS_BWRAP
@pytest.mark.parametrize(
    ("provider", "text", "told"),
    [
        (Python(), "#!/bin/sh\necho broken library >&2; exit 3\n", "broken library"),
        (Python(), "#!/bin/sh\nprintf '3 8'\n", "is Python 3.8; 3.9 or newer is needed"),
        (Python(), "#!/nowhere/python\n", "is not a Python that runs in the sandbox"),
        (NodeProvider(), "#!/bin/sh\necho v16.1.0\n", "is version 16.1.0, required is 18"),
        (NodeProvider(), "#!/bin/sh\nexit 4\n", "ended with exit code 4"),
    ],
)
def test_one_that_does_not_work_says_why(
    provider: Provider[Any], text: str, told: str, tmp_path: Path
) -> None:
    program = made(tmp_path / "it", text, "program")
    workspace = tmp_path / "work"
    workspace.mkdir()
    with pytest.raises(EnvironmentUnavailable, match=told) as refused:
        open_resource(provider, Namespace, workspace, config={"interpreter": str(program)})
    assert str(program) in refused.value.message


def test_what_cannot_be_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal(path: str, sandbox: type[Sandbox] = Namespace) -> str:
        request = request_for(Python(), sandbox, tmp_path, config={"interpreter": path})
        with pytest.raises((EnvironmentUnavailable, Refused)) as refused:
            installation(request.spec)
        return refused.value.message

    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    program = made(home, "", "python")
    (home / "data").write_text("")

    assert f"there is no interpreter {tmp_path}/nothing" in refusal(f"{tmp_path}/nothing")
    assert f"{home}/data is not executable" in refusal("~/data")
    assert "it is, or contains, the home directory" in refusal(str(program))
    assert "use provider: namespace" in refusal(str(program), Docker)
    (tmp_path / "sly").symlink_to(program)
    assert "the home directory" in refusal(f"{tmp_path}/sly"), "wherever links lead"


def test_nothing_that_was_written_into_a_venv_shows_folders_of_the_machine(
    own: Path, tmp_path: Path
) -> None:
    """A sandbox that may write a project can change the settings and links of its venv."""
    secret = tmp_path / "secret"
    made(secret, "", "key-tool")
    project = tmp_path / "project"
    venv.create(project / ".venv", symlinks=True)
    python = project / ".venv" / "bin" / "python"

    def shown() -> list[Path]:
        config = {"interpreter": str(python)}
        found = installation(request_for(Python(), Namespace, tmp_path, config=config).spec)
        assert found is not None
        return [*found.folders.values()]

    before = shown()
    (project / ".venv" / "pyvenv.cfg").write_text(f"home = {secret}/bin\n")
    assert shown() == before

    python.unlink()
    python.symlink_to(secret / "bin" / "key-tool")
    with pytest.raises(Refused, match=f"a link leads to {secret}, not a directory of an inter"):
        shown()
    python.unlink()
    python.parent.joinpath("python3").unlink(missing_ok=True)
    python.symlink_to(own / "bin" / "python")
    assert own in shown(), "another environment is one"


def test_the_folders_of_the_engine_are_shown_to_no_interpreter(tmp_path: Path) -> None:
    state = tmp_path / "state"
    program = made(state, "", "python")
    config = {"interpreter": str(program)}
    here: dict[str, Any] = {"config": config, "guarded": [state / "stores"]}
    request = request_for(Python(), Namespace, tmp_path / "work", config=config)

    assert installation(request.spec, request) is not None
    with pytest.raises(Refused, match="it contains the state of the engine"):
        installation(request.spec, request_for(Python(), Namespace, tmp_path / "work", **here))

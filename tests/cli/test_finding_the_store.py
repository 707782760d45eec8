"""The store of a command: the closest `.flowengine` upwards, if it belongs to the user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.execution_environment import EnvironmentManager
from flowengine.store_folder import find_store, folders_above, known
from tests.cli.conftest import CommandLine

HELLO = (
    "flowengine: 1\nid: hello\nsteps: [{id: a, output: 1}]\noutputs: {a: '${{ steps.a.output }}'}\n"
)


@pytest.fixture
def below(flowengine: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder two levels below a project that has no store yet."""
    folder = tmp_path / "project" / "flows" / "inner"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    flowengine.write("project/flows/inner/hello.yaml", HELLO)
    return folder


def at(folder: Path, flowengine: CommandLine, *words: str | Path, code: int = 0) -> str:
    """Run a command in another folder, and return its output."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        done = flowengine(*words, code=code)
    finally:
        os.chdir(here)
    return done.out + done.err


def stores(folder: Path) -> list[Path]:
    return sorted(found.parent for found in folder.rglob("flowengine.db"))


def test_every_command_finds_the_store_above(
    flowengine: CommandLine, below: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    at(project, flowengine, "init")

    flowengine("run", "hello.yaml")

    assert stores(tmp_path) == [project / ".flowengine"]
    for folder in (project, project / "flows", below):
        assert len(at(folder, flowengine, "--json", "list").splitlines()) == 1
        assert flowengine.newest() in at(folder, flowengine, "show", flowengine.newest()[:12])
    with Engine() as engine:
        assert [one["flow"] for one in engine.executions.list().items] == ["hello"]
        assert engine.environments.written() == []
    with EnvironmentManager() as manager:
        assert manager.written() == []
    assert not list(below.glob(".flowengine*"))


def test_the_nearest_store_is_the_one(flowengine: CommandLine, below: Path, tmp_path: Path) -> None:
    at(tmp_path / "project", flowengine, "init")
    at(below.parent, flowengine, "init")

    flowengine("run", "hello.yaml")

    assert stores(tmp_path) == [below.parent / ".flowengine"]


def test_where_there_is_none_it_is_made_here(
    flowengine: CommandLine, below: Path, tmp_path: Path
) -> None:
    listed = flowengine("list")
    assert listed.err == f"no store exists at {below}/.flowengine or in a directory above it\n"

    flowengine("run", "hello.yaml")

    assert stores(tmp_path) == [below / ".flowengine"]


def test_a_store_above_that_is_not_ours_is_not_used(
    flowengine: CommandLine, below: Path, tmp_path: Path
) -> None:
    at(tmp_path / "project", flowengine, "run", below / "hello.yaml")
    moved = (tmp_path / "project").rename(tmp_path / "moved")
    os.chdir(moved / "flows" / "inner")

    for words in (["run", "hello.yaml"], ["list"], ["show", "01"]):
        said = flowengine(*words, code=10).err
        assert said.count(f"{moved}/.flowengine was not used: it was not created here") == 1
        assert f"--store {moved}/.flowengine list" in said
    assert stores(tmp_path) == [moved / ".flowengine"]

    flowengine("--store", f"{moved}/.flowengine", "list")
    assert "hello" in flowengine("list").out


@pytest.mark.parametrize("left", [0, 7])
def test_a_damaged_id_is_named_and_made_anew_for_a_store_that_is_named(
    flowengine: CommandLine, below: Path, left: int
) -> None:
    """As left by an older release after a power cut or on a full disk."""
    flowengine("run", "hello.yaml")
    os.truncate(".flowengine/id", left)

    said = flowengine("list", code=10).err

    assert f"{below}/.flowengine was not used: 'id' in it is damaged" in said
    assert f"confirm it once by naming it: flowengine --store {below}/.flowengine list" in said
    assert "hello" in flowengine("--store", ".flowengine", "list").out
    assert "hello" in flowengine("list").out
    assert Path(".flowengine/id").stat().st_size == 33


def test_a_log_that_a_step_deletes_ends_the_run(flowengine: CommandLine, below: Path) -> None:
    log = f"{below}/.flowengine/flowengine.db-wal"
    flowengine.write(
        "project/flows/inner/delete.yaml",
        f"""\
flowengine: 1
id: delete
steps:
  - {{id: a, run: "rm {log}", effect: pure, in: host}}
""",
    )

    said = flowengine("run", "delete.yaml", code=10).err

    assert f"{log}, which belongs to the store, was deleted or moved while it was in use" in said


def test_a_store_above_that_others_can_write_is_not_used(
    flowengine: CommandLine, below: Path
) -> None:
    at(below.parent, flowengine, "init")
    (below.parent / ".flowengine").chmod(0o777)
    (below.parent / ".flowengine" / "flowengine.db").write_bytes(b"")

    said = flowengine("run", "hello.yaml", code=10).err

    assert f"{below.parent}/.flowengine was not used: it can be written by other users" in said


def test_nothing_is_looked_for_above_what_all_can_write(
    flowengine: CommandLine, below: Path, tmp_path: Path
) -> None:
    """As in /tmp: other users could plant a store there."""
    at(tmp_path, flowengine, "init")
    (tmp_path / "project").chmod(0o777)

    assert list(folders_above(str(below))) == [str(below.parent)]
    assert find_store() == (f"{below}/.flowengine", False)


def test_nothing_is_looked_for_above_what_belongs_to_another_user(
    flowengine: CommandLine, below: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(tmp_path, flowengine, "init")
    monkeypatch.setattr("os.geteuid", lambda: os.stat(below).st_uid + 1)

    assert list(folders_above(str(below))) == []


def test_nothing_is_looked_for_beyond_the_file_system() -> None:
    assert "/" not in folders_above(f"/proc/{os.getpid()}/task")


def test_the_home_folder_is_no_project_of_all_that_is_in_it(
    flowengine: CommandLine, below: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "project"))
    at(tmp_path / "project", flowengine, "run", below / "hello.yaml")

    assert known(str(tmp_path / "project" / ".flowengine")) is not None
    assert find_store() == (f"{below}/.flowengine", False)
    os.chdir(tmp_path / "project")
    assert find_store() == (f"{tmp_path}/project/.flowengine", False)

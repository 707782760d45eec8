"""No file tool and no environment reaches a store, the engine's state or its configuration.

Write access there would mean control of every execution, and of the rules of the host.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.results import ExecutionResult
from flowengine.sdk import Refused
from flowengine.sdk.files.confined_files import Below, own_names
from flowengine_envs.sandboxes.mounts import check

STORE = ".flowengine/flowengine.db"
CANARY = "c4n4ry"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project below the home folder, whose store has data to lose."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".config" / "flowengine").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text(CANARY)
    return tmp_path


def run(steps: str, store: str = "", more: str = "") -> ExecutionResult:
    path = Path("flow.yaml")
    path.write_text(f"flowengine: 1\nid: it\n{more}\nsteps: [{steps}]\n")
    with Engine(store) as engine:
        return engine.run(path)


def message(result: ExecutionResult) -> str:
    assert result.status == "failed", result
    assert result.error is not None
    return result.error["message"]


def is_whole(store: str = ".flowengine") -> bool:
    """Return whether a store is still readable, with its executions."""
    with Engine(store) as engine:
        return bool(engine.executions.list().items)


def other_names(folder: Path) -> dict[str, str]:
    """Create other names for the store's database, and return all names."""
    folder.joinpath("link").symlink_to(".flowengine")
    folder.joinpath("db").symlink_to(STORE)
    folder.joinpath("sub").mkdir()
    folder.joinpath("sub", "up").symlink_to(folder / ".flowengine")
    os.link(STORE, "hard")
    return {
        "name": STORE,
        "dots": "sub/../.flowengine/./flowengine.db",
        "link to the folder": "link/flowengine.db",
        "link to the file": "db",
        "absolute link": "sub/up/flowengine.db",
        "capitals": ".FlowEngine/flowengine.db",
        "beside it": ".flowengine/flowengine.db-wal",
        "new in it": ".flowengine/rules.yaml",
        "artifact": ".flowengine/artifacts/ab/cd",
        "configuration": ".config/flowengine/rules.yaml",
        "state": "state/flowengine/key",
    }


@pytest.mark.parametrize("tool", ["write_file", "edit_file", "read_file"])
def test_file_tools_do_not_reach_it(project: Path, tool: str) -> None:
    run("{id: a, output: 1}")
    args = {
        "write_file": "text: x",
        "edit_file": "old: x, new: y",
        "read_file": "encoding: latin-1",
    }[tool]
    before = Path(STORE).stat().st_ino

    for what, path in other_names(project).items():
        told = message(run(f'{{id: a, call: std.{tool}, with: {{path: "{path}", {args}}}}}'))
        assert "belongs to the engine" in told, (what, told)

    assert Path(STORE).stat().st_ino == before
    assert not Path(".config/flowengine/rules.yaml").exists()
    assert is_whole()


def test_a_hard_link_is_neither_read_nor_written_through(project: Path) -> None:
    run("{id: a, output: 1}")
    os.link(STORE, "hard")
    read = "{id: a, call: std.read_file, with: {path: hard, encoding: latin-1}}"
    assert "belongs to the engine" in message(run(read))
    assert run("{id: a, call: std.write_file, with: {path: hard, text: x}}").status == "succeeded"
    assert is_whole()
    assert Path("hard").read_text() == "x"


def own_locks() -> list[str]:
    """Return the locks of this process as the kernel lists them, without their positions."""
    lines = Path("/proc/locks").read_text().splitlines()
    mine = [line for line in lines if "POSIX" in line and f" {os.getpid()} " in line]
    return sorted(line.partition(": ")[2] for line in mine)


def test_looking_at_a_link_to_the_store_in_use_leaves_its_locks(project: Path) -> None:
    """Closing any descriptor of the database releases all locks that this process holds on it."""
    run("{id: a, output: 1}")
    with Engine() as engine:
        mine = own_locks()
        for number, ending in enumerate(("", "-wal", "-shm")):
            os.link(f"{STORE}{ending}", f"hard{number}")
            with pytest.raises(Refused, match="belongs to the engine"):
                Below(".", outside=Refused).read(f"hard{number}", 10_000_000)
        assert own_names(".", os.listdir(".")) >= {"hard0", "hard1", "hard2", ".flowengine"}
        assert own_locks() == mine != []
        assert engine.executions.list().items


def test_a_store_of_any_name_and_place_is_left_alone(project: Path) -> None:
    run("{id: a, output: 1}", store="deep/kept")
    for path in ("deep/kept/flowengine.db", "deep/kept/id", "deep/kept/artifacts/aa/b"):
        told = message(run(f"{{id: a, call: std.write_file, with: {{path: {path}, text: x}}}}"))
        assert "belongs to the engine" in told
    run("{id: a, output: 1}", store=".")
    step = "{id: a, call: std.write_file, with: {path: flowengine.db, text: x}}"
    assert "belongs to the engine" in message(run(step, store="."))
    beside = "{id: a, call: std.write_file, with: {path: beside.txt, text: x}}"
    assert run(beside, store=".").status == "succeeded"
    assert is_whole("deep/kept")
    assert is_whole(".")


def test_searches_leave_it_out(project: Path) -> None:
    run("{id: a, output: 1}")
    steps = """
      {id: g, call: std.glob, with: {pattern: ".*/**"}},
      {id: s, call: std.search_files, with: {text: c4n4ry, pattern: "**"}},
      {id: c, call: std.search_files, with: {text: "polic", pattern: ".config/**"}}
    """
    outputs = """
outputs:
  g: ${{ steps.g.output.files }}
  s: ${{ json(steps.s.output) }}
  c: ${{ steps.c.output.matches }}
"""
    Path(".config/flowengine/rules.yaml").write_text("rules: []\n")
    result = run(steps, more=outputs)
    assert result.outputs is not None, result
    assert [one for one in result.outputs["g"] if "flowengine" in one] == []
    assert "notes.txt" in result.outputs["s"]
    assert result.outputs["c"] == []


ENVIRONMENT = """\
environments:
  project: {{kind: files, config: {{path: {path}, mode: {mode}}}}}
"""


def in_folder(tool: str, args: str, mode: str = "rw", path: str = ".") -> ExecutionResult:
    step = f"{{id: a, call: std.{tool}, environments: {{files: project}}, with: {{{args}}}}}"
    return run(step, more=ENVIRONMENT.format(mode=mode, path=path))


@pytest.mark.parametrize("path", [STORE, "link/flowengine.db", ".flowengine/rules.yaml"])
def test_a_folder_that_may_be_written_does_not_reach_it(project: Path, path: str) -> None:
    run("{id: a, output: 1}")
    Path("link").symlink_to(".flowengine")
    assert "belongs to the engine" in message(in_folder("write_file", f"path: {path}, text: x"))
    assert is_whole()


@pytest.mark.parametrize(
    "path",
    [
        ".flowengine",
        "link",
        ".config/flowengine",
        ".flowengine/new",
        ".config/flowengine/new",
        "state/flowengine",
        "state/flowengine/servers/a",
        "to-state/servers/a",
        "~/state/flowengine/servers/a",
    ],
)
@pytest.mark.parametrize("mode", ["rw", "ro", "copy"])
def test_a_folder_that_is_the_engines_is_none(project: Path, path: str, mode: str) -> None:
    run("{id: a, output: 1}")
    Path("link").symlink_to(".flowengine")
    Path("to-state").symlink_to(project / "state" / "flowengine")
    for folder in (".flowengine/new", ".config/flowengine/new", "state/flowengine/servers/a"):
        Path(folder).mkdir(parents=True)
        Path(folder, "token").write_text(CANARY)
    path = path.replace("~", str(project))
    for told in (
        message(in_folder("write_file", "path: rules.yaml, text: x", path=path, mode=mode)),
        message(in_folder("read_file", "path: token", path=path, mode=mode)),
    ):
        assert "belongs to the engine" in told or "leads out" in told
        assert CANARY not in told
    assert not Path(path, "rules.yaml").exists()


def test_nothing_works_inside_the_engines_folders(project: Path) -> None:
    for folder in (".config/flowengine/new", "state/flowengine/servers/a"):
        (project / folder).mkdir(parents=True)
        (project / folder / "token").write_text(CANARY)
        with pytest.raises(Refused, match="belongs to the engine"):
            Below(project / folder, outside=Refused).read("token", 100)
        with pytest.raises(Refused, match="is not mounted into a sandbox"):
            check(project / folder)


def test_a_copy_has_no_store_and_brings_none_back(project: Path) -> None:
    run("{id: a, output: 1}")
    os.link(STORE, "hard")
    Path("acts.py").write_text("""
def work(project):
    before = project.list(".*/**") + project.list("*")
    (project.path / ".flowengine").mkdir()
    (project.path / ".flowengine" / "flowengine.db").write_text("gone")
    (project.path / "made.txt").write_text("made")
    changes = project.write_back()
    return {"before": before, "added": changes.added, "removed": changes.removed}
""")
    step = "{id: a, python: 'acts:work', environments: [project]}"
    outputs = 'outputs: {all: "${{ steps.a.output }}"}'
    result = run(step, more=ENVIRONMENT.format(mode="copy", path=".") + outputs)
    assert result.outputs is not None, result
    done: Any = result.outputs["all"]
    assert "notes.txt" in done["before"]
    assert [one for one in done["before"] if "flowengine" in one or one == "hard"] == []
    assert "made.txt" in done["added"]
    assert [one for one in (*done["added"], *done["removed"]) if "flowengine" in one] == []
    assert Path("made.txt").read_text() == "made"
    assert is_whole()


@pytest.mark.parametrize("path", [STORE, "db", "link/flowengine.db", "hard"])
def test_no_database_environment_opens_it(project: Path, path: str) -> None:
    run("{id: a, output: 1}")
    other_names(project)
    more = f"environments: {{db: {{kind: sqlite, config: {{path: {path}, mode: rw}}}}}}"
    told = message(run('{id: a, run: "DELETE FROM events", in: db}', more=more))
    assert "belongs to a store of the engine" in told
    assert is_whole()
    with sqlite3.connect(STORE) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone()[0] > 0


@pytest.mark.parametrize("folder", [".config", ".config/flowengine", ".config/flowengine/more"])
def test_no_sandbox_is_given_the_configuration(project: Path, folder: str) -> None:
    with pytest.raises(Refused, match="configuration of the engine"):
        check(project / folder)

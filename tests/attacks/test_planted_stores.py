"""A third-party project that contains a store leading out of the project."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import StoreError
from flowengine.execution_environment import EnvironmentManager
from flowengine.execution_environment.registry.entries import is_signed
from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.processes import this_process
from flowengine.store_folder import claim, environments_of, find_store, known
from tests.command_line import PROGRAM, flowengine

FLOW = """\
flowengine: 1
id: innocent
environments:
  box: {kind: files, scope: session, key: ana}
steps:
  - {id: look, python: "steps:look", environments: [box]}
outputs: {found: "${{ steps.look.output }}"}
"""
STEPS = "def look(box):\n    return sorted(str(path) for path in box.list())\n"
SPEC = {"kind": "files", "scope": "session", "owner_id": "ana"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A freshly unpacked project folder, beside files of the user."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "flow.yaml").write_text(FLOW)
    (folder / "steps.py").write_text(STEPS)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "key").write_text("secret")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for name in ("FLOWENGINE_STORE",):
        monkeypatch.delenv(name, raising=False)
    sys.modules.pop("steps", None)
    return folder


def plant(environments: Path, precious: Path, spec: str, owner_id: str) -> None:
    """Plant a workspace that is a link, and an entry whose cleanup would delete files."""
    owner = hashlib.sha256(owner_id.encode()).hexdigest()[:20]
    above = environments / "workspaces" / "session" / owner
    above.mkdir(parents=True)
    (above / spec).symlink_to(precious)
    (environments / "entries").mkdir()
    dead = this_process()._replace(pid=2**22 - 1)
    entry = {
        "format": 2,
        "id": "evil",
        "kind": "files",
        "provider": "files",
        "manager": "m",
        "owner": list(dead),
        "mark": "evil@1.1.x.y",
        "workspace": str(precious),
        "facts": {"folders": [str(precious)], "lent": [str(precious)]},
        "state": "ready",
        "at": 1.0,
        "resource_key": "evil",
    }
    (environments / "entries" / "evil.json").write_text(json.dumps(entry))


def test_what_a_project_planted_is_neither_shown_to_a_sandbox_nor_believed(
    project: Path, tmp_path: Path
) -> None:
    used = []
    with Engine(tmp_path / "first") as engine:
        engine.environments.subscribe(lambda event: used.append((event.spec_id, event.owner_id)))
        assert engine.run("flow.yaml").status == "succeeded"
    plant(project / ".flowengine" / "environments", tmp_path / "precious", *used[0])

    with Engine() as engine:
        found = engine.run("flow.yaml")
        assert (found.status, found.outputs) == ("succeeded", {"found": []}), found.error
        engine.environments.reap()
        assert "evil" not in str(engine.environments.written())

    assert (tmp_path / "precious" / "key").read_text() == "secret"
    assert not environments_of(".flowengine").startswith(str(project))


def test_a_planted_folder_of_a_manager_is_not_believed(project: Path, tmp_path: Path) -> None:
    with EnvironmentManager(tmp_path / "first") as manager:
        spec = manager.declare(SPEC)["id"]
    plant(project / "data", tmp_path / "precious", spec, "ana")

    with EnvironmentManager("data") as manager:
        handle = manager.ensure(SPEC)
        assert handle.resource.list() == []
        assert handle.workspace is not None
        assert not handle.workspace.is_symlink()
        manager.reap()
        assert [one["resource_key"] for one in manager.written()] in ([], ["files"])
        with pytest.raises(Exception, match="evil"):
            manager.end_written("evil", force=True)

    assert (tmp_path / "precious" / "key").read_text() == "secret"
    assert (project / "data" / "entries" / "evil.json").exists()  # not ours to delete


@pytest.mark.parametrize("part", ["workspaces", "workspaces/session", "entries"])
def test_links_on_the_way_are_refused(project: Path, tmp_path: Path, part: str) -> None:
    link = project / "data" / part
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "precious")

    with EnvironmentManager("data") as manager:
        with pytest.raises(EnvironmentUnavailable, match=rf"{link.name} is a link"):
            manager.ensure({**SPEC, "kind": "bash", "provider": "host"})
        manager.reap()

    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["key"]


def test_a_folder_that_others_can_write_is_refused(project: Path) -> None:
    (project / "data").mkdir()
    (project / "data").chmod(0o777)

    with (
        EnvironmentManager("data") as manager,
        pytest.raises(EnvironmentUnavailable, match="can be written by other users"),
    ):
        manager.ensure({**SPEC, "kind": "bash", "provider": "host"})


def test_an_entry_holds_under_its_own_name_only(project: Path) -> None:
    with EnvironmentManager("data") as manager:
        manager.ensure({**SPEC, "kind": "bash", "provider": "host"})
        [entry] = (project / "data" / "entries").glob("*.json")
        data = json.loads(entry.read_text())

    assert is_signed(entry.name, data)
    assert not is_signed("another.json", data)
    assert not is_signed(entry.name, {**data, "facts": {"folders": ["/"]}})


# The store


def as_made(project: Path) -> None:
    """A store created by another user."""
    store = project / ".flowengine"
    assert flowengine("run", "flow.yaml").code == 0
    stolen = (store / "id").read_text().strip()
    (store / "id").write_text(stolen[::-1])


def without_id(project: Path) -> None:
    assert flowengine("run", "flow.yaml").code == 0
    (project / ".flowengine" / "id").unlink()


def as_link(project: Path) -> None:
    (project / ".flowengine").symlink_to(project.parent / "precious")


def with_link(project: Path) -> None:
    assert flowengine("run", "flow.yaml").code == 0
    (project / ".flowengine" / "artifacts").symlink_to(project.parent / "precious")


def open_to_all(project: Path) -> None:
    assert flowengine("run", "flow.yaml").code == 0
    (project / ".flowengine").chmod(0o777)


def elsewhere(project: Path) -> None:
    """A store with the ID of the user's store at another path. An attacker may know both."""
    other = project.parent / "other"
    claim(other, by_name=True)
    (project / ".flowengine").mkdir()
    (project / ".flowengine" / "id").write_text((other / "id").read_text())
    (project / ".flowengine" / "flowengine.db").write_bytes(b"")


@pytest.mark.parametrize(
    "planted", [as_made, without_id, as_link, with_link, open_to_all, elsewhere]
)
def test_a_store_that_is_not_ours_is_refused(
    project: Path, planted: Callable[[Path], None]
) -> None:
    planted(project)

    done = flowengine("run", "flow.yaml")

    assert done.code == 10, done.err
    assert f"{project}/.flowengine was not used: " in done.err
    assert "--store" in done.err
    assert "Traceback" not in done.err
    with pytest.raises(StoreError):
        Engine()
    with pytest.raises(StoreError):
        EnvironmentManager()
    assert [path.name for path in (project.parent / "precious").iterdir()] == ["key"]


def test_naming_a_store_once_makes_it_ours(project: Path) -> None:
    assert flowengine("run", "flow.yaml").code == 0
    moved = project.rename(project.parent / "moved")
    os.chdir(moved)
    assert flowengine("list").code == 10

    assert flowengine("--store", ".flowengine", "list").code == 0

    assert len(flowengine("list").out.splitlines()) == 2


def test_a_folder_without_a_store_is_taken(project: Path) -> None:
    assert flowengine("init").code == 0
    (project / ".flowengine").chmod(0o775)  # the mode that some systems give to new folders

    assert flowengine("run", "flow.yaml").code == 0

    assert (project / ".flowengine").stat().st_mode & 0o777 == 0o700
    assert known(str(project / ".flowengine")) is not None


@pytest.mark.endurance
def test_stores_that_are_made_at_once_are_one(project: Path) -> None:
    runs = [
        subprocess.Popen(
            [PROGRAM, "run", "flow.yaml"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for _ in range(4)
    ]
    said = [run.communicate()[0].decode() for run in runs]

    assert [run.returncode for run in runs] == [0] * 4, said
    assert len(flowengine("list").out.splitlines()) == 5


def test_where_nothing_can_be_kept_only_a_named_store_is_used(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "file" / "state"))
    monkeypatch.setattr("flowengine.execution_environment.registry.entries._keys", {})

    refused = flowengine("run", "flow.yaml")

    assert refused.code == 10
    assert "XDG_STATE_HOME" in refused.err
    assert flowengine("check", "flow.yaml").code == 0
    (project / "plain.yaml").write_text(
        "flowengine: 1\nid: plain\nsteps: [{id: a, output: 1}]\noutputs: {a: 1}\n"
    )
    assert flowengine("--store", "here", "run", "plain.yaml").code == 0
    assert find_store() == (str(project / ".flowengine"), False)


def test_no_sandbox_sees_the_store(project: Path, tmp_path: Path) -> None:
    mounted: dict[str, Any] = {"kind": "files", "config": {"path": ".", "mode": "rw"}}
    with Engine() as engine:
        manager = engine.environments
        for path in (".", ".flowengine", str(tmp_path)):
            files = manager.declare(
                {**mounted, "resource_key": path, "config": {"path": path, "mode": "rw"}}
            )
            with pytest.raises(
                Exception, match=r"it contains the state of the engine|belongs to the engine"
            ):
                manager.ensure(
                    {
                        "kind": "bash",
                        "mounts": {"/project": files["id"]},
                        "scope": "session",
                        "owner_id": path,
                    }
                )

"""Folders of `files` environments, seen in sandboxes (E111)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentUnavailable, Refused
from flowengine.sdk.environments import Program
from flowengine_envs.bash import BashProvider
from flowengine_envs.sandboxes.namespace import Namespace
from flowengine_envs.sandboxes.processes import has
from tests.envs.containers import skip_without_docker
from tests.envs.opening import open_resource

OWNER = {"scope": "session", "owner_id": "s"}
BOXES = {
    "namespace": {"kind": "bash", "provider": "namespace"},
    "container": {"kind": "bash", "provider": "docker"},
    "containers": {"kind": "docker"},
}


@pytest.fixture(params=BOXES)
def box(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "namespace" and not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    if request.param != "namespace":
        skip_without_docker()
    return {**OWNER, **BOXES[request.param], "resource_key": "box"}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[EnvironmentManager]:
    with EnvironmentManager(tmp_path / "data") as made:
        yield made


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = tmp_path / "original"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    return folder


def declared(manager: EnvironmentManager, **config: Any) -> str:
    id: str = manager.declare({**OWNER, "kind": "files", "resource_key": "repo", "config": config})[
        "id"
    ]
    return id


def sh(resource: Any, command: str) -> Any:
    return resource.run(["sh", "-c", command])


def test_a_copy_is_changed_inside_and_the_original_when_it_is_written_back(
    manager: EnvironmentManager, original: Path, box: dict[str, Any]
) -> None:
    repo = declared(manager, path=str(original))
    handle = manager.ensure({**box, "mounts": {"/src": repo}})
    assert handle.image.startswith("sha256:") == (handle.isolation == "container")
    inside = handle.resource
    folder = manager.ensure(repo).resource

    assert sh(inside, "cat /src/a.txt").stdout == "a"
    folder.write("from_outside.txt", "written through it")
    assert sh(inside, "cat /src/from_outside.txt").stdout == "written through it"
    assert sh(inside, "echo b > /src/a.txt; mkdir /src/new; echo c > /src/new/c.txt").exit_code == 0
    assert folder.read("new/c.txt") == b"c\n"
    assert sorted(os.listdir(original)) == ["a.txt"]
    assert (original / "a.txt").read_text() == "a"

    changes = folder.write_back()

    assert (changes.added, changes.changed) == (["from_outside.txt", "new/c.txt"], ["a.txt"])
    assert (original / "a.txt").read_text() == "b\n"
    for each in (original, *original.rglob("*")):
        assert each.lstat().st_uid == os.getuid()


@pytest.mark.wherever("narrowed")  # both come to a sandbox as the same word
@pytest.mark.parametrize("narrowed", [{"config": {"mode": "ro"}}, {"policy": {"writable": []}}])
def test_a_folder_that_is_only_read_is_only_read_inside(
    manager: EnvironmentManager, original: Path, box: dict[str, Any], narrowed: dict[str, Any]
) -> None:
    config = {"path": str(original), **narrowed.get("config", {})}
    policy = narrowed.get("policy", {})
    spec = {**OWNER, "kind": "files", "resource_key": "repo", "config": config, "policy": policy}
    repo = manager.declare(spec)["id"]
    inside = manager.ensure({**box, "mounts": {"/src": repo}}).resource

    tries = ("cat /src/a.txt", "(echo b > /src/a.txt)", "touch /src/new", "rm /src/a.txt")
    assert sh(inside, "; ".join(f"{each} || echo no" for each in tries)).stdout == "ano\nno\nno\n"
    assert (original / "a.txt").read_text() == "a"


@pytest.mark.parametrize("place", ["/", "~", "socket", "state"])
def test_what_must_not_be_seen_is_refused_before_the_daemon_is_asked(
    manager: EnvironmentManager,
    tmp_path: Path,
    place: str,
    box: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the folder itself, not of a copy; a namespace is held to the same."""
    paths = {"socket": "/var/run", "state": str(tmp_path / "data")}
    path = paths.get(place, os.path.expanduser(place))
    (tmp_path / "data").mkdir()
    repo = declared(manager, path=path, mode="rw")
    manager.ensure(repo)
    asked: list[str] = []
    monkeypatch.setattr("docker.api.client.APIClient.post", lambda *a, **k: asked.append("post"))
    monkeypatch.setattr("docker.api.client.APIClient._post", lambda *a, **k: asked.append("post"))

    with pytest.raises(Refused, match=r"box.*is not mounted into a sandbox"):
        manager.ensure({**box, "mounts": {"/src": repo}})
    assert asked == []


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that a sandbox may write, beside what it may not see, in a home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("project/docs", "project/own", "secret", ".aws"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "key").write_text(name)
    return tmp_path / "project"


@pytest.mark.parametrize(("mode", "target"), [("copy", "/etc"), ("rw", "../../secret")])
def test_a_planted_link_opens_no_other_folder(
    manager: EnvironmentManager, project: Path, mode: str, target: str
) -> None:
    (project / "docs" / "key").unlink()
    (project / "docs").rmdir()
    (project / "docs").symlink_to(os.path.normpath(project / "docs" / target))
    folder = {"kind": "files", **OWNER, "folder": str(project)}

    with pytest.raises(
        EnvironmentUnavailable, match=r"leads out of it.*name the path that it leads to"
    ):
        manager.ensure({**folder, "config": {"path": "docs", "mode": mode}})


def test_links_that_stay_below_and_paths_that_are_named_are_followed(
    manager: EnvironmentManager, project: Path
) -> None:
    (project / "link").symlink_to("own")
    (project / "out").symlink_to("../secret")
    (project / "hidden").symlink_to("../.aws")

    def read(path: str, folder: Path = project) -> bytes:
        config = {"path": path, "mode": "ro"}
        spec = {"kind": "files", **OWNER, "resource_key": path, "config": config}
        content: bytes = manager.ensure({**spec, "folder": str(folder)}).resource.read("key")
        return content

    assert read("link") == b"project/own"
    assert read("../secret") == b"secret"
    assert read(str(project / "out")) == b"secret"
    assert read(str(project.parent / ".aws")) == read("../.aws") == b".aws"
    for path, folder in ((str(project / "hidden"), project), ("project/hidden", project.parent)):
        with pytest.raises(
            EnvironmentUnavailable, match=r"hidden folder of the home folder; name its path"
        ):
            read(path, folder)


def test_a_folder_that_became_a_link_after_it_was_opened_is_not_mounted(
    manager: EnvironmentManager, project: Path, box: dict[str, Any]
) -> None:
    spec = {"kind": "files", **OWNER, "resource_key": "repo", "folder": str(project)}
    repo = manager.ensure({**spec, "config": {"path": "docs", "mode": "rw"}})
    (project / "docs").rename(project / "moved")
    (project / "docs").symlink_to("../secret")

    with pytest.raises(Refused, match=r"docs is not mounted at /src: since it was opened"):
        manager.ensure({**box, "mounts": {"/src": repo.id}})


@pytest.mark.skipif(not has("bwrap"), reason="no bubblewrap: apt-get install bubblewrap")
def test_a_folder_that_is_swapped_while_the_sandbox_starts_is_seen_by_no_program(
    project: Path, tmp_path: Path
) -> None:
    class Raced(Namespace):
        async def start_supervisor(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Program:
            (project / "docs").rename(project / "moved")
            (project / "docs").symlink_to("../secret")
            return await super().start_supervisor(argv, env=env)

    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(Refused, match=r"docs is not mounted at /src: since it was opened"):
        open_resource(BashProvider(), Raced, work, mounts={"/src": project / "docs"})


def test_the_host_shows_no_folder_elsewhere(manager: EnvironmentManager, original: Path) -> None:
    repo = declared(manager, path=str(original))
    spec = {**OWNER, "kind": "bash", "provider": "host", "mounts": {"/src": repo}}

    with pytest.raises(EnvironmentUnavailable, match=r"'host' cannot show a folder at /src"):
        manager.ensure(spec)

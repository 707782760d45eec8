"""Folders of `files` environments, mounted into sandboxes (E111)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentUnavailable, Refused
from flowengine.sdk.environments import Program
from flowengine_envs.kinds.bash import BashProvider
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


# Shows E111b
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


@pytest.mark.wherever("narrowed")  # both are the same setting to a sandbox
@pytest.mark.parametrize("narrowed", [{"config": {"mode": "ro"}}, {"policy": {"writable": []}}])
# Shows E111b
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
# Shows E66
def test_what_must_not_be_seen_is_refused_before_the_daemon_is_asked(
    manager: EnvironmentManager,
    tmp_path: Path,
    place: str,
    box: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For the folder itself, not a copy. A namespace enforces the same."""
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
    """A home folder with a project that a sandbox may write, and folders that it must not see."""
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
        EnvironmentUnavailable,
        match=r"'docs' leads out of '.*' through the link 'docs' to '/.*': name the path that",
    ):
        manager.ensure({**folder, "config": {"path": "docs", "mode": mode}})


def test_links_that_stay_below_and_paths_that_are_named_are_followed(
    manager: EnvironmentManager, project: Path
) -> None:
    (project / "link").symlink_to("own")
    (project / "out").symlink_to("../secret")
    (project / "hidden").symlink_to("../.aws")
    (project.parent / "linked").symlink_to("project/../secret")
    (project.parent / "loop").symlink_to("loop")
    (project.parent / "both").symlink_to("project/out")

    def read(path: str, folder: Path = project) -> bytes:
        config = {"path": path, "mode": "ro"}
        spec = {"kind": "files", **OWNER, "resource_key": path, "config": config}
        content: bytes = manager.ensure({**spec, "folder": str(folder)}).resource.read("key")
        return content

    assert read("link") == b"project/own"
    assert read("../secret") == b"secret"
    assert read(str(project.parent / "linked")) == b"secret"  # no sandbox sees a home directory
    for name in ("project/out", "both", "project/hidden"):
        with pytest.raises(EnvironmentUnavailable, match=r"through the link /.*: name the path"):
            read(str(project.parent / name))
    with pytest.raises(EnvironmentUnavailable):
        read(str(project.parent / "loop"))
    assert read(str(project.parent / ".aws")) == read("../.aws") == b".aws"
    with pytest.raises(
        EnvironmentUnavailable, match=r"hidden directory of the home directory: name its path"
    ):
        read("project/hidden", project.parent)


def test_a_folder_that_became_a_link_after_it_was_opened_is_not_mounted(
    manager: EnvironmentManager, project: Path, box: dict[str, Any]
) -> None:
    spec = {"kind": "files", **OWNER, "resource_key": "repo", "folder": str(project)}
    repo = manager.ensure({**spec, "config": {"path": "docs", "mode": "rw"}})
    (project / "docs").rename(project / "moved")
    (project / "docs").symlink_to("../secret")

    with pytest.raises(Refused, match=r"/src is not the opened directory"):
        manager.ensure({**box, "mounts": {"/src": repo.id}})


def given_to_programs(folder: Path, box: dict[str, Any]) -> None:
    """Make a folder writable for containers in which root does not run programs as root."""
    if os.getuid() == 0 and box.get("provider") != "namespace":
        for each in (folder, *folder.rglob("*")):
            os.chown(each, 1000, 1000, follow_symlinks=False)


def owners(folder: Path) -> dict[str, tuple[int, int]]:
    found = {str(each): each.lstat() for each in (folder, *folder.rglob("*"))}
    return {path: (info.st_uid, info.st_gid) for path, info in found.items()}


def test_what_the_owners_programs_obey_stays_as_it_is_in_a_writable_folder(
    manager: EnvironmentManager,
    project: Path,
    box: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)

    git("init", "-q", ".")
    git("init", "-q", "--bare", "docs/vendored")
    obeyed = (".envrc", ".vscode/tasks.json", "docs/.mcp.json", "docs/.claude/settings.json")
    for path in obeyed:
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text("mine")
    (project / ".git/hooks/pre-commit").write_text("mine")
    given_to_programs(project, box)
    settings = (".git/config", "docs/vendored/config", ".git/hooks/pre-commit")
    before = {path: (project / path).read_bytes() for path in (*obeyed, *settings)}
    repo = declared(manager, path=str(project), mode="rw")
    handle = manager.ensure({**box, "mounts": {"/src": repo}})
    attacks = [f"(echo theirs >> {path})" for path in before] + [
        "touch .git/hooks/post-checkout",
        "mv .git old",
        "mv docs/vendored old",
        "rm -r .vscode",
        "mv .vscode old",
        "rm .envrc",
    ]

    tried = sh(
        handle.resource, "cd /src; " + "; ".join(f"{each} && echo {each!r}" for each in attacks)
    )
    works = "cd /src; echo new > made && echo changed > own/key && echo ref > .git/refs/heads/new"
    sh(handle.resource, "echo ../own > /src/.git/commondir")
    worked = sh(handle.resource, f"{works} && mkdir -p .idea docs/.git/objects && echo done")
    manager.release_scope("session", "s")

    assert tried.stdout == ""
    assert worked.stdout == "done\n", worked
    assert {path: (project / path).read_bytes() for path in before} == before
    assert not (project / ".git/hooks/post-checkout").exists()
    assert (project / "own" / "key").read_text() == "changed\n"
    messages = [each.message for each in caplog.records if "have made files" in each.message]
    warning = "\n".join(messages)  # the kind docker has a container for each command
    assert f"{project}/.idea" in warning
    assert f"{project}/docs/.git" in warning
    assert ".vscode" not in warning
    assert ".git/commondir (removed)" in warning
    assert not (project / ".git/commondir").exists()


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_stores_of_other_projects_are_hidden(
    manager: EnvironmentManager, box: dict[str, Any], original: Path, mode: str
) -> None:
    """Whatever their names and paths. The store of this process is not in the folder."""
    original.chmod(0o777)
    for store in ("one/.flowengine", "two/kept"):
        with Engine(original / store) as engine:
            engine.executions.prune(older_than="1d")
        (original / store).parent.chmod(0o777)
    os.link(original / "one/.flowengine/flowengine.db", original / "hard")
    files = declared(manager, path=str(original), mode=mode)
    resource = manager.ensure({**box, "mounts": {"/repo": files}}).resource
    before = {path: path.read_bytes() for path in original.rglob("*") if path.is_file()}

    found = sh(resource, "cd /repo; find . | sort; cat hard one/.flowengine/* two/kept/* | wc -c")
    sh(resource, "cd /repo; for f in hard one/.flowengine/x two/kept/x; do echo gone > $f; done")
    sh(resource, "cd /repo; rm -rf one two hard; mv two/kept two/other")

    seen = (".", "./a.txt", "./hard", "./one", "./one/.flowengine", "./two", "./two/kept", "0")
    assert found.stdout.split() == [*seen], found
    assert before == {path: path.read_bytes() for path in original.rglob("*") if path.is_file()}


def test_a_store_is_not_mounted(
    manager: EnvironmentManager, box: dict[str, Any], original: Path
) -> None:
    with Engine(original / "kept"):
        pass
    files = declared(manager, path=str(original / "kept"), mode="ro")

    with pytest.raises(Refused, match="belongs to a store of the engine"):
        manager.ensure({**box, "mounts": {"/repo": files}})


def test_containers_take_no_file_of_a_user(
    manager: EnvironmentManager, project: Path, box: dict[str, Any]
) -> None:
    given_to_programs(project, box)
    if os.getuid() == 0:
        os.chown(project / "own", 0, 0)
        os.chown(project / "own" / "key", 1000, 1000)
    before = owners(project)
    repo = declared(manager, path=str(project), mode="rw")
    inside = manager.ensure({**box, "mounts": {"/src": repo}}).resource

    made = sh(inside, "echo changed > /src/docs/key && echo done")
    manager.release_scope("session", "s")

    assert made.stdout == "done\n", made
    assert owners(project) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root's containers run as another user")
def test_a_folder_that_containers_of_root_cannot_write_is_refused(
    manager: EnvironmentManager, project: Path
) -> None:
    skip_without_docker()
    repo = declared(manager, path=str(project), mode="rw")
    spec = {**OWNER, "kind": "bash", "provider": "docker", "mounts": {"/src": repo}}

    with pytest.raises(EnvironmentUnavailable, match=r"run as user 1000, who cannot write"):
        manager.ensure(spec)


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
    with pytest.raises(Refused, match=r"/src is not the opened directory"):
        open_resource(BashProvider(), Raced, work, mounts={"/src": project / "docs"})


def test_the_host_shows_no_folder_elsewhere(manager: EnvironmentManager, original: Path) -> None:
    repo = declared(manager, path=str(original))
    spec = {**OWNER, "kind": "bash", "provider": "host", "mounts": {"/src": repo}}

    with pytest.raises(EnvironmentUnavailable, match=r"'host' cannot show a directory at /src"):
        manager.ensure(spec)

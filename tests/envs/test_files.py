# Shows E111
"""Folders: copies, writing back, and confinement to the folder (E111, S42-S43)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import (
    EnvironmentStartFailed,
    EnvironmentUnavailable,
    LimitExceeded,
    NotAFile,
    PathEscape,
    Refused,
    ToolError,
)
from flowengine.util.files import remove_tree
from flowengine_envs.kinds.files import Folder, FolderChanges
from tests.deep_folders import make_deep

Open = Callable[..., Folder]


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = tmp_path / "original"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "b.txt").write_text("b")
    (folder / "deep" / "c.sh").write_text("c")
    (folder / "deep" / "c.sh").chmod(0o755)
    return folder


@pytest.fixture
def opened(manager: EnvironmentManager, tmp_path: Path) -> Open:
    """Opens a folder through the manager. `limits` are its limits, other keywords its `config`."""

    def opened(
        limits: dict[str, Any] | None = None, policy: dict[str, Any] | None = None, **config: Any
    ) -> Folder:
        spec = {
            "kind": "files",
            "scope": "session",
            "folder": str(tmp_path),
            "config": config,
            "limits": limits or {},
            "policy": policy or {},
        }
        folder: Folder = manager.ensure(spec).resource
        return folder

    return opened


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_folder_of_its_own_is_empty_and_goes_with_its_scope(
    opened: Open, manager: EnvironmentManager
) -> None:
    folder = opened()
    folder.write("deep/er/a.bin", bytes(range(256)))
    folder.write("text.txt", "Grüße")

    assert folder.list() == ["deep/er/a.bin", "text.txt"]
    assert folder.list("*.txt") == ["text.txt"]
    assert folder.read("deep/er/a.bin") == bytes(range(256))
    assert (folder.path / "text.txt").read_text() == "Grüße"
    assert folder.changes() == folder.write_back() == FolderChanges([], [], [])

    manager.release_scope("session")
    assert not folder.path.exists()


def test_the_original_is_unchanged_until_a_step_writes_back(opened: Open, original: Path) -> None:
    before = everything(original)
    folder = opened(path="original")
    folder.write("a.txt", "other")
    folder.write("new/n.txt", "n")
    (folder.path / "b.txt").unlink()

    assert everything(original) == before
    assert folder.changes() == FolderChanges(["new/n.txt"], ["a.txt"], ["b.txt"])
    assert folder.write_back() == FolderChanges(["new/n.txt"], ["a.txt"], ["b.txt"])
    assert everything(original) == everything(folder.path)
    assert everything(original)["a.txt"] == b"other"
    assert folder.changes() == FolderChanges([], [], [])


def test_git_does_not_obey_who_changed_the_copy(
    opened: Open, original: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def git(folder: Path, *words: str) -> str:
        named = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        return subprocess.run(named, cwd=folder, check=True, capture_output=True, text=True).stdout

    git(original, "init", "-q", ".")
    git(original, "add", "-A")
    git(original, "commit", "-qm", "one")
    hook = original / ".git" / "hooks" / "post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    folder = opened(path="original")
    ran = tmp_path / "ran"
    (folder.path / ".git/hooks/post-commit").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (folder.path / ".git/hooks/pre-commit").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (folder.path / ".git/hooks/pre-commit").chmod(0o755)
    with (folder.path / ".git/config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = touch {ran}\n[alias]\n\tst = !touch {ran}\n")
    (folder.path / "sub").mkdir()
    (folder.path / "sub" / ".git").write_text("gitdir: ../elsewhere\n")
    (folder.path / "sub" / ".GIT").mkdir()
    (folder.path / "sub" / ".GIT" / "config").write_text("[core]\n")
    folder.write("a.txt", "two")
    safely = ("-c", "core.fsmonitor=", "-c", "core.hooksPath=/nowhere")
    git(folder.path, *safely, "commit", "-qm", "two", "a.txt")

    told = folder.write_back()

    assert set(told.left_out) == {
        *(".git/config", ".git/hooks/post-commit", ".git/hooks/pre-commit"),
        *("sub/.git", "sub/.GIT/config"),
    }
    assert "a.txt" in told.changed
    assert "they name programs to run" in caplog.text
    # The history was copied, and Git runs only the owner's programs.
    assert git(original, "log", "--format=%s") == "two\none\n"
    assert git(original, "status", "--porcelain") == ""
    git(original, "commit", "-q", "--allow-empty", "-m", "three")
    assert not ran.exists()
    (folder.path / ".git" / "config").unlink()
    assert folder.write_back().left_out[0] == ".git/config"
    assert (original / ".git" / "config").exists()


def test_a_folder_that_becomes_one_of_git_is_not_written_back(
    opened: Open, original: Path, tmp_path: Path
) -> None:
    """Git recognizes repositories by their content, not by their name."""
    ran = tmp_path / "ran"
    bare = ["git", "init", "-q", "--bare", str(original / "kept")]
    subprocess.run(bare, check=True)
    (original / "half" / "objects").mkdir(parents=True)
    (original / "half" / "refs").mkdir()
    folder = opened(path="original")
    obey = f"[core]\n\tfsmonitor = touch {ran}\n\tbare = false\n\tworktree = .\n"
    for name in ("vendor", "half"):
        for path in ("HEAD", "config", "objects/x", "refs/x", "src.c"):
            folder.write(f"{name}/{path}", {"HEAD": "ref: refs/heads/x\n"}.get(path, obey))
    folder.write("shared/HEAD", "ref: refs/heads/x\n")
    folder.write("shared/commondir", "../kept\n")
    folder.write("kept/config", obey)
    folder.write("kept/refs/heads/new", "0" * 40)
    folder.write("deep/.envrc", f"touch {ran}")

    told = folder.write_back()

    assert told.added == ["kept/refs/heads/new"]
    assert told.changed == []
    assert {path.partition("/")[0] for path in told.left_out} == {
        *("vendor", "half", "shared", "kept", "deep")
    }
    for name in ("half", "kept"):
        subprocess.run(["git", "status"], check=False, cwd=original / name, capture_output=True)
    assert not ran.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="others cannot give files away")
def test_root_takes_no_file_of_a_user_by_writing_back(opened: Open, original: Path) -> None:
    os.chown(original / "a.txt", 1000, 1000)
    folder = opened(path="original")
    folder.write("a.txt", "changed")

    folder.write_back()

    assert (original / "a.txt").read_text() == "changed"
    assert (original / "a.txt").stat().st_uid == 1000


def test_a_copy_is_there_again_after_a_wait(
    manager: EnvironmentManager, opened: Open, original: Path
) -> None:
    opened(path="original").write("a.txt", "in the middle of the work")
    manager.suspend_scope("session")
    (original / "a.txt").write_text("meanwhile")

    assert opened(path="original").read("a.txt") == b"in the middle of the work"


@pytest.mark.parametrize("asked", [{"mode": "ro"}, {"mode": "rw", "policy": {"writable": []}}])
def test_a_read_only_folder_is_read(opened: Open, original: Path, asked: Any) -> None:
    folder = opened(path="original", **asked)

    assert folder.read("a.txt") == b"a"
    for write in (lambda: folder.write("a.txt", "x"), folder.write_back):
        with pytest.raises(Refused, match="read-only"):
            write()
    assert (original / "a.txt").read_text() == "a"


@pytest.mark.parametrize(
    "path",
    ["../original/a.txt", "/etc/passwd", "deep/../../original/a.txt", "out", "out/passwd", "loop"],
)
def test_no_path_leads_out(opened: Open, original: Path, path: str) -> None:
    folder = opened(path="original")
    (folder.path / "out").symlink_to("/etc")
    (folder.path / "loop").symlink_to("loop")

    for use in (lambda: folder.read(path), lambda: folder.write(path, "x")):
        with pytest.raises((PathEscape, ToolError)):
            use()
    assert (original / "a.txt").read_text() == "a"


def test_what_is_no_file_is_not_waited_for(opened: Open) -> None:
    folder = opened()
    os.mkfifo(folder.path / "pipe")
    (folder.path / "deep").mkdir()

    for path in ("pipe", "deep"):
        with pytest.raises(NotAFile):
            folder.read(path)
        with pytest.raises(NotAFile):
            folder.write(path, "x")


def test_links_are_copied_as_links_and_never_brought_back_as_files(
    opened: Open, original: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("SEKRET")
    (original / "link").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(original / "pipe")
    folder = opened(path="original")

    with pytest.raises(PathEscape):
        folder.read("link")
    (folder.path / "other").symlink_to(tmp_path / "secret.txt")
    folder.write_back()
    assert not (original / "other").exists()
    assert (original / "link").is_symlink()


def test_write_back_follows_no_link_out_of_the_original(
    opened: Open, original: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = opened(path="original")
    folder.write("trap/x.txt", "x")
    (original / "trap").symlink_to(outside)

    with pytest.raises(PathEscape):
        folder.write_back()
    assert not list(outside.iterdir())


def test_folders_deeper_than_recursion_are_errors_of_their_own(
    opened: Open, original: Path
) -> None:
    folder = opened(path="original")
    os.close(make_deep(folder.path))
    with pytest.raises(LimitExceeded, match="more than 500 deep"):
        folder.write_back()
    remove_tree(folder.path / "d")
    assert folder.changes() == FolderChanges([], [], [])

    os.close(make_deep(original))
    with pytest.raises(EnvironmentStartFailed, match="too deep"):
        opened(path="original", limits={"disk": "1GiB"})
    remove_tree(original / "d")


def test_a_folder_that_is_too_large_is_not_copied(
    opened: Open, original: Path, manager: EnvironmentManager, tmp_path: Path
) -> None:
    (original / "large").write_bytes(bytes(200_000))

    with pytest.raises(Exception, match=r"limits\.disk"):
        opened(path="original", limits={"disk": "100kB"})
    assert not list((tmp_path / "environments").rglob("large"))


@pytest.mark.parametrize(
    "asked", [{"path": "missing"}, {"policy": {"writable": ["deep"]}, "path": "original"}]
)
def test_what_cannot_be_had_is_said_before_anything_starts(
    opened: Open, original: Path, asked: Any
) -> None:
    with pytest.raises(EnvironmentUnavailable, match=r"no directory missing|as a whole"):
        opened(**asked)

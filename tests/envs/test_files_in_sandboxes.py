# Shows S42, S86
"""Files go in and out byte for byte, below the workspace and nowhere else."""

from __future__ import annotations

import errno
import filecmp
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from flowengine.sdk import LimitExceeded, NotAFile, PathEscape
from flowengine.sdk.environments import background
from flowengine_envs.kinds.bash import Bash
from flowengine_envs.workspaces import files

NAMES = [
    "plain.txt",
    "with space",
    "quo\"te's",
    "new\nline",
    "$(touch pwned)",
    "`id`",
    "-rf",
    "naïve-日本.txt",
    "back\\slash",
    "trailing ",
    "*",
    "~",
    "a" * 255,
    "\udcff\udcfe",
]


@pytest.mark.wherever
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_any_name_is_a_name(bash: Bash, name: str) -> None:
    bash.put(f"names/{name}", b"content")

    assert bash.get(f"names/{name}") == b"content"
    assert [entry.path for entry in bash.list("names")] == [f"names/{name}"]
    bash.remove(f"names/{name}")
    assert bash.list("names") == []


@pytest.mark.wherever
def test_a_file_is_refused_before_it_is_read_if_it_is_longer_than_the_caller_takes(
    bash: Bash, tmp_path: Path
) -> None:
    bash.put("small", b"12345")
    bash.run("truncate -s 2G sparse")
    taken: list[int] = []

    async def read(path: str, largest: int) -> None:
        await bash.read_file(path, lambda piece: taken.append(len(piece)), largest)

    with pytest.raises(LimitExceeded, match="'sparse': it has 2 GiB, of at most 10 bytes"):
        background().run(read("sparse", 10))
    with pytest.raises(LimitExceeded, match="of at most 256 MiB"):
        bash.get("sparse")
    with pytest.raises(LimitExceeded, match="of at most 1 GiB"):
        bash.fetch("sparse", tmp_path / "copy")
    assert taken == []
    assert not (tmp_path / "copy").exists()
    assert bash.get("small", 5) == b"12345"
    with pytest.raises(LimitExceeded):
        bash.get("small", 4)
    bash.remove("sparse")


@pytest.mark.wherever
def test_a_reader_that_fails_ends_its_own_reading_only(bash: Bash) -> None:
    bash.put("much", bytes(3_000_000))

    def fail(piece: bytes) -> None:
        raise OSError(errno.ENOSPC, "the host's disk is full")

    async def read() -> None:
        await bash.read_file("much", fail, 3_000_000)

    with pytest.raises(OSError, match="the host's disk is full"):
        background().run(read())
    assert bash.get("much") == bytes(3_000_000)


def test_a_file_that_grows_while_it_is_read_is_not_read_on(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"12345")
    reading = files.Workspace(str(tmp_path)).read("log", 6)

    first = reading.piece(3)
    with (tmp_path / "log").open("ab") as log:
        log.write(b"67890")
    with pytest.raises(files.PathRefused, match="it has 10 bytes, of at most 6 bytes") as refused:
        reading.piece(100)
    reading.close()

    assert first == b"123"
    assert refused.value.kind == "too_large"


@pytest.mark.wherever
@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 3_000_000])
def test_any_size_arrives_whole(bash: Bash, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(data)

    bash.put("sized", data)
    assert bash.get("sized") == data
    bash.put("from file", source)
    bash.fetch("from file", copy)

    assert copy.read_bytes() == data


@pytest.mark.endurance
@pytest.mark.wherever
def test_a_file_larger_than_any_frame_goes_from_folder_to_folder(
    bash: Bash, tmp_path: Path
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(os.urandom(1_000_000) * 100)

    bash.put("large", source)
    bash.fetch("large", copy)
    bash.remove("large")

    assert filecmp.cmp(source, copy, shallow=False)


def test_no_process_of_the_host_is_given_a_name(bash: Bash, tmp_path: Path) -> None:
    """File names travel in frames, so they do not appear in process listings."""
    begun: list[str] = []
    watching = True

    def heard(event: str, given: tuple[object, ...]) -> None:
        if watching and event in {"subprocess.Popen", "os.posix_spawn", "os.exec", "os.system"}:
            begun.append(repr(given))

    sys.addaudithook(heard)  # remains for the rest of the process: audit hooks cannot be removed
    try:
        bash.put("named secretly", b"x")
        bash.get("named secretly")
        bash.fetch("named secretly", tmp_path / "copy")
        bash.list()
        bash.remove("named secretly")
        assert not [each for each in begun if "secretly" in each]
        subprocess.run(["true", "secretly"], check=True)
        assert len([each for each in begun if "secretly" in each]) == 1
    finally:
        watching = False


@pytest.mark.wherever
def test_every_byte_and_the_mode_are_kept(bash: Bash, tmp_path: Path) -> None:
    data = bytes(range(256))

    bash.put("run.sh", data, mode=0o755)
    bash.fetch("run.sh", tmp_path / "copy")

    assert bash.get("run.sh") == data
    assert os.stat(tmp_path / "copy").st_mode & 0o777 == 0o755
    assert bash.run("stat -c %a run.sh").stdout == "755\n"


def test_what_is_made_inside_belongs_to_the_caller(bash: Bash) -> None:
    bash.run("mkdir -p mine && echo inside > mine/a.txt")

    for path in ("mine", "mine/a.txt"):
        owner = os.stat(bash.workspace / path)
        assert (owner.st_uid, owner.st_gid) == (os.getuid(), os.getgid())


def test_paths_are_translated_by_their_parts(bash: Bash) -> None:
    inside = bash.sandbox.workdir

    assert bash.sandbox.inside(bash.workspace / "a" / "b") == f"{inside}/a/b"
    assert bash.sandbox.outside(f"{inside}/a") == bash.workspace / "a"
    assert bash.sandbox.outside("a") == bash.workspace / "a"
    for path in (f"{inside}2/x", f"/x{inside}/a", "../a"):
        with pytest.raises(PathEscape):
            bash.sandbox.outside(path)
    with pytest.raises(PathEscape):
        bash.sandbox.inside(f"{bash.workspace}2/x")
    bash.put(f"{inside}/absolute", b"1")
    assert bash.get("absolute") == b"1"


ESCAPES = ["../x", "a/../../x", "/etc/hostname", "/proc/self/root/etc/hostname", "nul\0l"]


@pytest.mark.parametrize("path", ESCAPES)
def test_a_path_that_leads_out_is_refused_with_its_name(bash: Bash, path: str) -> None:
    for attempt in (
        lambda: bash.get(path),
        lambda: bash.put(path, b"x"),
        lambda: bash.list(path),
        lambda: bash.remove(path),
    ):
        with pytest.raises(PathEscape) as error:
            attempt()
        assert repr(path) in str(error.value)


@pytest.mark.wherever
def test_a_folder_of_like_name_is_no_part_of_it(bash: Bash) -> None:
    with pytest.raises(PathEscape):
        bash.get(f"{bash.sandbox.workdir}2/x")


def test_links_that_lead_out_are_refused_and_those_that_stay_work(
    bash: Bash, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    bash.run("mkdir -p links && echo 1 > links/file")
    bash.run(
        f"cd links && ln -sfn {outside} out && ln -sfn {tmp_path} folder && ln -sfn ../../.. up"
        " && ln -sfn file stays && ln -sfn /proc/self/root/etc/hostname magic"
    )

    for path in ("links/out", "links/folder/outside", "links/up/etc/hostname", "links/magic"):
        with pytest.raises(PathEscape):
            bash.get(path)
        with pytest.raises(PathEscape):
            bash.put(path, b"changed")
    assert bash.get("links/stays") == b"1\n"
    assert outside.read_text() == "secret"
    assert {entry.kind for entry in bash.list("links")} == {"file", "link"}


def test_links_that_go_up_are_followed_while_files_are_renamed(tmp_path: Path) -> None:
    """The kernel rejects '..' if any file on the machine was renamed at that moment."""
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    (root / "file").write_text("here")
    (root / "deep" / "up").symlink_to("../deep/../deep/../file")
    rename = "import os\nopen('a', 'w')\nwhile True: os.rename('a', 'b'); os.rename('b', 'a')"
    with subprocess.Popen([sys.executable, "-c", rename], cwd=tmp_path) as renaming:
        try:
            workspace = files.Workspace(str(root))
            while renaming.poll() is None and not {"a", "b"} & {*os.listdir(tmp_path)}:
                pass
            for _ in range(1_000):
                workspace.read("deep/up", 4).close()
        finally:
            renaming.kill()


@pytest.mark.wherever
def test_what_is_no_file_is_refused_at_once(bash: Bash) -> None:
    bash.run("mkdir -p odd/folder && mkfifo odd/pipe")
    device = stat.S_IFCHR | 0o666  # device 0, 0 is the one that an ordinary user may create
    os.mknod(bash.workspace / "odd" / "device", device, os.makedev(0, 0))
    bash.run("python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('odd/socket')\"")

    for path in ("odd/folder", "odd/pipe", "odd/socket", "odd/device"):
        with pytest.raises(NotAFile, match="odd"):
            bash.get(path)
        with pytest.raises(NotAFile, match="odd"):
            bash.put(path, b"x")
    for path in ("odd/missing", "odd/pipe/below"):
        with pytest.raises(NotAFile):
            bash.get(path)

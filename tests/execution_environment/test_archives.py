# Shows D14
"""Archives of workspaces: everything comes back, and nothing else gets out of an archive."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from flowengine.errors import StoreError, UsageError
from flowengine.execution_environment.registry.archives import pack, unpack
from flowengine.execution_environment.registry.workspaces import home_of


def entries(folder: Path) -> dict[str, tuple[str, int, float, object]]:
    """Return the content of a directory."""
    found: dict[str, tuple[str, int, float, object]] = {}
    for above, folders, files in os.walk(folder):
        for name in [".", *folders, *files]:
            path = Path(above, name)
            info = path.lstat()
            if path.is_symlink():
                found[str(path.relative_to(folder))] = ("link", 0, 0, os.readlink(path))
                continue
            content = path.read_bytes() if path.is_file() else None
            key, mode = str(path.relative_to(folder)), info.st_mode & 0o777
            found[key] = ("entry", mode, round(info.st_mtime, 3), content)
    return found


def test_all_of_a_workspace_comes_back(tmp_path: Path) -> None:
    box = tmp_path / "box"
    deep = box / "a" / "b"
    deep.mkdir(parents=True)
    home_of(box).mkdir()
    (home_of(box) / ".rc").write_text("x")
    (deep / "empty").touch()
    (box / os.fsdecode(b"odd \xff\n")).write_bytes(bytes(range(256)))
    (box / ("é" * 100)).write_text("long")
    (box / "tool").write_text("#!/bin/sh")
    (box / "tool").chmod(0o4755)
    (box / "within").symlink_to("a/b/../b/empty")
    (deep / "up").symlink_to("../..")
    (deep / "missing").symlink_to("nowhere")
    os.utime(deep / "empty", (1.5, 1.5))
    (box / "locked").mkdir(0o500)
    os.utime(box, (2, 2))
    pack(box, tmp_path / "archive")
    again = tmp_path / "again"
    unpack(tmp_path / "archive", again)
    assert entries(again) == entries(box) | {"tool": ("entry", 0o755, *entries(box)["tool"][2:])}
    assert entries(home_of(again)) == entries(home_of(box))


def test_links_that_lead_out_by_way_of_others_are_refused(tmp_path: Path) -> None:
    box = tmp_path / "box"
    (box / "a" / "b").mkdir(parents=True)
    (box / "a" / "b" / "top").symlink_to("../..")
    (box / "a" / "b" / "out").symlink_to("top/../outside")
    with pytest.raises(UsageError, match=r"'workspace/a/b/out' cannot be moved: it is a link"):
        pack(box, tmp_path / "archive")


def entry(name: str, type: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> bytes:
    """Return the entry of an archive."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = type, link, size
    return info.tobuf(tarfile.PAX_FORMAT) + bytes(-(-size // 512) * 512)


ROOT = entry("workspace", tarfile.DIRTYPE)
END = bytes(1024)


def sparse() -> bytes:
    """Return an entry with a hole of a gigabyte."""
    headers = {"GNU.sparse.major": "0", "GNU.sparse.size": "1000000000", "GNU.sparse.map": "0,1"}
    info = tarfile.TarInfo("workspace/hole")
    info.size, info.pax_headers = 1, headers
    return info.tobuf(tarfile.PAX_FORMAT) + bytes(512)


@pytest.mark.parametrize(
    "content",
    [
        b"garbage " * 100,
        ROOT + entry("workspace/x", size=4096)[:1000],
        ROOT + entry("workspace/../out") + END,
        ROOT + entry("workspace/a/../../out") + END,
        ROOT + entry("/out") + END,
        ROOT + entry("elsewhere/out") + END,
        ROOT + entry("workspace") + END,
        ROOT + entry("workspace/a//b") + END,
        entry("workspace/x") + END,
        ROOT + entry("workspace/x") * 2 + END,
        ROOT + entry("workspace/x", tarfile.LNKTYPE, "/etc/passwd") + END,
        ROOT + entry("workspace/x", tarfile.CHRTYPE) + END,
        ROOT + entry("workspace/x", tarfile.FIFOTYPE) + END,
        ROOT + entry("workspace/x", tarfile.SYMTYPE, "..") + entry("workspace/x/out") + END,
        ROOT + sparse() + END,
    ],
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    archive, folder = tmp_path / "archive", tmp_path / "folder"
    folder.mkdir()
    archive.write_bytes(content)
    with pytest.raises(StoreError):
        unpack(archive, folder / "box")
    assert {path.name for path in folder.iterdir()} <= {"box"}
    assert not (tmp_path / "out").exists()
    made = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in made) < 10_000


def test_a_link_in_an_archive_is_made_last(tmp_path: Path) -> None:
    """So no path leads through one, whatever the order in the archive."""
    outside = tmp_path / "outside"
    outside.mkdir()
    archive = tmp_path / "archive"
    archive.write_bytes(
        ROOT
        + entry("workspace/x", tarfile.SYMTYPE, str(outside))
        + entry("workspace/x", tarfile.DIRTYPE)
        + entry("workspace/x/file")
        + END
    )
    with pytest.raises(StoreError):
        unpack(archive, tmp_path / "box")
    assert [*outside.iterdir()] == []

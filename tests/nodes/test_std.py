# Shows F98
"""`std.*` tools: printing, and files that stay below the working directory."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from .conftest import Bench


def tool(bench: Bench, name: str, **args: Any) -> Any:
    return bench.do("std", {"tool": name}, {"args": args}, args=args)


def refused(bench: Bench, name: str, **args: Any) -> str:
    error = bench.fail("std", {"tool": name}, {"args": args}, args=args)
    assert error["type"] == "Refused", error
    assert error["retryable"] is False
    return error["message"]


@pytest.fixture
def outside(bench: Bench) -> Path:
    """A file beside the working folder that tools must not touch."""
    path = bench.workdir.parent / "outside.txt"
    path.write_text("secret")
    return path


def test_file_is_replaced_whole_and_keeps_its_permissions(bench: Bench) -> None:
    path = bench.workdir / "run.sh"
    path.write_text("old and longer")
    path.chmod(0o750)

    tool(bench, "write_file", path="run.sh", text="new")

    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o750
    assert list(bench.workdir.iterdir()) == [path]


def test_file_is_read_in_the_encoding_that_is_asked_for(bench: Bench) -> None:
    (bench.workdir / "l.txt").write_bytes("é".encode("latin-1"))

    assert tool(bench, "read_file", path="l.txt", encoding="latin-1")["text"] == "é"
    for encoding in ("utf-8", "no-such"):
        error = bench.fail(
            "std", {"tool": "read_file"}, {"args": {"path": "l.txt", "encoding": encoding}}
        )
        assert error["message"].startswith(f"'l.txt' cannot be read as {encoding}")


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("read_file", {"path": "nope"}, "'nope': No such file or directory"),
        ("read_file", {"path": "folder"}, "'folder' is not a file"),
        ("read_file", {"path": "."}, "'.' is not a file"),
        ("read_file", {"path": "pipe"}, "'pipe' is not a file"),
        ("write_file", {"path": "folder", "text": ""}, "'folder' is not a file"),
        ("write_file", {"path": "file/x", "text": ""}, "'file/x': Not a directory"),
        ("glob", {"path": "nope", "pattern": "*"}, "'nope': No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_path(
    bench: Bench, name: str, args: dict[str, Any], message: str
) -> None:
    (bench.workdir / "folder").mkdir()
    (bench.workdir / "file").touch()
    os.mkfifo(bench.workdir / "pipe")

    assert bench.fail("std", {"tool": name}, {"args": args})["message"].startswith(message)


PATTERNS = [
    ("*.md", ".", ["a.md"]),
    ("*", ".", ["a.md", "b.txt"]),
    ("**/*.md", ".", ["a.md", "docs/c.md", "docs/deep/d.md"]),
    ("**", "docs", ["docs/c.md", "docs/deep/d.md", "docs/link.txt"]),
    ("**/**/*.txt", ".", ["b.txt", "docs/link.txt"]),
    ("*/*.md", ".", ["docs/c.md", "in/c.md"]),
    ("[ab].*", "./", ["a.md", "b.txt"]),
    (".*", ".", [".hidden"]),
    ("*.md", "docs/deep", ["docs/deep/d.md"]),
    ("*.pdf", ".", []),
]


@pytest.mark.parametrize(("pattern", "path", "files"), PATTERNS)
def test_glob_gives_files_relative_to_the_working_folder_in_order(
    bench: Bench, outside: Path, pattern: str, path: str, files: list[str]
) -> None:
    docs = bench.workdir / "docs"
    (docs / "deep").mkdir(parents=True)
    for name in ("b.txt", "a.md", ".hidden", "docs/c.md", "docs/deep/d.md"):
        (bench.workdir / name).touch()
    (bench.workdir / "in").symlink_to("docs")
    (bench.workdir / "out").symlink_to(outside.parent)
    (docs / "link.txt").symlink_to("../b.txt")
    (docs / "gone.txt").symlink_to("nowhere")
    (docs / "secret.txt").symlink_to(outside)

    assert tool(bench, "glob", pattern=pattern, path=path) == {"files": files}


# Staying below the working directory

WAYS_OUT = ["../outside.txt", "a/../../outside.txt", "link.txt", "folder/outside.txt", "two"]


def make_ways_out(bench: Bench, outside: Path) -> None:
    (bench.workdir / "a").mkdir()
    (bench.workdir / "link.txt").symlink_to(outside)
    (bench.workdir / "folder").symlink_to("..")
    (bench.workdir / "two").symlink_to("a/../link.txt")


@pytest.mark.parametrize("path", WAYS_OUT)
def test_path_that_leads_out_is_refused(bench: Bench, outside: Path, path: str) -> None:
    make_ways_out(bench, outside)

    assert "below the working directory" in refused(bench, "read_file", path=path)
    assert "below the working directory" in refused(bench, "write_file", path=path, text="x")
    assert outside.read_text() == "secret"


def test_absolute_path_is_refused(bench: Bench, outside: Path) -> None:
    for name, args in [
        ("read_file", {"path": str(outside)}),
        ("write_file", {"path": str(outside), "text": "x"}),
        ("glob", {"path": str(outside.parent), "pattern": "*"}),
        ("glob", {"pattern": f"{outside.parent}/*"}),
        ("glob", {"pattern": "../*"}),
        ("glob", {"pattern": "*", "path": ".."}),
    ]:
        refused(bench, name, **args)
    assert outside.read_text() == "secret"


def test_links_that_stay_inside_are_followed(bench: Bench) -> None:
    (bench.workdir / "real").mkdir()
    (bench.workdir / "real" / "x.txt").write_text("x")
    (bench.workdir / "relative").symlink_to("real")
    (bench.workdir / "absolute").symlink_to(bench.workdir / "real")
    (bench.workdir / "file").symlink_to("relative/../absolute/x.txt")

    for path in ("relative/x.txt", "absolute/x.txt", "file"):
        assert tool(bench, "read_file", path=path)["text"] == "x"
    tool(bench, "write_file", path="file", text="y")

    assert (bench.workdir / "real" / "x.txt").read_text() == "y"
    assert (bench.workdir / "file").is_symlink()


def test_circle_of_links_is_an_error(bench: Bench) -> None:
    (bench.workdir / "a").symlink_to("b")
    (bench.workdir / "b").symlink_to("a")

    error = bench.fail("std", {"tool": "read_file"}, {"args": {"path": "a"}})

    assert "Too many levels of symbolic links" in error["message"]


@pytest.mark.endurance
def test_folder_swapped_for_a_link_while_it_is_walked_never_leads_out(
    bench: Bench, outside: Path
) -> None:
    """A thread exchanges a folder with a link to the outside as fast as it can."""
    place, link = bench.workdir / "place", bench.workdir / "link"
    place.mkdir()
    (place / "outside.txt").write_text("harmless")
    link.symlink_to(outside.parent)
    exchange = functools.partial(
        ctypes.CDLL(None).renameat2, -100, bytes(place), -100, bytes(link), 2
    )
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            exchange()

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    try:
        for _ in range(300):
            try:
                seen.add(tool(bench, "read_file", path="place/outside.txt")["text"])
                tool(bench, "write_file", path="place/outside.txt", text="harmless")
            except Exception as error:  # refused, or missing at this moment
                seen.add(type(error).__name__)
    finally:
        stop.set()
        swapper.join()

    assert outside.read_text() == "secret"
    assert seen <= {"harmless", "AttemptFailed"}
    assert "harmless" in seen

"""The `std` tools for agents' files: reading lines, editing, searching."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from .conftest import Bench
from .test_std import tool


def fails(bench: Bench, name: str, **args: Any) -> str:
    error = bench.fail("std", {"tool": name}, {"args": args}, args=args)
    assert error["type"] == "ToolError", error
    assert error["retryable"] is False
    return error["message"]


@pytest.fixture
def poem(bench: Bench) -> Path:
    path = bench.workdir / "poem.txt"
    path.write_text("one\ntwo\nthree\ntwo")
    return path


def test_an_edit_replaces_what_is_there_once(bench: Bench, poem: Path) -> None:
    poem.chmod(0o750)

    edited = tool(bench, "edit_file", path="poem.txt", old="three\n", new="3\n")

    assert poem.read_text() == "one\ntwo\n3\ntwo"
    digest = hashlib.sha256(poem.read_bytes()).hexdigest()
    assert edited == {"path": "poem.txt", "line": 3, "replaced": 1, "size": 13, "sha256": digest}
    assert poem.stat().st_mode & 0o777 == 0o750


def test_an_edit_of_what_is_not_there_once_changes_nothing(bench: Bench, poem: Path) -> None:
    before = poem.read_bytes()

    assert fails(bench, "edit_file", path="poem.txt", old="two", new="2") == (
        "'old' is in 'poem.txt' 2 times: include more of the surrounding text, or set all: true"
    )
    assert fails(bench, "edit_file", path="poem.txt", old="four", new="4") == (
        "'old' is not in 'poem.txt': read the file, and give the text exactly as it stands there"
    )
    assert poem.read_bytes() == before
    assert tool(bench, "edit_file", path="poem.txt", old="two", new="2", all=True)["replaced"] == 2
    assert poem.read_text() == "one\n2\nthree\n2"


def test_an_edit_keeps_line_ends_and_a_byte_order_mark(bench: Bench) -> None:
    path = bench.workdir / "dos.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")

    tool(bench, "edit_file", path="dos.txt", old="one\ntwo\n", new="1\n2\n")

    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n"
    tool(bench, "edit_file", path="dos.txt", old="2", new="2\n3\r\n4")
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n3\r\n4\r\n"
    path.write_bytes(b"a\nb\r\nc\r\n")
    tool(bench, "edit_file", path="dos.txt", old="a\n", new="1\n2\n")
    assert path.read_bytes() == b"1\n2\nb\r\nc\r\n"
    tool(bench, "edit_file", path="dos.txt", old="\nc", new="")
    tool(bench, "edit_file", path="dos.txt", old="2\r\nb\n", new="d\r\ne\r\nb\r\n")
    assert path.read_bytes() == b"1\nd\ne\nb\n"
    path.write_bytes(b"a\rb\r")
    tool(bench, "edit_file", path="dos.txt", old="a\nb", new="a\nc\nb")
    assert path.read_bytes() == b"a\rc\rb\r"


def test_a_file_is_edited_in_its_encoding(bench: Bench) -> None:
    path = bench.workdir / "old.txt"
    path.write_bytes("größe €".encode("cp1252"))

    assert fails(bench, "edit_file", path="old.txt", old="e", new="a").endswith("such as cp1252")
    tool(bench, "edit_file", path="old.txt", old="ö", new="ü", encoding="cp1252")
    assert path.read_bytes() == "grüße €".encode("cp1252")
    message = fails(bench, "edit_file", path="old.txt", old="ü", new="日", encoding="cp1252")
    assert message.startswith("'old.txt' cannot be written as cp1252")
    message = fails(bench, "write_file", path="old.txt", text="größe", encoding="punycode")
    assert message.endswith("it is not the name of a text encoding")
    tool(bench, "write_file", path="old.txt", text="größe", encoding="utf-16-be")
    assert path.read_bytes() == "größe".encode("utf-16-be")
    path.write_bytes(b"\xfe\xff" + path.read_bytes())
    message = fails(bench, "edit_file", path="old.txt", old="ö", new="ü", encoding="utf-16")
    assert "because other parts would change" in message


def test_what_is_no_text_is_not_edited(bench: Bench) -> None:
    path = bench.workdir / "photo"
    path.write_bytes(b"\xff\xfe\x00")

    assert fails(bench, "edit_file", path="photo", old="a", new="b").startswith(
        "'photo' cannot be read as utf-8"
    )
    assert path.read_bytes() == b"\xff\xfe\x00"


def test_a_search_finds_lines(bench: Bench, poem: Path) -> None:
    (bench.workdir / "sub").mkdir()
    (bench.workdir / "sub" / "a.py").write_text("x = 'Two'\n")

    found = tool(bench, "search_files", text="two")
    either = tool(bench, "search_files", text="TWO", ignore_case=True, pattern="**/*.py")

    assert found == {
        "matches": [
            {"path": "poem.txt", "line": 2, "text": "two"},
            {"path": "poem.txt", "line": 4, "text": "two"},
        ],
        "truncated": False,
    }
    assert either["matches"] == [{"path": "sub/a.py", "line": 1, "text": "x = 'Two'"}]
    assert tool(bench, "search_files", text="two", path="sub")["matches"] == []


@pytest.mark.parametrize("name", ["edit_file", "search_files", "read_file"])
def test_no_tool_leaves_the_working_folder(bench: Bench, name: str) -> None:
    (bench.workdir.parent / "outside.txt").write_text("secret")
    more = {
        "edit_file": {"path": "../outside.txt", "old": "secret", "new": "x"},
        "search_files": {"path": "..", "text": "secret"},
        "read_file": {"path": "../outside.txt", "first_line": 1},
    }[name]

    error = bench.fail("std", {"tool": name}, {"args": more}, args=more)

    assert error["type"] == "Refused"
    assert (bench.workdir.parent / "outside.txt").read_text() == "secret"


def test_a_pattern_of_many_folders_is_no_endless_search(bench: Bench) -> None:
    deep = Path(*["a"] * 40)
    (bench.workdir / deep).mkdir(parents=True)
    (bench.workdir / deep / "f").write_text("needle")

    found = tool(bench, "search_files", text="needle", pattern="**/*/" * 15 + "f")

    assert [hit["path"] for hit in found["matches"]] == [f"{deep}/f"]
    assert tool(bench, "glob", pattern="**/*/" * 20 + "none") == {"files": []}

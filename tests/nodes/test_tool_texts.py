"""Tool results as models read them: text, with everything needed to continue."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flowengine import registry
from tests.rows import each_row

from .conftest import Bench
from .test_std import tool
from .test_std_files import fails

ROOM = 10_000


def read(name: str, output: Any, args: dict[str, Any] | None = None, room: int = ROOM) -> Any:
    """Return the output of a `std` tool as a model reads it."""
    return registry.kind("std").text_for_model({"tool": name}, {"args": args or {}}, output, room)


def shown(bench: Bench, name: str, *, room: int = ROOM, **args: Any) -> str:
    text = read(name, tool(bench, name, **args), args, room)
    assert isinstance(text, str)
    return text


def test_a_file_has_line_numbers_that_an_edit_leaves_out(bench: Bench) -> None:
    path = bench.workdir / "a.py"
    path.write_bytes(b'\tprint("\\n")\r\nx = 1\x0c\n\xe2\x80\xa8end')

    assert shown(bench, "read_file", path="a.py") == '1\t\tprint("\\n")\n2\tx = 1\x0c\n3\t\u2028end'
    assert shown(bench, "search_files", text="end") == "a.py:3: \u2028end"
    assert shown(bench, "edit_file", path="a.py", old="end", new="END") == (
        "Replaced the text in line 3 of a.py."
    )
    hint = "as it stands there, without the line numbers"
    assert fails(bench, "edit_file", path="a.py", old="2\tx = 1", new="").endswith(hint)
    assert shown(bench, "edit_file", path="a.py", old='"\\n"', new="") == (
        "Replaced the text in line 1 of a.py."
    )


def test_a_file_that_is_too_long_is_read_on(bench: Bench) -> None:
    (bench.workdir / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 1001)))

    first = shown(bench, "read_file", room=1000, path="long.txt").split("\n")
    *lines, note = first
    last = len(lines)
    assert lines[-1] == f"{last}\tline {last}"
    assert 50 < last < 120
    assert note == f"[lines 1 to {last} of 1000. To continue: first_line={last + 1}]"

    on = shown(bench, "read_file", path="long.txt", first_line=last + 1, lines=2)
    assert on.split("\n") == [
        f"{last + 1}\tline {last + 1}",
        f"{last + 2}\tline {last + 2}",
        f"[lines {last + 1} to {last + 2} of 1000. To continue: first_line={last + 3}]",
    ]
    assert shown(bench, "read_file", path="long.txt", first_line=1000) == "1000\tline 1000"
    assert shown(bench, "read_file", path="long.txt", first_line=2000) == (
        "[no such lines: the file has 1000]"
    )


def test_an_empty_file_and_finding_nothing_are_said(bench: Bench, tmp_path: Path) -> None:
    (bench.workdir / "empty.txt").write_text("")

    assert shown(bench, "read_file", path="empty.txt") == "[the file is empty]"
    assert shown(bench, "search_files", text="word") == "[nothing was found]"
    assert shown(bench, "glob", pattern="*.py") == "[no file matches]"


def test_lists_are_lines_and_say_what_is_left_out(bench: Bench) -> None:
    for name in "abc":
        (bench.workdir / f"{name}.txt").write_text("one\ntwo\n" * 20)

    assert shown(bench, "glob", pattern="*.txt") == "a.txt\nb.txt\nc.txt"
    assert shown(bench, "glob", room=206, pattern="*.txt").startswith("a.txt\n[2 more files")
    *lines, note = shown(bench, "search_files", text="two", limit=3).split("\n")
    assert lines == ["a.txt:2: two", "a.txt:4: two", "a.txt:6: two"]
    assert note.startswith("[there is more")
    wrote = shown(bench, "write_file", path="d.txt", text="Hé")
    assert wrote == "Wrote d.txt (3 bytes)."
    again = shown(bench, "edit_file", path="a.txt", old="one", new="1", all=True)
    assert again == "Replaced the text 20 times in a.txt, first in line 1."


def test_rows_are_lines_of_json() -> None:
    rows = {"rows": [{"a": "x\ny"}, {"a": None}], "truncated": True}

    *lines, note = read("query_database", rows).split("\n")

    assert lines == ['{"a": "x\\ny"}', '{"a": null}']
    assert "the first 2 rows" in note
    assert read("query_database", {"rows": [], "truncated": False}) == "[no rows]"


DONE = {"exit_code": 0, "stdout": "a\n", "stderr": "", "value": None, "files": {}}
FILE = {"path": "/kept/ab/cd", "name": "r.csv", "size": 12, "sha256": "abcd"}


@each_row(
    ("output", "text"),
    [
        ({}, "a\n[exit code 0]"),
        ({"stdout": ""}, "[exit code 0]"),
        ({"exit_code": 2, "stderr": 'no "b"\n'}, 'a\n[stderr]\nno "b"\n[exit code 2]'),
        ({"value": "one\ntwo"}, "a\n[value] one\ntwo\n[exit code 0]"),
        ({"value": [1]}, "a\n[value] [1]\n[exit code 0]"),
        ({"files": {"r": FILE}}, "a\n[file r: 12 bytes, /kept/ab/cd]\n[exit code 0]"),
        ({"stdout_file": FILE}, "a\n[all of stdout is kept: 12 bytes, /kept/ab/cd]\n[exit code 0]"),
        ({"stderr_file": "out/1"}, "a\n[all of stderr is kept: out/1]\n[exit code 0]"),
    ],
)
def test_a_command_is_what_it_printed_and_its_exit_code(output: dict[str, Any], text: str) -> None:
    shell = registry.kind("shell")

    assert shell.text_for_model({}, {}, {**DONE, **output}, ROOM) == text


def test_an_answer_of_a_server_is_its_text() -> None:
    for name, output, text in (
        (
            "http",
            {"status": 200, "headers": {"etag": "1", "x": "2"}, "body": {"a": 'x "y"'}},
            'status 200\netag: 1\n\n{"a": "x \\"y\\""}',
        ),
        ("http", {"status": 204, "headers": {}, "body": None}, "status 204"),
        ("http", {"status": 200, "headers": {}, "body": "a\nb"}, "status 200\n\na\nb"),
        ("mcp", {"result": "a\nb"}, "a\nb"),
        ("mcp", {"result": 3}, None),
        ("mcp", [{"type": "text", "text": "a"}, {"type": "image"}], 'a\n\n{"type": "image"}'),
    ):
        assert registry.kind(name).text_for_model({}, {}, output, ROOM) == text


@each_row("output", ["text", 1, {}, {"text": 1}, [1], {"matches": "?"}])
def test_what_has_another_form_in_a_test_case_is_shown_as_it_is(output: Any) -> None:
    context: Any = SimpleNamespace(approval=None, mask=lambda value: value)
    adapter = {"kind": "agent", "task": {}}

    for name in ("read_file", "search_files", "run_command", "shell_run", "read_document", "print"):
        made = registry.adapted(adapter, context, ("std", {"tool": name}, {}), output)
        shown = output if isinstance(output, str) else json.dumps(output)
        assert made["envelope"]["content"] == shown

# Shows F20
"""The pattern files: each is complete, passes a strict check, and runs unchanged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from flowengine.cli import main
from tests.patterns.playing import FILES, FOLDER

TABLE = (Path(__file__).parents[2] / "docs" / "patterns.md").read_text()
WAITS = {10, 15, 16, 23, 24, 35, 36, 38, 40}
"""Patterns that wait for a decision or for time."""
CANCELLED = {20}


def number_of(path: Path) -> int:
    return int(path.name[:2])


def test_every_pattern_has_a_file_and_a_line_in_the_documentation() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| .+ \| \[[\w.-]+\]\(\.\./(.+)\) \|$", TABLE, re.M)

    assert [int(number) for number, _name, _path in rows] == list(range(1, 44))
    assert [Path(path).name for _number, _name, path in rows] == [path.name for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_file_says_what_it_is_for(path: Path) -> None:
    first, second, *_ = path.read_text().splitlines()

    assert first.startswith("# yaml-language-server: $schema=../../schemas/")
    assert re.match(rf"# {number_of(path)} [A-Z][\w' -]+: .+, for example .+\.$", second)


def test_the_files_pass_a_strict_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--strict", *map(str, FILES)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_file_runs_as_it_is(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command line, without inputs: it ends, or reports its waits."""
    monkeypatch.chdir(tmp_path)
    number = number_of(path)

    code, result = command(capsys, "run", str(path))

    expected = "waiting" if number in WAITS else "cancelled" if number in CANCELLED else "succeeded"
    assert result["status"] == expected, result
    assert code == {"succeeded": 0, "waiting": 4, "cancelled": 6}[expected]
    while result["status"] == "waiting":
        command(capsys, *answer(result["waits"][0]))
        _, result = command(capsys, "show", result["execution"])
    assert result["status"] == ("cancelled" if number in CANCELLED else "succeeded")


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Run a command, and return its exit code and the execution as data."""
    capsys.readouterr()
    code = main(["--json", *words])
    out, err = capsys.readouterr()
    assert code in (0, 4, 6), err
    return code, json.loads(out.splitlines()[-1])


def answer(wait: dict[str, Any]) -> list[str]:
    """Return the command that completes an open wait."""
    if wait["kind"] == "approval":
        return ["approvals", "decide", wait["id"], "--choice", wait["choices"][0]["id"]]
    message = wait["signals"][0]
    return ["signal", "--key", message["key"], message["signal"], "--data", '"something"']


def test_the_folder_holds_nothing_else() -> None:
    assert sorted(FOLDER.iterdir()) == FILES

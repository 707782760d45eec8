# Shows F20
"""The pattern files: each is complete, and passes a strict check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowengine.cli import main
from tests.patterns.playing import FILES, FOLDER
from tests.rows import each_row

TABLE = (Path(__file__).parents[2] / "docs" / "patterns.md").read_text()


def number_of(path: Path) -> int:
    return int(path.name[:2])


def test_every_pattern_has_a_file_and_a_line_in_the_documentation() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| .+ \| \[[\w.-]+\]\(\.\./(.+)\) \|$", TABLE, re.M)

    assert [int(number) for number, _name, _path in rows] == list(range(1, 44))
    assert [Path(path).name for _number, _name, path in rows] == [path.name for path in FILES]


@each_row("path", FILES)
def test_the_file_says_what_it_is_for(path: Path) -> None:
    first, second, *_ = path.read_text().splitlines()

    assert first.startswith("# yaml-language-server: $schema=../../schemas/")
    assert re.match(rf"# {number_of(path)} [A-Z][\w' -]+: .+, for example .+\.$", second)


def test_the_files_pass_a_strict_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--strict", *map(str, FILES)]) == 0
    assert capsys.readouterr().err == ""


def test_the_folder_holds_nothing_else() -> None:
    assert sorted(FOLDER.iterdir()) == FILES

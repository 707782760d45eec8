"""Each error code has a page whose examples fail and pass the check as shown.

`UPDATE_GOLDEN=1` writes the reports into the pages, after a message has changed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from flowengine.cli.commands.check import explanations
from tests.command_line import flowengine

ROOT = Path(__file__).parents[2]
PAGES = explanations()
FOLDER = ROOT / "flowengine" / "flow" / "codes"
BLOCK = re.compile(r"^```(yaml|text)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r'"([EW]\d{3})"')


@pytest.mark.parametrize("code", PAGES)
def test_example_has_the_error_and_the_correction_does_not(code: str, folder: Path) -> None:
    wrong, shown, right = PAGES[code].partition("```text\n")
    report = BLOCK.findall(shown + right)[0][2]

    file = write(folder, wrong)
    assert f"[{code}]: " in report
    found, _, hint = flowengine("check", file).err.rpartition("for details: ")
    assert hint == f"flowengine check --explain {code}\n"
    if os.environ.get("UPDATE_GOLDEN"):
        (FOLDER / f"{code}.md").write_text(PAGES[code].replace(report, found))
    else:
        assert found == report

    assert write(folder, right) == file
    done = flowengine("check", "--strict", file)
    assert (done.code, done.err) == (0, "")


def write(folder: Path, text: str) -> str:
    """Write the YAML files of a text, and return the name of the first one."""
    files = {
        name or "flow.yaml": body for kind, name, body in BLOCK.findall(text) if kind == "yaml"
    }
    for name, body in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(body)
    return str(next(iter(files)))


def test_each_code_of_the_checker_is_explained() -> None:
    used = {
        code
        for folder in ("flowengine", "nodes", "envs")
        for path in (ROOT / folder).rglob("*.py")
        for code in CODE.findall(path.read_text(encoding="utf-8"))
    }

    assert used == set(PAGES)


def test_explain_lists_prints_and_suggests() -> None:
    listed = flowengine("check", "--explain").out.splitlines()
    assert [line[:4] for line in listed] == sorted(PAGES)

    assert flowengine("check", "--explain", "e202").out == PAGES["E202"]

    unknown = flowengine("check", "--explain", "E99")
    assert (unknown.code, unknown.out) == (9, "")
    assert "unknown error code 'E99'" in unknown.err

"""The repair of a project in a sandbox: rounds of tests, an approval, and only then a change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flowengine import Engine
from tests.examples.conftest import EXAMPLES
from tests.own_environments import environments_in

EXAMPLE = EXAMPLES / "fix_tests"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "it")
    monkeypatch.chdir(tmp_path / "it")
    return tmp_path / "it" / "project" / "calc.py"


def test_the_tests_pass_in_the_third_round_and_the_change_comes_back_when_accepted(
    project: Path,
) -> None:
    before = project.read_text()
    with Engine("store") as engine:
        waiting = engine.run("fix_tests.yaml", id="it")
        assert waiting.status == "waiting", waiting.error
    assert project.read_text() == before

    with Engine("store") as engine:  # in another engine, the copy still exists
        [wait] = engine.approvals.list().items
        ended = engine.approvals.approve(wait["id"]).result

    assert ended is not None
    assert ended.outputs == {"rounds": 3, "changed": ["calc.py"]}
    assert "return a + b" in project.read_text()
    assert not list((environments_in(Path("store")) / "workspaces/execution").iterdir())

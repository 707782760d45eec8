"""Which model an agent asks has to be said, in one of four ways (F100)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAM

FLOW = """\
flowengine: 1
id: f
agents:
  helper: {instructions: Help.}
steps:
  - {id: ask, agent: helper, with: {prompt: Hello}}
outputs: {said: "${{ steps.ask.output }}"}
"""
MODEL = "scripted/replies.yaml"
IN_AGENT = FLOW.replace("{instructions", "{model: scripted/replies.yaml, instructions")
IN_DEFAULTS = FLOW.replace("agents:", "defaults: {model: scripted/replies.yaml}\nagents:")


def run(folder: Path, flow: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a flow in a folder with a script."""
    (folder / "flow.yaml").write_text(flow)
    (folder / "replies.yaml").write_text("- text: Hello!\n")
    kept = {name: os.environ[name] for name in ("PATH", "XDG_STATE_HOME") if name in os.environ}
    return subprocess.run(
        [PROGRAM, "run", "flow.yaml", *words],
        cwd=folder,
        env=kept | {"HOME": str(folder)} | more,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_an_agent_without_a_model_is_an_error_of_the_check(tmp_path: Path) -> None:
    done = run(tmp_path, FLOW)

    assert "error[E408]: no model is named for the agent 'helper'" in done.stderr
    for way in ("'model' here", "'defaults.model'", "FLOWENGINE_MODEL", "--model"):
        assert way in done.stderr
    assert (done.returncode, done.stdout) == (3, "")
    assert not (tmp_path / ".flowengine").exists()


@pytest.mark.parametrize(
    ("flow", "words", "variables"),
    [
        (IN_AGENT, [], {}),
        (IN_DEFAULTS, [], {}),
        (FLOW, ["--model", MODEL], {}),
        (FLOW, [], {"FLOWENGINE_MODEL": MODEL}),
    ],
    ids=["agent", "defaults", "option", "variable"],
)
def test_each_way_to_name_it_mends_that(
    tmp_path: Path, flow: str, words: list[str], variables: dict[str, str]
) -> None:
    done = run(tmp_path, flow, *words, **variables)

    assert (done.returncode, done.stdout) == (0, "said: Hello!\n"), done.stderr

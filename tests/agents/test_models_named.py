"""The model of an agent must be named, in one of four ways (F100)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine.cli import main

Run = Callable[..., tuple[int, str, str]]

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


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a flow with a script: exit code, results and messages."""
    for name in ("FLOWENGINE_MODEL", "FLOWENGINE_STORE"):
        monkeypatch.delenv(name, raising=False)
    (folder / "replies.yaml").write_text("- text: Hello!\n")

    def run(flow: str, *words: str, **variables: str) -> tuple[int, str, str]:
        (folder / "flow.yaml").write_text(flow)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        code = main(["run", "flow.yaml", *words])
        return code, *capfd.readouterr()

    return run


# Shows F100
def test_an_agent_without_a_model_is_an_error_of_the_check(tmp_path: Path, run: Run) -> None:
    code, said, messages = run(FLOW)

    assert "error[E408]: no model is named for the agent 'helper'" in messages
    for way in ("'model' here", "'defaults.model'", "FLOWENGINE_MODEL", "--model"):
        assert way in messages
    assert (code, said) == (3, "")
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
# Shows F100
def test_each_way_to_name_it_mends_that(
    run: Run, flow: str, words: list[str], variables: dict[str, str]
) -> None:
    code, said, messages = run(flow, *words, **variables)

    assert (code, said) == (0, "said: Hello!\n"), messages


def test_the_option_names_the_model_of_one_execution_only(run: Run, tmp_path: Path) -> None:
    """The setting is invisible to commands in its steps, and to later runs of this process."""
    step = "{id: env, run: 'env > $FLOW_WORKDIR/told', in: host}"
    told = FLOW.replace("steps:", f"steps:\n  - {step}")

    assert run(told, "--model", MODEL)[0] == 0

    assert "FLOWENGINE_MODEL=" not in (tmp_path / "told").read_text()
    assert "FLOWENGINE_MODEL" not in os.environ
    assert "error[E408]" in run(FLOW)[2]

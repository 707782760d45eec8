# Shows W83
"""Converters supplied by a flow run in the sandbox, before the built-in ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentUnavailable, StepError
from flowengine_envs.sandboxes.processes import has
from tests.agents.flows import STEPS, Case, call, flow

INIS = """
import configparser, os

def convert(data, name):
    if not name.endswith(".ini"):
        return None
    parser = configparser.ConfigParser()
    parser.read_string(data.decode())
    return "\\n\\n".join(f"# {each}" for each in parser.sections())

def other(data, name):
    return "never reached" if name.endswith(".ini") else None

def raising(data, name):
    raise LookupError("no such table")

def ending(data, name):
    raise SystemExit(3)

def crashing(data, name):
    os.kill(os.getpid(), 11)

def looking(data, name):
    import pathlib
    return str([each.name for each in pathlib.Path("/workspace").iterdir()])

def endless(data, name):
    while True: pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inis.py").write_text(INIS)
    return tmp_path


def spec(*converters: str, **words: Any) -> dict[str, Any]:
    config = {"converters": [f"inis:{each}" for each in converters]}
    return {"kind": "documents", "scope": "session", "owner_id": "s", "config": config, **words}


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("function", "type", "told"),
    [
        ("raising", "Damaged", "converter inis:raising: LookupError: no such table"),
        ("ending", "Damaged", "the process that read it ended with 3"),
        ("crashing", "Damaged", "the process that read it ended with 139"),
        ("endless", "LimitExceeded", "a.txt"),
    ],
)
# Shows W82
def test_one_that_fails_ends_nothing_else(
    function: str, type: str, told: str, folder: Path
) -> None:
    with EnvironmentManager(folder / "store") as manager:
        limits = {"time": 0.5 if function == "endless" else 60}
        reader = manager.ensure(spec(function, limits=limits)).resource
        for _ in range(2):
            with pytest.raises(StepError, match=told) as caught:
                reader.read(b"x", "a.txt")
            assert caught.value.name == type
            assert caught.value.message.startswith("a.txt: ")


def test_the_engine_does_not_run_them_and_they_do_not_see_its_folder(folder: Path) -> None:
    (folder / "inis.py").write_text(f"open('ran', 'w').close()\n{INIS}")
    with EnvironmentManager(folder / "store") as manager:
        reader = manager.ensure(spec("looking")).resource
        assert "inis.py" not in reader.read(b"x", "a.txt").markdown
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("text", "named", "told"),
    [
        (None, "absent:convert", "cannot be read from"),
        ("def convert(:", "inis:convert", "cannot be read from"),
        ("convert = 1", "inis:convert", "has no function 'convert'"),
        (f"def convert(): pass\n# {'x' * 70_000}", "inis:convert", "more than 64 KiB"),
    ],
)
def test_what_is_no_converter_is_told_before_anything_opens(
    text: str | None, named: str, told: str, folder: Path
) -> None:
    if text is not None:
        (folder / "inis.py").write_text(text)
    wanted = {**spec(), "config": {"converters": [named]}}
    with (
        EnvironmentManager(folder / "store") as manager,
        pytest.raises(EnvironmentUnavailable, match=told),
    ):
        manager.ensure(wanted)


# Shows W82
def test_an_agent_is_told_and_goes_on(folder: Path) -> None:
    (folder / "bad.txt").write_text("bad")
    head = """
flowengine: 1
id: f
inputs: {q: {type: string, default: Read it.}}
defaults: {model: scripted/test}
environments:
  documents: {kind: documents, config: {converters: ["inis:ending"]}}
"""
    script = [
        {"calls": [call("std.visit_page", address="bad.txt")]},
        {"calls": [call("std.visit_page", address=".")]},
        {"text": "done"},
    ]
    agent = "first: {instructions: Work., tools: [std.visit_page]}"
    case = Case(folder, flow(agent, STEPS, head), script)

    assert case.run().status == "succeeded"
    told = str(case.sent(1)[-1]["content"])
    assert "bad.txt: the process that read it ended with 3" in told
    assert "Damaged" in told

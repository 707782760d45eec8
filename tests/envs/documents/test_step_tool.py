"""`std.read_document` in flows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowengine import Engine, check
from flowengine.engines.results import ExecutionResult
from flowengine.errors import FlowFileError
from flowengine_envs.documents.converting import convert
from flowengine_envs.sandboxes.processes import has

FILES = Path(__file__).with_name("files")
ON_HOST = {"documents": {"kind": "documents", "provider": "host"}}
READ = {"id": "read", "call": "std.read_document", "with": {"path": "${{ inputs.path }}"}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("pandoc.docx", "groff.pdf", "locked.pdf"):
        shutil.copy(FILES / name, tmp_path)
    return tmp_path


def document_of(result: ExecutionResult) -> Any:
    assert result.outputs is not None, result.error
    return result.outputs["document"]


def run(path: str, step: dict[str, Any] = READ, **words: Any) -> ExecutionResult:
    flow = {
        "flowengine": 1,
        "id": "reading",
        "inputs": {"path": {"type": "string"}},
        "steps": [step],
        "outputs": {"document": "${{ steps.read.output }}"},
        **words,
    }
    Path("flow.yaml").write_text(yaml.safe_dump(flow))
    with Engine("store", workdir=".") as engine:
        return engine.run("flow.yaml", {"path": path})


# Shows W53
def test_a_document_is_read_in_a_sandbox() -> None:
    if not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    document = document_of(run("pandoc.docx"))

    expected = convert((FILES / "pandoc.docx").read_bytes(), "pandoc.docx").as_data()
    del expected["pictures"], expected["following"]  # needed only by models and readers of pages
    assert {name: document[name] for name in expected} == expected
    assert document["size"] == (FILES / "pandoc.docx").stat().st_size


@pytest.mark.endurance
@pytest.mark.parametrize("by", ["list", "map", "tool"])
def test_an_environment_that_is_named_is_used(by: str) -> None:
    """Whatever its name, and even if another environment has the kind's name."""
    named = {"list": ["short"], "map": {"documents": "short"}, "tool": ["short"]}[by]
    step, tools = {**READ, "environments": named}, {}
    if by == "tool":
        tools = {"read": {"std": "read_document", "environments": named}}
        step = {**READ, "call": "read"}
    short = {**ON_HOST["documents"], "config": {"characters": 100}}
    environments = {**ON_HOST, "short": short}
    document = document_of(run("groff.pdf", step, tools=tools, environments=environments))

    assert document["notes"] == ["cut after 100 characters (limit 'characters')"]


def test_of_several_environments_the_step_says_which() -> None:
    environments = dict.fromkeys(("one", "two"), ON_HOST["documents"])
    with pytest.raises(FlowFileError) as error:
        run("groff.pdf", {**READ, "environments": ["one", "two"]}, environments=environments)

    [fault] = error.value.diagnostics
    assert (fault.code, fault.hint) == ("E402", "choose one with 'environments: {documents: one}'")
    assert "'one' and 'two' are such environments" in fault.message


def test_an_environment_that_nothing_works_in_is_to_be_named() -> None:
    Path("flow.yaml").write_text(
        yaml.safe_dump(
            {
                "flowengine": 1,
                "id": "reading",
                "environments": {"web": ON_HOST["documents"]},
                "steps": [{**READ, "with": {"path": "groff.pdf"}}],
            }
        )
    )
    [warning] = check("flow.yaml")

    assert warning.code == "W105"
    assert warning.hint == "name it at a step or tool that works in it, or remove it"


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("path", "type", "told"),
    [
        ("locked.pdf", "PasswordRequired", "locked.pdf: it is encrypted"),
        ("../outside.pdf", "Refused", "'../outside.pdf' leads out"),
        ("absent.pdf", "ToolError", "'absent.pdf': No such file"),
    ],
)
# Shows W82
def test_an_error_has_its_type_and_can_be_handled(path: str, type: str, told: str) -> None:
    result = run(path, environments=ON_HOST)
    assert result.error is not None
    assert (result.status, result.error["type"]) == ("failed", type)
    assert told in result.error["message"]

    handler = {"type": type, "output": {"markdown": "${{ error.message }}"}}
    handled = run(path, {**READ, "on_error": [handler]}, environments=ON_HOST)
    assert told in document_of(handled)["markdown"]


def test_a_document_in_an_environment_of_files_is_read_there(folder: Path) -> None:
    (folder / "own").mkdir()
    (folder / "own" / "notes.txt").write_text("in the environment")
    (folder / "notes.txt").write_text("in the working directory")
    environments = {**ON_HOST, "own": {"kind": "files", "config": {"path": "own"}}}
    step = {**READ, "environments": {"documents": "documents", "files": "own"}}

    assert document_of(run("notes.txt", step, environments=environments))["markdown"].strip() == (
        "in the environment"
    )
    result = run("pandoc.docx", step, environments=environments)
    assert result.error is not None

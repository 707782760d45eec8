"""What `check`, `doctor` and messages say about optional packages that are not installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk.python.extras import install_command
from tests.cli.conftest import CommandLine

AGENT = """
flowengine: 1
id: a
agents: {clerk: {model: MODEL, instructions: Answer.}}
steps: [{id: answer, agent: clerk, with: {prompt: hi}}]
finally: [{id: over, output: 1}]
"""


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'near[fast]'"),
        ({"url": "https://host.example/near.whl", "archive_info": {}}, "pip install 'near[fast]'"),
        ({"url": "file:///srv/a%20b/near", "dir_info": {}}, "pip install '/srv/a b/near[fast]'"),
        (
            {"url": "file:///srv/near", "dir_info": {"editable": True}},
            "pip install -e '/srv/near[fast]'",
        ),
        (
            {"url": "file:///srv/near-1-py3-none-any.whl", "archive_info": {}},
            "pip install 'near[fast] @ file:///srv/near-1-py3-none-any.whl'",
        ),
        ([], "pip install 'near[fast]'"),
    ],
)
def test_an_extra_is_installed_from_where_its_distribution_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: Any, command: str
) -> None:
    folder = tmp_path / "near-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: near\nVersion: 1\n")
    if origin is not None:
        (folder / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)

    assert install_command("fast", "near") == command


@pytest.mark.parametrize("installed", [True, False])
def test_a_missing_package_for_models_is_known_before_the_run(
    flowengine: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    for name, model in (("real", "openai/gpt-4o"), ("script", "scripted/a.yaml")):
        (tmp_path / f"{name}.yaml").write_text(AGENT.replace("MODEL", model))
    if not installed:
        monkeypatch.setitem(sys.modules, "litellm", None)
    needs = f"models of providers need litellm, which is not installed: {install_command('agents')}"

    real = flowengine("check", "--strict", str(tmp_path / "real.yaml"))
    script = flowengine("check", str(tmp_path / "script.yaml"))
    doctor = flowengine("doctor").out

    assert (real.code, script.code) == (0, 0)
    assert (f"openai/gpt-4o: {needs}" in real.err) == (not installed)
    assert "litellm" not in script.err
    assert (needs in doctor) == (not installed)
    assert ("models of providers can be called" in doctor) == installed

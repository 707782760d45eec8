"""Commands of an installation without extras: they work, or name the extra that they need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest

HIDE = """
import sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] not in {hidden!r}:
            return PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Without
from flowengine.cli.program import main
sys.exit(main({words!r}))
"""
FLOW = """
flowengine: 1
id: f
agents: {a: {model: scripted/s.yaml, instructions: hi}}
steps:
  - {id: s, agent: a, with: {prompt: hi}}
  - {id: t, run: "echo 1"}
"""

NEEDING = {
    "docker": "environments: {b: {kind: bash, provider: docker}}\n"
    "steps: [{id: s, run: 'echo 1', in: b}]",
    "mcp": "tools: {m: {mcp: {command: 'true'}}}\nsteps: [{id: s, call: m.x}]",
    "browser": "environments: {browser: {kind: browser, policy: {network: public}}}\n"
    "steps: [{id: s, call: std.browse, with: {url: 'https://x.example/'}}]",
    "documents": "environments: {documents: {kind: documents}}\n"
    "steps: [{id: s, call: std.read_document, with: {path: s.yaml}}]",
    "agents": "agents: {a: {model: openai/gpt-4o, instructions: hi}}\n"
    "steps: [{id: s, agent: a, with: {prompt: hi}}]",
}
"""Extra → a flow that needs it."""


def is_installed(name: str) -> bool:
    with suppress(PackageNotFoundError):
        return bool(distribution(name))
    return False


def modules_of_extras() -> set[str]:
    """Return the modules of all packages that only extras need."""
    needed, left = set[str](), ["flowengine"]
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name not in needed and is_installed(name):
            needed.add(name)
            base = (one for one in distribution(name).requires or () if "extra ==" not in one)
            left += (re.split(r"[^A-Za-z0-9._-]", one)[0] for one in base)
    return {
        module
        for module, names in packages_distributions().items()
        if not needed & {re.sub(r"[-_.]+", "-", one).lower() for one in names}
    }


def begun(words: str, folder: Path) -> subprocess.Popen[str]:
    """Start a command in a process that finds no module of an extra."""
    code = HIDE.format(hidden=modules_of_extras(), words=words.split())
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    given: Any = {"cwd": folder, "env": environment, "text": True, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, **given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an execution."""
    tmp_path = tmp_path_factory.mktemp("flows")
    (tmp_path / "f.yaml").write_text(FLOW)
    (tmp_path / "s.yaml").write_text("[{text: hello}]")
    for extra, flow in NEEDING.items():
        (tmp_path / f"{extra}.yaml").write_text(f"flowengine: 1\nid: {extra}\n{flow}\n")
    process = begun("run f.yaml", tmp_path)
    _, printed = process.communicate()
    assert process.returncode == 0, printed
    return tmp_path


@pytest.mark.endurance(sample=12)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("check f.yaml", ""),
        ("list", ""),
        ("doctor", ""),
        ("graph f.yaml", ""),
        ("tokens list", ""),
        ("logins", ""),
        ("sessions list", ""),
        ("envs list", ""),
        ("worker --http 127.0.0.1:0", r"install it: pip install .*\[serve\]"),
        ("serve --port 0", r"install it: pip install .*\[serve\]"),
        *((f"run {extra}.yaml", rf"pip install .*\[{extra}\]") for extra in NEEDING),
        ("serve --mcp", r"install it: pip install .*\["),
        *(
            (f"{words} --store temporal://127.0.0.1:1/default", r"pip install .*\[temporal\]")
            for words in ("list", "worker")
        ),
    ],
)
def test_a_command_works_or_names_the_extra(words: str, says: str, folder: Path) -> None:
    process = begun(words, folder)
    _, printed = process.communicate()
    assert (process.returncode == 0) == (not says), printed
    assert re.search(says, printed)


def test_a_worker_needs_none(folder: Path) -> None:
    process = begun("worker", folder)
    assert process.stderr is not None
    with process.stderr as lines:
        assert "started" in next(iter(lines))
        process.terminate()
        assert process.wait() == 0

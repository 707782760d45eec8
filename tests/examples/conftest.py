from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

EXAMPLES: Path = Path(__file__).parents[2] / "examples"
PROGRAM = Path(sys.executable).with_name("flowengine")


class Done(NamedTuple):
    """A command line that ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What it printed with `--json`."""
        return json.loads(self.out)


class Shell:
    """A user in a folder: runs `flowengine` in fresh processes, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder)}

    def __call__(
        self, *arguments: str | Path, code: int = 0, env: Mapping[str, str] | None = None
    ) -> Done:
        """Run a command, which must end with this code; nothing is on its standard input."""
        command = [str(PROGRAM), *map(str, arguments)]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.env | dict(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return Done(done.returncode, done.stdout, done.stderr)

    def waits(self, **filters: str) -> dict[str, dict[str, Any]]:
        """The pending approvals, by title."""
        options = [word for name, value in filters.items() for word in (f"--{name}", value)]
        return {
            wait["title"]: wait for wait in self("--json", "approvals", "list", *options).json()
        }


@pytest.fixture
def flowengine(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def group(flowengine: Shell) -> Callable[[str, list[str]], None]:
    """Name the members of a group in the settings of the project."""

    def write(name: str, members: list[str]) -> None:
        settings = flowengine.folder / ".flowengine" / "settings.yaml"
        settings.parent.mkdir(exist_ok=True)
        settings.write_text(json.dumps({"groups": {name: members}}))

    return write

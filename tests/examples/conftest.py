from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.command_line import Done
from tests.forked_program import PROGRAM, Forks, end_shared_forks, run_program, shared_forks

__all__ = ["EXAMPLES", "PROGRAM", "Shell"]

EXAMPLES: Path = Path(__file__).parents[2] / "examples"
Run = Callable[[Sequence[str], Path, Mapping[str, str]], "CompletedProcess[str]"]
"""Runs a command line in a folder, with environment variables."""


class Shell:
    """A user in a folder, who runs each `flowengine` command in a new process."""

    def __init__(self, folder: Path, run: Run = run_program) -> None:
        self.folder = folder
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self._run = run

    def __call__(
        self, *arguments: str | Path, code: int = 0, env: Mapping[str, str] | None = None
    ) -> Done:
        """Run a command without standard input, and check its exit code."""
        words = [*map(str, arguments)]
        done = self._run(words, self.folder, self.env | dict(env or {}))
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return Done(done.returncode, done.stdout, done.stderr)

    def waits(self, **filters: str) -> dict[str, dict[str, Any]]:
        """Return the pending approvals, by title."""
        options = [word for name, value in filters.items() for word in (f"--{name}", value)]
        return {
            wait["title"]: wait for wait in self("--json", "approvals", "list", *options).json()
        }


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    yield shared_forks()
    end_shared_forks()


@pytest.fixture(scope="session")
def worker_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the image of `examples/deploy`."""
    from tests.examples import deployed

    name = deployed.build(tmp_path_factory.mktemp("image"))
    yield name
    deployed.docker("rmi", "--force", name)


@pytest.fixture
def flowengine(tmp_path: Path, forks: Forks) -> Shell:
    return Shell(tmp_path, forks.run)

"""Runs `flowengine` in fresh processes that need not load its modules: forks of one that has.

Each run is a process as a user would start it, with its own folder, variables and streams. It only
finds those modules in memory that an earlier run has loaded, which would take most of its time.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, NoReturn

ROOT = Path(__file__).parents[1]
PROGRAM = Path(sys.executable).with_name("flowengine")
_KEPT = {"flowengine", "flowengine_envs", "flowengine_nodes", "cel_expr_python", "jsonschema_rs"}
"""Packages whose modules are kept in memory, with what they import: none reads a variable, starts
a thread or opens anything when it is imported."""


class Forks:
    """The process that is forked; it ends with the block."""

    def __enter__(self) -> Forks:
        self._folder = TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_program"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate()
        self._folder.cleanup()

    def run(
        self, words: Sequence[str], folder: Path, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line, with nothing on its standard input."""
        out, err = Path(self._folder.name, "out"), Path(self._folder.name, "err")
        asked = {
            "words": [*words],
            "folder": str(folder),
            "env": {**env},
            "out": str(out),
            "err": str(err),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(
            [str(PROGRAM), *words], code, out.read_text("utf-8"), err.read_text("utf-8")
        )


def run_program(
    words: Sequence[str], folder: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process that loads all of its modules, as `Forks.run` does."""
    return subprocess.run(
        [PROGRAM, *words],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _serve() -> None:
    """Run what is asked for, a line each, and answer with the exit code."""
    for line in sys.stdin:
        with TemporaryFile("w+") as loaded:
            pid = os.fork()
            if not pid:
                _become_program(json.loads(line), loaded.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            loaded.seek(0)
            _keep(loaded.read().split())
        print(code, flush=True)  # noqa: T201 - the answer


def _keep(names: Sequence[str]) -> None:
    """Load what a run had to load, for those that follow."""
    for name in names:
        importlib.import_module(name)
    if names:
        assert threading.active_count() == 1, "what forks must have one thread"
        gc.collect()
        gc.freeze()


def _become_program(asked: Mapping[str, Any], loaded: int) -> NoReturn:
    """Do what the installed program does, in its folder, with its variables and streams."""
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, source in enumerate(
        (
            os.open(os.devnull, os.O_RDONLY),
            os.open(asked["out"], flags, 0o600),
            os.open(asked["err"], flags, 0o600),
        )
    ):
        os.dup2(source, number)
        os.close(source)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # type: ignore[misc]  # noqa: SIM115
        2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    sys.argv = [str(PROGRAM), *asked["words"]]
    sys.path[0] = str(PROGRAM.parent)
    main = sys.modules["__main__"]
    main.__file__, main.__spec__ = str(PROGRAM), None
    before, ends = set(sys.modules), os._exit

    def told_and_ended(code: int) -> NoReturn:
        new = [name for name in [*sys.modules] if name not in before]
        kept = [name for name in new if name.partition(".")[0] in _KEPT]
        os.write(loaded, "\n".join(kept).encode())
        ends(code)

    os._exit = told_and_ended  # type: ignore[assignment]
    from flowengine.cli import script

    script()


if __name__ == "__main__":
    _serve()

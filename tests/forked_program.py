"""Runs `flowengine` in new processes, forked from one that has already loaded its modules.

Each run is a process as started by a user, with its own folder, variables and streams, or with a
terminal in a new session. Only the modules loaded by earlier runs are already in memory, as loading
them would take most of its time.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from fcntl import ioctl
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any, NoReturn

ROOT = Path(__file__).parents[1]
PROGRAM = Path(sys.executable).with_name("flowengine")
_KEPT = {
    *("flowengine", "flowengine_documents", "flowengine_envs", "flowengine_nodes"),
    *("re2", "jsonschema_rs", "mcp", "mcp_types"),
}
"""Packages kept in memory, with their imports. On import, they read no variables, start no threads
and open nothing.
"""


class Forks:
    """The process that is forked. It ends with the block."""

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
        """Run a command line with empty standard input."""
        out, err = Path(self._folder.name, "out"), Path(self._folder.name, "err")
        asked = {
            "words": [*words],
            "folder": str(folder),
            "env": {**env},
            "out": str(out),
            "err": str(err),
        }
        code = self._ask(asked)
        return subprocess.CompletedProcess(
            [str(PROGRAM), *words], code, out.read_text("utf-8"), err.read_text("utf-8")
        )

    def start(
        self, words: Sequence[str], folder: Path, env: Mapping[str, str], terminal: int
    ) -> OnTerminal:
        """Start a command line on a terminal, which becomes its controlling terminal."""
        told = os.path.join(self._folder.name, "told")
        os.mkfifo(told)
        try:
            reading = os.open(told, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            asked = {
                "words": [*words],
                "folder": str(folder),
                "env": {**env},
                "terminal": os.ttyname(terminal),
                "told": told,
            }
            return OnTerminal(self._ask(asked), reading)
        finally:
            os.unlink(told)

    def _ask(self, asked: Mapping[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


class OnTerminal:
    """A program on a terminal, with the interface of `subprocess.Popen`.

    Args:
        pid: ID of the process.
        told: Descriptor that yields the exit code once the process has ended.
    """

    def __init__(self, pid: int, told: int) -> None:
        self.pid = pid
        self._told = told
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code."""
        if self._code is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(PROGRAM), timeout or 0)
            self._code = int(os.read(self._told, 100))
            os.close(self._told)
        return self._code

    def poll(self) -> int | None:
        """Return the exit code, if it has ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kill the process."""
        os.kill(self.pid, signal.SIGKILL)


_SHARED = ExitStack()


@cache
def shared_forks() -> Forks:
    """Return the forks for all tests of this process. `end_shared_forks` ends them."""
    return _SHARED.enter_context(Forks())


def end_shared_forks() -> None:
    """End the shared forks, if there are any."""
    _SHARED.close()
    shared_forks.cache_clear()


def run_program(
    words: Sequence[str], folder: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command line like `Forks.run`, but in a process that loads all of its modules."""
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
    """Run a command line for each line of input, and print the exit code.

    For a program on a terminal, print the process ID. Its exit code follows later.
    """
    running: list[IO[str]] = []
    for line in sys.stdin:
        asked = json.loads(line)
        loaded = TemporaryFile("w+")  # noqa: SIM115 - it is closed when all is read from it
        if "terminal" in asked:
            running = [each for each in running if not _is_kept(each)]
            answer = _start(asked, loaded.fileno())
            running.append(loaded)
        else:
            pid = os.fork()
            if not pid:
                _take_streams(asked)
                _become_program(asked, loaded.fileno())
            answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            _is_kept(loaded)
            loaded.close()
        print(answer, flush=True)  # noqa: T201 - the answer


def _is_kept(loaded: IO[str]) -> bool:
    """Load the modules reported by a run. Return whether it has reported them yet."""
    size = os.fstat(loaded.fileno()).st_size
    _keep(os.pread(loaded.fileno(), size, 0).decode().split())
    if size:
        loaded.close()
    return bool(size)


def _start(asked: Mapping[str, Any], loaded: int) -> int:
    """Start a program on a terminal, and a process that reports its end. Return the program."""
    terminal = os.open(asked["terminal"], os.O_RDWR | os.O_NOCTTY)
    started, tell = os.pipe()
    waiter = os.fork()
    if not waiter:
        for number in range(2):  # otherwise the end of the forks would wait for this process
            os.dup2(terminal, number)
        telling = os.open(asked["told"], os.O_WRONLY)
        pid = os.fork()
        if not pid:
            _take_terminal(terminal)
            _become_program(asked, loaded)
        os.closerange(0, 2)
        os.close(terminal)
        os.write(tell, str(pid).encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(telling, str(code).encode())
        os._exit(0)
    os.close(terminal)
    pid = int(os.read(started, 100))
    os.close(started)
    os.close(tell)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:  # reap those that have reported
            pass
    return pid


def _keep(names: Sequence[str]) -> None:
    """Load the modules that a run had to load, for later runs."""
    for name in names:
        importlib.import_module(name)
    if names:
        assert threading.active_count() == 1, "what forks must have one thread"
        gc.collect()
        gc.freeze()


def _take_streams(asked: Mapping[str, Any]) -> None:
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


def _take_terminal(terminal: int) -> None:
    os.setsid()
    ioctl(terminal, termios.TIOCSCTTY, 0)
    for number in range(3):
        os.dup2(terminal, number)
    os.close(terminal)


def _become_program(asked: Mapping[str, Any], loaded: int) -> NoReturn:
    """Act like the installed program, in its folder, with its variables and streams."""
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
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

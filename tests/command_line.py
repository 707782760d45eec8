"""The command line and Python programs, run in the process of the tests.

Each run has its own standard streams, environment variables and modules, like a process, and must
not leave anything behind, as `nothing_left` checks.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import linecache
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

from flowengine.cli import main
from flowengine.engines import flows
from flowengine.errors import FlowFileError
from flowengine.sdk.environments.resources import background
from flowengine.sdk.python import user_code

PROGRAM = str(Path(sys.executable).with_name("flowengine"))
"""The installed program, for tests that need a separate process."""

ONCE = ("TIKTOKEN_CACHE_DIR",)
"""Variables that the model library sets once per process."""

SIGNALS = signal.valid_signals()


class Done(NamedTuple):
    """The result of a command line."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Parse the output of `--json`, which must be the only output."""
        return json.loads(self.out)

    @property
    def ids(self) -> list[str]:
        """The short IDs of waits, in order."""
        return re.findall(r"^  (\w{4,16})  ", self.err, re.MULTILINE)


def flowengine(
    *words: str | Path, typed: str | None = None, env: Mapping[str, str] | None = None
) -> Done:
    """Run a command in this process.

    Args:
        words: Arguments of the program.
        typed: Standard input as a pipe. None: that of the tests.
        env: Additional environment variables.
    """
    return _apart(lambda: main([str(word) for word in words]), typed, env)


def python(*words: str | Path, env: Mapping[str, str] | None = None) -> Done:
    """Run a Python program in this process: a file, or `-c` and its text.

    Programs that exit without cleanup need a separate process. Exceptions are reported like in
    Python.

    Args:
        words: Arguments of `python`.
        env: Additional environment variables.
    """
    return _apart(lambda: _run_program([str(word) for word in words]), None, env)


def compile_flow(path: str | Path) -> None:
    """Compile a flow, for a process that runs it next: it loads no compiler, and starts fast.

    The process must have the same state folder.

    Args:
        path: A flow file. One with errors is left to the process.
    """

    def load() -> int:
        with suppress(FlowFileError):
            flows.load(path)
        return 0

    _apart(load, None, None)


def _apart(call: Callable[[], int], typed: str | None, env: Mapping[str, str] | None) -> Done:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with ExitStack() as stack:
        if typed is not None:
            stdin = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            stdin.write(typed)
            stdin.seek(0)
            stack.enter_context(patch.object(sys, "stdin", stdin))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        stack.enter_context(patch.dict(os.environ, env or {}))
        stack.enter_context(nothing_left())
        stack.enter_context(_own_modules())
        code = call()
    return Done(code, *(_written(stream) for stream in (out, err)))


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def _run_program(words: list[str]) -> int:
    """Run a program like a process would: as the module `__main__`, next to its own modules."""
    program = ModuleType("__main__")
    if words[0] == "-c":
        name, text, beside, argv = "<string>", words[1], "", ["-c", *words[2:]]
    else:
        name, text, argv = words[0], Path(words[0]).read_text(encoding="utf-8"), words
        beside = str(Path(name).resolve().parent)
        program.__file__ = name
    with (
        patch.object(sys, "argv", argv),
        patch.object(sys, "path", [beside, *sys.path]),
        _main_module(program),
    ):
        try:
            exec(compile(text, name, "exec"), program.__dict__)
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        except Exception:
            traceback.print_exc()
            return 1
        finally:
            linecache.clearcache()  # other programs have the same name
    return 0


@contextmanager
def _main_module(program: ModuleType) -> Iterator[None]:
    before = sys.modules["__main__"]
    sys.modules["__main__"] = program
    try:
        yield
    finally:
        sys.modules["__main__"] = before


@contextmanager
def _own_modules() -> Iterator[None]:
    """Forget the modules of the current folder at the end, for the next run to import them.

    Packages that are installed below it stay: another copy of one would have other classes.
    """
    known = {*sys.modules}
    folder = os.path.join(os.getcwd(), "") if os.path.exists(".") else None
    try:
        yield
    finally:
        for name in {*sys.modules} - known:
            file = os.path.abspath(getattr(sys.modules[name], "__file__", None) or "")
            if folder and file.startswith(folder) and not file.startswith(sys.prefix):
                del sys.modules[name]


kept_open = threading.Lock()
"""While it is held, as by a test with a server in this process, calls check nothing."""


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fail if threads, processes, open files or settings of this process are left or changed.

    Resources that are released within a moment are waited for. Nested calls check nothing:
    resources of the outer call can be distinguished only once it has ended.
    """
    if not kept_open.acquire(blocking=False):
        yield
        return
    try:
        held, settings = _held(), _settings()
        yield
    finally:
        kept_open.release()
    if _held() - held:
        gc.collect()
        end = time.monotonic() + 300
        while left := _held() - held:
            assert time.monotonic() < end, f"left behind: {sorted(left)}"
            time.sleep(0.01)
    changed = {name for name, _ in settings.items() ^ _settings().items()}
    assert not changed, f"changed: {sorted(changed)}"


def _held() -> set[str]:
    """Return the resources of this process: threads, child processes, files."""
    held = {f"thread {one.name} {one.ident}" for one in threading.enumerate() if _of_call(one)}
    # Threads wait here for the next function: those that do not are at work.
    steps = [one for one in threading.enumerate() if one.name == "flowengine-step"]
    held |= {f"function at work {number}" for number in range(user_code._idle.qsize(), len(steps))}
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children", encoding="ascii") as children:
                held |= {f"process {pid}" for pid in children.read().split()}
        except OSError:  # the thread has ended
            continue
    for number in os.listdir("/proc/self/fd"):
        try:
            file = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # already closed
            continue
        if not file.startswith("socket:"):  # clients of daemons and models keep connections
            held.add(f"file {number}: {file}")
    return held


def _of_call(thread: threading.Thread) -> bool:
    """Return whether a thread belongs to the call, not to a test or to the process as a whole."""
    executor: Any = getattr(background().loop, "_default_executor", None)
    # The threads of an executor are in no public list.
    kept = {background().thread, *(executor._threads if executor else ())}
    target = getattr(getattr(thread, "_target", None), "__module__", None) or ""
    of_test = target.startswith("tests.")
    return thread not in kept and thread.name != "flowengine-step" and not of_test


def _settings() -> dict[str, Any]:
    """Return the settings of this process that a command could change."""
    variables = {f"variable {name}": one for name, one in os.environ.items() if name not in ONCE}
    handlers = {f"handler of {one}": signal.getsignal(one) for one in SIGNALS}
    return {
        **variables,
        **handlers,
        "folder": os.getcwd() if os.path.exists(".") else None,
        "path": tuple(sys.path),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "running event loop": _running_loop(),
    }


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

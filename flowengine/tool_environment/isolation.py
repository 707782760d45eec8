"""Execution of a function in a separate process, which protects this one from its crashes.

Run as a program, this module is that process. It reads the call from standard input, and writes the
outcome to the file named by its argument.
"""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from flowengine.sdk import Processes, ToolError

LAST_WORDS = 500
"""Maximum characters of the process's last output in an error."""


async def run_isolated(
    function: Callable[..., Any], args: dict[str, Any], processes: Processes
) -> Any:
    """Call a module's function in a separate process.

    Args:
        function: A function that can be imported.
        args: Its arguments by name.
        processes: Starts the process, and ends it with the call.

    Returns:
        The return value of the function.

    Raises:
        ToolError: The process ended before the function returned.
        BaseException: The exception that the function raised.
    """
    asked = pickle.dumps((function.__module__, function.__qualname__, args, sys.path))
    with tempfile.TemporaryDirectory(prefix="flowengine-tool-") as folder:
        answer = Path(folder) / "answer"
        done = await processes.run(
            [sys.executable, "-m", __name__, os.fspath(answer)],
            env=dict(os.environ),
            cwd=os.getcwd(),
            stdin=asked,
        )
        if not answer.exists():
            output = (done.stderr or done.stdout).strip()[-LAST_WORDS:]
            raise ToolError(
                f"the process of the tool ended with exit code {done.exit_code}"
                + (f": {output}" if output else "")
            )
        value, error = pickle.loads(answer.read_bytes())
    if error is not None:
        raise error
    return value


def main(answer: str) -> None:
    """Call the function requested on standard input, and write the outcome."""
    module, name, args, path = pickle.load(sys.stdin.buffer)
    sys.path[:] = path
    outcome: tuple[Any, BaseException | None]
    try:
        value = getattr(import_module(module), name)(**args)
        if inspect.iscoroutine(value):
            import asyncio

            value = asyncio.run(value)
        outcome = value, None
    except BaseException as error:
        outcome = None, error.with_traceback(None)  # it refers to frames
    data = _pickled(outcome)
    unfinished = Path(f"{answer}.new")
    unfinished.write_bytes(data)
    unfinished.rename(answer)


def _pickled(outcome: tuple[Any, BaseException | None]) -> bytes:
    try:
        data = pickle.dumps(outcome)
        pickle.loads(data)
    except Exception:
        what = f"{type(outcome[0] if outcome[1] is None else outcome[1]).__qualname__}"
        return pickle.dumps((None, ToolError(f"{what} cannot be passed to another process")))
    return data


if __name__ == "__main__":
    main(sys.argv[1])

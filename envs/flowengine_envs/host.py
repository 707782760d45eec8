"""`host`: commands on this machine, as the user, without isolation.

Each command gets a fresh temporary directory, which is gone afterwards; what is to stay is named in
`files`. It inherits the user's environment variables except those that hold secrets of the flow:
these it gets only by asking. Beside them it finds

    FLOW_OUTPUT           file to write JSON to: `output.value`
    FLOW_WORKDIR          the working folder
    FLOW_IDEMPOTENCY_KEY  the same each time this activation is tried
"""

from __future__ import annotations

import base64
import glob
import json
import os
import shutil
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from flowengine.sdk import (
    Command,
    Completed,
    Environment,
    EnvironmentUnavailable,
    PathEscape,
    Plain,
    StepContext,
    ToolError,
    ValidationError,
)
from flowengine.sdk.scratch import scratch_folder
from flowengine_envs.kept_files import is_kept_file, place_of, source_of

_LARGEST_VALUE = 16 * 1024 * 1024


class Host(Environment):
    """Runs commands on this machine."""

    async def run(self, context: StepContext, command: Command) -> dict[str, Plain]:
        """Run one command in a fresh temporary directory."""
        with scratch_folder() as folder:
            return await self._run_in(folder, context, command)

    async def _run_in(
        self, folder: Path, context: StepContext, command: Command
    ) -> dict[str, Plain]:
        inputs = _Inputs(folder / "files", context)
        work = folder / "work"
        work.mkdir()
        cwd = work if command.cwd is None else _directory(command.cwd, context)
        output = folder / "output.json"
        argv = _argv(command, folder, inputs)
        env = {
            **{name: text for name, text in os.environ.items() if name not in context.hidden},
            "FLOW_WORKDIR": context.execution.workdir,
            "FLOW_IDEMPOTENCY_KEY": context.idempotency_key,
            "FLOW_OUTPUT": str(output),
            **_variables(command.env, inputs),
        }
        start = _start(context, argv, env, cwd, inputs.data(command.stdin))
        done = await _in_time(start, command.timeout)
        result: dict[str, Plain] = {
            "exit_code": done.exit_code,
            "stdout": done.stdout,
            "stderr": done.stderr,
            "value": None,
            "files": {},
        }
        if done.stdout_file is not None:
            result["stdout_file"] = done.stdout_file
        if done.stderr_file is not None:
            result["stderr_file"] = done.stderr_file
        result["value"] = _value(output, done)
        result["files"] = await context.on_thread(lambda: _keep(command, cwd, context, done))
        return result


async def _in_time(start: Coroutine[Any, Any, Completed], timeout: float | None) -> Completed:
    """Run a program for so many seconds at most; what it wrote until then is lost."""
    if timeout is None:
        return await start
    import asyncio

    try:
        return await asyncio.wait_for(start, timeout)
    except TimeoutError:
        return Completed(124, "", f"it took longer than {timeout:g} s and was stopped\n")


async def _start(
    context: StepContext, argv: list[str], env: dict[str, str], cwd: Path, stdin: bytes | None
) -> Completed:
    """Run a program; one that cannot be started gives the exit code and the text of a shell."""
    try:
        return await context.processes.run(argv, env=env, cwd=str(cwd), stdin=stdin)
    except FileNotFoundError:
        return Completed(127, "", f"{argv[0]}: there is no such program\n")
    except PermissionError:
        return Completed(126, "", f"{argv[0]}: not allowed to run it\n")
    except ValueError as error:
        raise ValidationError(
            f"an argument or variable contains a null character: {error}"
        ) from None
    except OSError as error:
        raise ToolError(
            f"{argv[0]} cannot be started: {error.strerror}; large values belong in 'stdin'",
            retryable=False,
        ) from None


class _Inputs:
    """Turns values into text, and puts files of other steps where the command can read them.

    Args:
        folder: Where the files go.
    """

    def __init__(self, folder: Path, context: StepContext) -> None:
        self._folder = folder
        self._context = context

    def text(self, value: Plain) -> str:
        """Return a value as text: text as it is, anything else as JSON."""
        return value if isinstance(value, str) else json.dumps(self._placed(value))

    def data(self, value: Plain) -> bytes | None:
        """Return what a command reads from its standard input."""
        if value is None or isinstance(value, bytes):
            return value
        return self.text(value).encode()

    def argument(self, value: Plain) -> str:
        """Return a value as an argument: of a file its path."""
        return self._place(value) if is_kept_file(value) else self.text(value)

    def _placed(self, value: Plain) -> Plain:
        if is_kept_file(value):
            return {**value, "path": self._place(value)}
        if isinstance(value, dict):
            return {key: self._placed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._placed(item) for item in value]
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value

    def _place(self, file: Mapping[str, Any]) -> str:
        """Copy a kept file under its own name, so that changing it here changes nothing there."""
        source = source_of(file, self._context)
        path = self._folder / place_of(file)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, path)
        return str(path)


def _argv(command: Command, folder: Path, inputs: _Inputs) -> list[str]:
    if command.script is not None:
        if shutil.which("bash") is None:
            raise EnvironmentUnavailable(
                "scripts on 'host' need bash, which is not installed; install it, or use 'argv'"
            )
        script = folder / "script"
        script.write_text(command.script, encoding="utf-8")
        return ["bash", str(script)]
    argv: list[Plain] = list(command.argv or ())
    if None in argv:
        raise ValidationError(f"item {argv.index(None)} of 'argv' is null")
    return [inputs.argument(item) for item in argv]


def _variables(env: Mapping[str, Plain], inputs: _Inputs) -> dict[str, str]:
    return {name: inputs.text(value) for name, value in env.items() if value is not None}


def _directory(cwd: str, context: StepContext) -> Path:
    path = Path(context.execution.workdir, os.path.expanduser(cwd))
    if not path.is_dir():
        raise ValidationError(f"there is no directory {path} ('cwd')")
    return path


def _value(output: Path, done: Completed) -> Plain:
    """Return the JSON that the command has written; of one that failed only if it is whole."""
    try:
        if output.stat().st_size > _LARGEST_VALUE:
            raise ValidationError(
                f"what was written to $FLOW_OUTPUT is over {_LARGEST_VALUE} bytes; keep it as a "
                "file with 'files'"
            )
        text = output.read_text(encoding="utf-8")
        return json.loads(text) if text.strip() else None
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        if done.exit_code != 0:
            return None
        raise ValidationError(f"what was written to $FLOW_OUTPUT is not JSON: {error}") from None


def _keep(command: Command, cwd: Path, context: StepContext, done: Completed) -> dict[str, Plain]:
    """Keep the files that the step names; those of a command that failed as far as there are."""
    kept: dict[str, Plain] = {}
    root = cwd.resolve()
    artifacts = context.execution.artifacts
    for name, pattern in command.files.items():
        if glob.has_magic(pattern):
            paths = [cwd / each for each in glob.glob(pattern, root_dir=cwd, recursive=True)]
            files = [path for path in sorted(paths) if _is_inside(root, path) and path.is_file()]
            kept[name] = [artifacts.put(path, path.name) for path in files]
            continue
        path = cwd / pattern
        if not _is_inside(root, path):
            raise PathEscape(
                f"'{name}' in 'files' leads out of the directory of the command: {pattern}"
            )
        if path.is_file():
            kept[name] = artifacts.put(path, path.name)
        elif done.exit_code == 0:
            raise ValidationError(f"there is no file '{pattern}' to be kept as '{name}'")
    return kept


def _is_inside(root: Path, path: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # links that lead in a circle
        return False

"""`host`: commands on this machine, as the user, without isolation.

Each command runs in a fresh temporary directory, which is removed afterwards. Files to keep are
named in `files`. It inherits the user's environment variables except those that hold secrets of the
flow, which it receives only if it requests them. The engine adds

    FLOW_OUTPUT           file to write JSON to: `output.value`
    FLOW_WORKDIR          the working directory
    FLOW_IDEMPOTENCY_KEY  the same for every attempt of this activation
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from flowengine.sdk import (
    Command,
    CommandEnvironment,
    Completed,
    EnvironmentUnavailable,
    Plain,
    StepContext,
    ToolError,
    ValidationError,
)
from flowengine.sdk.files.confined_files import Below
from flowengine.sdk.processes import scratch_folder
from flowengine_envs.kinds.results import CommandResult
from flowengine_envs.kinds.workspace import (
    HostFolder,
    StepFiles,
    place_for_value,
)


class HostCommands(CommandEnvironment):
    """Runs commands on this machine."""

    async def run(self, context: StepContext, command: Command) -> dict[str, Plain]:
        """Run one command in a fresh temporary directory."""
        with scratch_folder() as folder:
            for name in ("work", "own"):
                (folder / name).mkdir()
            cwd = folder / "work" if command.cwd is None else _directory(command.cwd, context)
            with HostFolder(cwd, folder / "own", context.execution.workdir) as there:
                files = _Files(there, context)
                argv = await _argv(command, folder, files)
                output, variables = await place_for_value(files, command)
                inherited = {name: os.environ[name] for name in os.environ.keys() - context.hidden}
                stdin = await files.data(command.stdin)
                start = _start(context, argv, inherited | variables, cwd, stdin)
                is_late = False
                try:
                    async with asyncio.timeout(command.timeout):
                        done = await start
                except TimeoutError:  # its output is lost
                    is_late = True
                    late = f"it took longer than {command.timeout:g} s and was stopped\n"
                    done = Completed(124, "", late)
                told = CommandResult(
                    exit_code=done.exit_code,
                    stdout=done.stdout,
                    stderr=done.stderr,
                    timed_out=is_late,
                    truncated=False,
                    duration=0.0,
                    limit="time" if is_late else None,
                )
                result = await files.output(command, told, told.stderr, place=output)
            if done.stdout_file is not None:
                result["stdout_file"] = done.stdout_file
            if done.stderr_file is not None:
                result["stderr_file"] = done.stderr_file
            return result


class _Files(StepFiles):
    """Files of a command on this machine."""

    def __init__(self, there: HostFolder, context: StepContext) -> None:
        super().__init__(there, context)
        self._cwd = there.cwd

    async def matching(self, cwd: str, pattern: str) -> list[str]:
        """Search the directory itself: it may be a project with more files than a listing holds."""
        below = Below(self._cwd)
        return await self.context.on_thread(lambda: below.glob(".", pattern))


async def _start(
    context: StepContext, argv: list[str], env: dict[str, str], cwd: Path, stdin: bytes | None
) -> Completed:
    """Run a program. If it does not start, return a shell's exit code and text."""
    try:
        return await context.processes.run(argv, env=env, cwd=str(cwd), stdin=stdin)
    except FileNotFoundError:
        return Completed(127, "", f"{argv[0]}: command not found\n")
    except PermissionError:
        return Completed(126, "", f"{argv[0]}: not allowed to run it\n")
    except ValueError as error:
        raise ValidationError(
            f"an argument or variable contains a null character: {error}"
        ) from None
    except OSError as error:
        raise ToolError(
            f"{argv[0]} cannot be started: {error.strerror}. Large values belong in 'stdin'",
            retryable=False,
        ) from None


async def _argv(command: Command, folder: Path, files: _Files) -> list[str]:
    if command.script is not None:
        if shutil.which("bash") is None:
            raise EnvironmentUnavailable(
                "scripts on 'host' need bash, which is not installed: install it, or use 'command'"
            )
        script = folder / "script"
        script.write_text(command.script, encoding="utf-8")
        return ["bash", str(script)]
    argv: list[Plain] = list(command.argv or ())
    if None in argv:
        raise ValidationError(f"item {argv.index(None)} of 'command' is null")
    return [await files.argument(item) for item in argv]


def _directory(cwd: str, context: StepContext) -> Path:
    path = Path(context.execution.workdir, os.path.expanduser(cwd))
    if not path.is_dir():
        raise ValidationError(f"there is no directory {path} ('cwd', relative to the --workdir)")
    return path

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
import sys
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
from flowengine_envs.kinds.workspace import (
    StepFiles,
    WorkspaceEntry,
    as_entries,
    copy_out,
    place_for_value,
    read_bytes,
    step_value,
)
from flowengine_envs.workspaces.files import Workspace
from flowengine_envs.workspaces.outside_files import OutsideFiles


class HostCommands(CommandEnvironment):
    """Runs commands on this machine."""

    async def run(self, context: StepContext, command: Command) -> dict[str, Plain]:
        """Run one command in a fresh temporary directory."""
        with scratch_folder() as folder:
            for name in ("work", "own"):
                (folder / name).mkdir()
            cwd = folder / "work" if command.cwd is None else _directory(command.cwd, context)
            with _Folder(cwd, folder / "own", context.execution.workdir) as there:
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
                failed = done.exit_code != 0
                result: dict[str, Plain] = {
                    "exit_code": done.exit_code,
                    "stdout": done.stdout,
                    "stderr": done.stderr,
                }
                result["value"] = await step_value(there, output, result)
                result["files"] = await files.keep(command, ".", failed=failed)
            if is_late:
                result["limit"] = "time"
            if done.stdout_file is not None:
                result["stdout_file"] = done.stdout_file
            if done.stderr_file is not None:
                result["stderr_file"] = done.stderr_file
            return result


class _Folder:
    """The directory of a command on this machine, and the engine's files for it.

    Args:
        cwd: Where the command runs.
        own: The engine's directory for this command only.
        workdir: The working directory of the execution.
    """

    taken_out = (sys.maxsize, "")
    """No limit is set on programs that run as the user."""
    network = "any"

    def __init__(self, cwd: Path, own: Path, workdir: str) -> None:
        self.cwd = cwd
        self.own = str(own)
        self.workdir = workdir
        self._places = [Workspace(str(cwd)), Workspace(str(own))]
        self._files = OutsideFiles("host", self._places)

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, *exc: object) -> None:
        for place in self._places:
            os.close(place.fd)

    async def async_put(self, path: str, data: bytes | Path) -> None:
        await self._files.write(path, data, 0o644)

    async def async_get(self, path: str, largest: int) -> bytes:
        return await read_bytes(self._files.read, path, largest)

    async def async_fetch(self, path: str, to: Path, largest: int) -> int:
        return await copy_out(self._files.read, path, to, largest)

    async def async_list(self, *, deep: bool) -> list[WorkspaceEntry]:
        return as_entries(await self._files.entries(".", deep=deep), "the working directory")

    async def async_remove(self, path: str) -> None:
        await self._files.remove(path)


class _Files(StepFiles):
    """Files of a command on this machine."""

    def __init__(self, there: _Folder, context: StepContext) -> None:
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

"""Inputs and outputs of a `run` step: files of other steps in, values and files out."""

from __future__ import annotations

import asyncio
import base64
import fnmatch
import json
import os
import posixpath
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from flowengine.sdk import (
    Command,
    File,
    LimitExceeded,
    NotAFile,
    Plain,
    StepContext,
    ValidationError,
)
from flowengine.sdk.network_hints import network_hint
from flowengine.sdk.received import received_json, received_text
from flowengine.sdk.scratch import scratch_folder
from flowengine.sdk.sizes import size_text
from flowengine_envs.kinds.results import CodeResult, CommandResult, ContainerResult, in_file
from flowengine_envs.kinds.workspace import WorkspaceEntry
from flowengine_envs.workspaces.kept_files import is_kept_file, place_of, source_of

LARGEST_VALUE = 16 * 1024 * 1024
"""Maximum bytes that a command may write to `$FLOW_OUTPUT`."""


class StepFolder(Protocol):
    """The place where a step's program runs. Its methods are those of `InWorkspace`."""

    @property
    def taken_out(self) -> tuple[int, str]: ...

    @property
    def own(self) -> str: ...

    @property
    def network(self) -> str | list[str]: ...

    @property
    def workdir(self) -> str: ...

    async def async_put(self, path: str, data: bytes | Path, /) -> None: ...

    async def async_get(self, path: str, largest: int, /) -> bytes: ...

    async def async_fetch(self, path: str, to: Path, largest: int, /) -> int: ...

    async def async_list(self, *, deep: bool) -> list[WorkspaceEntry]: ...

    async def async_remove(self, path: str, /) -> None: ...


class StepFiles:
    """Files of one step.

    Args:
        resource: Where its program runs.
    """

    def __init__(self, resource: StepFolder, context: StepContext) -> None:
        self.resource = resource
        self.context = context

    async def place(self, value: Plain) -> Plain:
        """Return a value whose kept files are at paths that the code can read.

        Args:
            value: Plain data. The `path` of a file of another step is replaced.

        Returns:
            The value, otherwise unchanged.
        """
        if is_kept_file(value):
            return {**value, "path": await self._place(value)}
        if isinstance(value, dict):
            return {key: await self.place(item) for key, item in value.items()}
        if isinstance(value, list):
            return [await self.place(item) for item in value]
        return value

    async def text(self, value: Plain) -> str:
        """Return a value as text. Anything that is not text becomes JSON."""
        if isinstance(value, str):
            return value
        return json.dumps(await self.place(value), default=_base64)

    async def argument(self, value: Plain) -> str:
        """Return a value as an argument. A file becomes its path."""
        return await self._place(value) if is_kept_file(value) else await self.text(value)

    async def variables(self, command: Command) -> dict[str, str]:
        """Return a command's variables: those of every step and its own."""
        own = {
            "FLOW_IDEMPOTENCY_KEY": self.context.idempotency_key,
            "FLOW_WORKDIR": self.resource.workdir,
        }
        for name, value in command.env.items():
            if value is not None:
                own[name] = await self.text(value)
        return own

    async def data(self, value: Plain) -> bytes | None:
        """Return the standard input of a command."""
        if value is None or isinstance(value, bytes):
            return value
        return (await self.text(value)).encode()

    async def keep(self, command: Command, cwd: str, *, failed: bool) -> dict[str, Plain]:
        """Keep the files that a step names, or those that exist if it failed.

        Args:
            command: The step's command.
            cwd: Directory of the workspace to which patterns are relative.
            failed: Whether it failed.

        Returns:
            Name → file, or a list for a pattern.

        Raises:
            ValidationError: A named file does not exist.
        """
        kept: dict[str, Plain] = {}
        largest, limit = self.resource.taken_out
        left = largest
        for name, pattern in command.files.items():
            several = any(sign in pattern for sign in "*?[")
            paths = await self.matching(cwd, pattern) if several else [_joined(cwd, pattern)]
            files: list[Plain] = []
            try:
                for path in paths:
                    file = await self.kept(path, left)
                    files.append(file)
                    left -= file["size"]
            except LimitExceeded as error:
                raise LimitExceeded(
                    f"files to be kept as '{name}': {error.message}; all that a step keeps may "
                    f"have {limit}",
                    data={"limit": "disk", "value": largest},
                ) from None
            except NotAFile:
                if several:
                    raise
                if not failed:
                    raise ValidationError(
                        f"there is no file '{pattern}' to be kept as '{name}'"
                    ) from None
                continue
            kept[name] = files if several else files[0]
        return kept

    async def matching(self, cwd: str, pattern: str) -> list[str]:
        """Return the files that match a pattern, as paths for `kept`.

        Args:
            cwd: Directory of the workspace to which the pattern is relative.
            pattern: With `*`, `?`, `[...]` or `**`.
        """
        entries = await self.resource.async_list(deep=True)
        wanted = posixpath.normpath(_joined(cwd, pattern))
        files = [entry.path for entry in entries if entry.kind == "file"]
        return await asyncio.to_thread(lambda: [path for path in files if _matches(path, wanted)])

    async def kept(self, path: str, largest: int) -> File:
        """Keep a file of the workspace.

        Args:
            path: As for `fetch`.
            largest: Maximum size in bytes.

        Returns:
            The kept file, as data.

        Raises:
            NotAFile: The file does not exist.
            LimitExceeded: It is larger.
        """
        with scratch_folder() as folder:
            copy = folder / "copy"
            await self.resource.async_fetch(path, copy, largest)
            artifacts = self.context.execution.artifacts
            name = os.path.basename(path)
            return await self.context.on_thread(lambda: artifacts.put(copy, name))

    async def _place(self, file: Mapping[str, Any]) -> str:
        """Copy a kept file into the workspace under its own name."""
        path = f"{self.resource.own}/inputs/{place_of(file)}"
        await self.resource.async_put(path, Path(source_of(file, self.context)))
        return path


def code_of(command: Command, kind: str) -> str:
    """Return the code of a step.

    Args:
        command: The step's command.
        kind: The kind it runs in.

    Returns:
        The text.

    Raises:
        ValidationError: It has `argv`, `stdin` or `cwd`, which have no meaning here.
    """
    if command.script is None:
        raise ValidationError(f"'{kind}' runs a script; 'argv' belongs to bash and docker")
    for name, value in (("stdin", command.stdin), ("cwd", command.cwd)):
        if value is not None:
            raise ValidationError(f"'{kind}' has no '{name}'; pass values with 'env'")
    return command.script


async def step_result(files: StepFiles, command: Command, result: CodeResult) -> dict[str, Plain]:
    """Return the output of a step that ran code. An error is exit code 1 and text in `stderr`.

    The last line names the limit that ended the code.

    Args:
        files: Files of the step.
        command: The step's command.
        result: The result of the code.

    Returns:
        `{exit_code, stdout, stderr, value, files}`.
    """
    stderr = result.stderr
    if result.error is not None and (result.limit or not result.error.traceback):
        stderr += f"{result.error}\n"
    outcome: dict[str, Plain] = {
        "exit_code": result.exit_code,
        "stdout": result.stdout,
        "stderr": stderr,
        "value": result.text if result.value is None and result.text else result.value,
    }
    await add_outputs(files, result, outcome)
    outcome["files"] = await files.keep(command, ".", failed=result.error is not None)
    return outcome


async def add_outputs(
    files: StepFiles,
    result: CodeResult | CommandResult | ContainerResult,
    outcome: dict[str, Plain],
) -> None:
    """Add the limit that was reached, and output too large for a result as files.

    Args:
        files: Files of the step.
        result: The result of the call.
        outcome: The step's output, which is extended.
    """
    if result.limit is not None:
        outcome["limit"] = result.limit
    explain_network(files.resource, outcome)
    for name, path in (("stdout", result.stdout_file), ("stderr", result.stderr_file)):
        if path is not None:
            kept = await files.kept(path, files.resource.taken_out[0])
            outcome[f"{name}_file"] = dict(kept)
            # The path is gone with the environment.
            text = str(outcome[name])
            outcome[name] = text.replace(in_file(path), in_file(f"the output's {name}_file"), 1)


def explain_network(resource: StepFolder, outcome: dict[str, Any]) -> None:
    """Add to the errors of a failed program that its environment cuts it off from the network.

    Args:
        resource: Where it ran.
        outcome: The step's output.
    """
    hint = network_hint(resource.network, outcome["stdout"], outcome["stderr"])
    if outcome["exit_code"] != 0 and hint:
        before = outcome["stderr"] and outcome["stderr"].rstrip("\n") + "\n"
        outcome["stderr"] = f"{before}{hint}\n"


async def place_for_value(files: StepFiles, command: Command) -> tuple[str, dict[str, str]]:
    """Create the file for the value of a command.

    Args:
        files: Files of the step.
        command: The step's command.

    Returns:
        The file, and the variables for the command.
    """
    place = f"{files.resource.own}/outputs/{os.urandom(8).hex()}.json"
    await files.resource.async_put(place, b"")
    output = {"FLOW_OUTPUT": place}
    return place, output | await files.variables(command)


async def step_value(resource: StepFolder, place: str, outcome: Mapping[str, Plain]) -> Plain:
    """Return the JSON that a command has written, and remove its file.

    Args:
        resource: Where the command ran.
        place: The file.
        outcome: Exit code and output of the command. If it failed, an invalid value is ignored.
            Otherwise they are the data of the error, because the command has run.

    Returns:
        The value, or None.

    Raises:
        ValidationError: It is too large or not JSON.
    """
    try:
        data = await resource.async_get(place, LARGEST_VALUE)
    except NotAFile:
        return None
    except LimitExceeded:
        raise ValidationError(
            f"what was written to $FLOW_OUTPUT is over {size_text(LARGEST_VALUE)}; keep it "
            "as a file with 'files'",
            data=dict(outcome),
        ) from None
    finally:
        with suppress(NotAFile):
            await resource.async_remove(place)
    try:
        text = received_text(data, errors="replace")
        value = received_json(text, lenient=True) if text.strip() else None
    except ValueError as error:
        if outcome["exit_code"] != 0:
            return None
        raise ValidationError(
            f"what was written to $FLOW_OUTPUT cannot be read as JSON: {error}",
            data=dict(outcome),
        ) from None
    return value


def _joined(cwd: str, path: str) -> str:
    return path if path.startswith("/") or cwd == "." else f"{cwd}/{path}"


def _matches(path: str, pattern: str) -> bool:
    """Match like a glob: `*` stays within a directory, `**` does not."""
    parts = path.split("/")
    fitting = {0}
    """The numbers of leading path parts that the pattern can match so far."""
    for wanted in pattern.split("/"):
        if wanted == "**":
            fitting = set(range(min(fitting), len(parts) + 1))
        else:
            fitting = {
                at + 1
                for at in fitting
                if at < len(parts) and fnmatch.fnmatchcase(parts[at], wanted)
            }
        if not fitting:
            return False
    return len(parts) in fitting


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()

"""Shared code of the kinds that run programs in a workspace: its files, steps and limits."""

from __future__ import annotations

import asyncio
import base64
import fnmatch
import json
import os
import posixpath
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.sdk import (
    Command,
    File,
    LimitExceeded,
    NotAFile,
    Plain,
    StepContext,
    ToolError,
    ValidationError,
)
from flowengine.sdk.environments import Request, Resource, both_forms
from flowengine.sdk.environments.models import ResourceLimits
from flowengine.sdk.environments.network_hints import network_hint, reachable
from flowengine.sdk.processes import scratch_folder
from flowengine.sdk.texts.received import received_json, received_text
from flowengine.sdk.texts.sizes import size_text
from flowengine_envs.kinds.results import CodeResult, CommandResult, in_file
from flowengine_envs.link.call_limits import CallLimits
from flowengine_envs.workspaces.files import LISTED, Workspace, is_listable
from flowengine_envs.workspaces.kept_files import is_kept_file, place_of, source_of
from flowengine_envs.workspaces.outside_files import OutsideFiles
from flowengine_envs.workspaces.own_folder import OWN

# Shared code of the kinds that run programs in a workspace: its files, and limits of calls.
#
# A kind implements how a file is read and written where its programs run. The file operations are
# here.

LARGEST_READ = 256 * 1024 * 1024
"""Bytes of a file that `get` reads into memory, unless the caller sets a limit."""


class WorkspaceEntry(NamedTuple):
    """An entry of the workspace."""

    path: str
    """Path relative to the workspace."""
    kind: str
    """`file`, `folder`, `link`, `pipe`, `socket`, `device`."""
    size: int
    mode: int
    modified: float
    """Seconds since 1970."""


ReadFile = Callable[[str, Callable[[bytes], Any], int], Awaitable[int]]
"""Passes on a file up to a maximum size and returns its mode: `InWorkspace.read_file`."""


async def read_bytes(read: ReadFile, path: str, largest: int) -> bytes:
    """Return the bytes of a file. Arguments and errors are those of `InWorkspace.get`."""
    parts: list[bytes] = []
    await read(path, parts.append, largest)
    return b"".join(parts)


async def copy_out(read: ReadFile, path: str, to: Path, largest: int) -> int:
    """Copy a file and return its size. Arguments and errors are those of `InWorkspace.fetch`."""
    with to.open("wb") as copy:
        try:
            mode = await read(path, copy.write, largest)
            os.fchmod(copy.fileno(), mode & 0o777)
            return copy.tell()
        except BaseException:
            os.unlink(to)
            raise


class InWorkspace(Resource):
    """Runs programs in a workspace, whose files are copied in and out unchanged."""

    def __init__(self, request: Request, workdir: str, home: str) -> None:
        super().__init__(request)
        self.request = request
        self.workdir = workdir
        """The workspace as programs see it."""
        self.home = home
        """The home directory as programs see it. It is outside the workspace, but lasts as long."""
        self.limits: ResourceLimits = request.limits
        self.workspace = request.workspace
        """Directory on the host. Programs can create links in it, so read it only with `get`."""
        self.call_limits = CallLimits(self.name, request.limits)

    @property
    def network(self) -> str | list[str]:
        """The destinations that programs may reach: `any`, `none`, `public`, or a list."""
        return reachable(self.request)

    @property
    def own(self) -> str:
        """The directory, as programs see it, for files kept apart from the user's."""
        return f"{self.home}/{OWN}"

    @property
    def declared(self) -> dict[str, str]:
        """The variables that the spec declares for programs, with secrets in plain text."""
        return {
            name: str(value.reveal() if hasattr(value, "reveal") else value)
            for name, value in self.request.config.env.items()
        }

    @property
    def taken_out(self) -> tuple[int, str]:
        """Bytes of files that a step may keep, and the setting that limits them."""
        return self.call_limits.taken_out

    async def write_file(self, path: str, data: bytes | Path, mode: int) -> None:
        """Write a file atomically. Implemented by kinds, with the errors of `put`."""
        raise NotImplementedError

    async def read_file(self, path: str, take: Callable[[bytes], Any], largest: int) -> int:
        """Pass on a file piece by piece and return its permissions. Implemented by kinds.

        Args:
            path: As for `get`.
            take: Called with each piece.
            largest: Maximum size in bytes. A larger file is refused before anything is read. If it
                grows beyond that, reading stops, because programs control its content.

        Raises:
            LimitExceeded: It is larger.
        """
        raise NotImplementedError

    async def entries(self, path: str, *, deep: bool) -> list[dict[str, Any]]:
        """Return the fields of `WorkspaceEntry` for a directory's entries. Implemented by kinds."""
        raise NotImplementedError

    async def remove_entry(self, path: str) -> None:
        """Remove a file or an empty directory. Implemented by kinds."""
        raise NotImplementedError

    async def _put(self, path: str, data: bytes | Path, mode: int = 0o644) -> None:
        """Write a file of the workspace, and create its parent directories.

        Args:
            path: Relative to the workspace, or absolute as programs see it. May be in `home`.
            data: Its bytes, or a file of the host.
            mode: Its permissions.

        Raises:
            PathEscape: The path leads outside the workspace.
            NotAFile: Something other than a file has this name.
        """
        await self.write_file(path, data, mode)

    async def _get(self, path: str, largest: int = LARGEST_READ) -> bytes:
        """Read a file of the workspace into memory.

        Args:
            path: Relative to the workspace, or absolute as programs see it. May be in `home`.
            largest: Maximum size in bytes. Default: 256 MiB.

        Returns:
            Its bytes.

        Raises:
            PathEscape: The path leads outside the workspace.
            NotAFile: The file does not exist.
            LimitExceeded: It is larger. `fetch` copies it to a file.
        """
        return await read_bytes(self.read_file, path, largest)

    async def _fetch(self, path: str, to: Path, largest: int | None = None) -> int:
        """Copy a file of the workspace to the host, with its permissions.

        Args:
            path: Relative to the workspace, or absolute as programs see it. May be in `home`.
            to: The file to write.
            largest: Maximum size in bytes, including holes of a sparse file. Default: `limits.disk`
                of the spec, or else 1 GiB.

        Returns:
            Its size in bytes.

        Raises:
            PathEscape: The path leads outside the workspace.
            NotAFile: The file does not exist.
            LimitExceeded: It is larger.
        """
        most = self.taken_out[0] if largest is None else largest
        return await copy_out(self.read_file, path, to, most)

    async def _list(self, path: str = ".", *, deep: bool = False) -> list[WorkspaceEntry]:
        """List a directory of the workspace.

        Args:
            path: Relative to the workspace, or absolute as programs see it. May be in `home`.
            deep: Whether to include everything below it.

        Returns:
            Its entries, sorted by path, up to 64 directories deep. Links are not followed.

        Raises:
            PathEscape: The path leads outside the workspace.
            NotAFile: The directory does not exist.
            LimitExceeded: It has more than 10,000 entries, or their names exceed 8 MiB in total.
        """
        entries = await self.entries(path, deep=deep)
        if not all(map(_is_entry, entries)) or not is_listable(entries):
            raise ToolError(f"{self.name}: {path!r}: its listing cannot be read")
        return as_entries(entries, f"{self.name}: {path!r}")

    async def _remove(self, path: str) -> None:
        """Remove a file, a link or an empty directory of the workspace.

        Args:
            path: Relative to the workspace, or absolute as programs see it. May be in `home`.

        Raises:
            PathEscape: The path leads outside the workspace.
            NotAFile: It does not exist.
        """
        await self.remove_entry(path)

    put, async_put = both_forms(_put)
    get, async_get = both_forms(_get)
    fetch, async_fetch = both_forms(_fetch)
    list, async_list = both_forms(_list)
    remove, async_remove = both_forms(_remove)


def as_entries(entries: list[dict[str, Any]], place: str) -> list[WorkspaceEntry]:
    """Return a complete listing.

    Args:
        entries: As `Workspace.entries` returns it.
        place: The listed directory, for the message.

    Raises:
        LimitExceeded: It is incomplete.
    """
    if len(entries) > LISTED:
        message = f"{place}: it has more than {LISTED:,} entries: list its directories one by one"
        raise LimitExceeded(message)
    return [WorkspaceEntry(**each) for each in entries]


def _is_entry(entry: Any) -> bool:
    """Return whether a listed item is a valid entry: code in the sandbox may have forged it."""
    return (
        isinstance(entry, dict)
        and entry.keys() == set(WorkspaceEntry._fields)
        and all(isinstance(entry[each], str) for each in ("path", "kind"))
        and all(isinstance(entry[each], int) for each in ("size", "mode"))
        and isinstance(entry["modified"], (int, float))
    )


# Inputs and outputs of a `run` step: files of other steps in, values and files out.

LARGEST_VALUE = 16 * 1024 * 1024
"""Maximum bytes that a command may write to `$FLOW_OUTPUT`."""


class HostFolder(OutsideFiles):
    """The directory of a command on this machine, and the engine's files for it.

    Args:
        cwd: Where the command runs.
        own: The engine's directory for this command only.
        workdir: The working directory of the execution.
    """

    name = "host"
    taken_out = (sys.maxsize, "")
    """No limit is set on programs that run as the user."""
    network = "any"

    def __init__(self, cwd: Path, own: Path, workdir: str) -> None:
        self.cwd = cwd
        self.own = str(own)
        self.workdir = workdir
        self.places = [Workspace(str(cwd)), Workspace(str(own))]

    def __enter__(self) -> HostFolder:
        return self

    def __exit__(self, *exc: object) -> None:
        for place in self.places:
            os.close(place.fd)

    async def async_put(self, path: str, data: bytes | Path) -> None:
        await self.write_file(path, data, 0o644)

    async def async_get(self, path: str, largest: int) -> bytes:
        return await read_bytes(self.read_file, path, largest)

    async def async_fetch(self, path: str, to: Path, largest: int) -> int:
        return await copy_out(self.read_file, path, to, largest)

    async def async_list(self, *, deep: bool) -> list[WorkspaceEntry]:
        return as_entries(await self.entries(".", deep=deep), "the working directory")

    async def async_remove(self, path: str) -> None:
        await self.remove_entry(path)


class StepFiles:
    """Files of one step.

    Args:
        resource: Where its program runs.
    """

    def __init__(self, resource: InWorkspace | HostFolder, context: StepContext) -> None:
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
                    f"files to be kept as '{name}': {error.message}. All files kept by a step may "
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

    async def output(
        self,
        command: Command,
        result: CodeResult | CommandResult,
        stderr: str,
        *,
        value: Plain = None,
        place: str | None = None,
        cwd: str = ".",
    ) -> dict[str, Plain]:
        """Return the output of a step, with text too large for a result as files.

        Args:
            command: The step's command.
            result: The result of the call.
            stderr: Its errors, with remarks.
            value: Its value.
            place: The file in which the command writes the value instead.
            cwd: Directory of the workspace to which patterns of files are relative.
        """
        outcome: dict[str, Plain] = {"exit_code": result.exit_code, "stdout": result.stdout}
        outcome["stderr"] = stderr
        if place is not None:
            value = await _value(self.resource, place, outcome)
        outcome["value"] = value
        if result.limit is not None:
            outcome["limit"] = result.limit
        hint = network_hint(self.resource.network, result.stdout, stderr)
        if result.exit_code != 0 and hint:
            before = stderr and stderr.rstrip("\n") + "\n"
            outcome["stderr"] = f"{before}{hint}\n"
        for name, path in (("stdout", result.stdout_file), ("stderr", result.stderr_file)):
            if path is not None:
                outcome[f"{name}_file"] = dict(await self.kept(path, self.resource.taken_out[0]))
                # The path is gone with the environment.
                text = str(outcome[name])
                outcome[name] = text.replace(in_file(path), in_file(f"the output's {name}_file"), 1)
        outcome["files"] = await self.keep(command, cwd, failed=result.exit_code != 0)
        return outcome

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


async def _value(
    resource: InWorkspace | HostFolder, place: str, outcome: Mapping[str, Plain]
) -> Plain:
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
            f"the content of $FLOW_OUTPUT is over {size_text(LARGEST_VALUE)}: keep it "
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
            f"the content of $FLOW_OUTPUT cannot be read as JSON: {error}",
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

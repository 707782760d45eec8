"""The registry on disk of environments opened by any process, one file per entry.

    FOLDER/entries/ID.json      the owner, and possible leftovers
    FOLDER/damaged/             unreadable entries
    FOLDER/screens/             see `screens`
    FOLDER/workspaces/          see `workspaces`
    FOLDER/lock                 held during cleanup

An entry is written before anything of the environment is started, and is removed after everything
has ended. It is replaced as a whole, never changed in place, so it is complete even if a process
dies. It is signed (see `signatures.py`). An entry without the user's signature
is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flowengine.errors import Conflict, Hint, NotFound
from flowengine.sdk.environments import Leftover, ProcessIdentity
from flowengine.sdk.errors import EnvironmentUnavailable
from flowengine.sdk.files.confined_files import take_lock
from flowengine.sdk.files.path_walk import open_file
from flowengine.sdk.processes import is_dead, started
from flowengine.sdk.texts.sizes import size_text
from flowengine.store_folder import fault_of, make_private, state_folder
from flowengine.util.files import DRAFT, write_whole

_FIELD = "proof"
_SIZE = 32
_keys: dict[str, bytes] = {}


def signed(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with a signature.

    Args:
        name: Name of the record. The signature is valid only for it.
        data: Plain data.
    """
    return {**data, _FIELD: _signature(name, data)}


def is_signed(name: str, data: Mapping[str, Any]) -> bool:
    """Return whether this user has written the data under this name."""
    given = data.get(_FIELD)
    return isinstance(given, str) and hmac.compare_digest(
        given.encode(), _signature(name, data).encode()
    )


def _signature(name: str, data: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in data.items() if key != _FIELD}
    text = json.dumps([name, plain], sort_keys=True, separators=(",", ":"))
    return hmac.digest(_key(), text.encode(), "sha256").hex()


def _key() -> bytes:
    folder = state_folder()
    key = _keys.get(folder)
    if key is None:
        key = _keys[folder] = _kept_key(folder) or os.urandom(_SIZE)
    return key


def _kept_key(folder: str) -> bytes | None:
    """Return the user's key. It is created if missing, and replaced if truncated."""
    path = os.path.join(folder, "key")
    try:
        make_private(folder)
        if not os.path.lexists(path):
            write_whole(path, os.urandom(_SIZE), replace=False)
        key = _read_key(path)
        if len(key) != _SIZE:  # earlier signatures can no longer be verified
            write_whole(path, os.urandom(_SIZE))
            key = _read_key(path)
    except OSError:
        return None
    return key


def _read_key(path: str) -> bytes:
    with open(open_file(path), "rb") as file:
        return file.read(_SIZE)


FORMAT = 1
_FIELDS = {"spec_id", "scope", "owner_id", "resource_key", "generation", "state"}
_PIECE = 64 * 1024
_LARGEST = 16 * 1024 * 1024
"""Bytes of a record. Larger files were written by other programs."""


class RegistryEntry:
    """The entry of one environment on disk.

    Args:
        registry: The registry that contains it.
        data: Its content.
        recorded: Whether it is on disk. Otherwise it leaves nothing behind, or is not recorded as
            requested.
    """

    def __init__(self, registry: Registry, data: dict[str, Any], *, recorded: bool = True) -> None:
        self._registry = registry
        self.data = data
        self.recorded = recorded

    @property
    def id(self) -> str:
        """Id of the handle."""
        return str(self.data["id"])

    @property
    def leftover(self) -> Leftover:
        """The entry in the form passed to providers."""
        data = self.data
        return Leftover(
            data["id"],
            data["kind"],
            data["provider"],
            data["manager"],
            ProcessIdentity(*data["owner"]),
            data["mark"],
            Path(data["workspace"]),
            data["facts"],
        )

    @property
    def screen(self) -> Path:
        """Path of the socket of those who look into it. See `screens`."""
        return self._registry.screens / self.id

    @property
    def named(self) -> dict[str, Any]:
        """What it is of, for descriptions."""
        keys = ("id", "kind", "provider", "scope", "owner_id", "resource_key")
        return {key: self.data[key] for key in keys}

    def set_state(self, state: str) -> None:
        """Record its state, if possible. The state is only informative."""
        self.data["state"] = state
        with contextlib.suppress(OSError):
            self._write()

    def trace(self, **facts: Any) -> None:
        """Add facts about resources to be started, as declared by `environments.Tracer` of the SDK.

        Raises:
            EnvironmentUnavailable: They cannot be recorded.
        """
        known = self.data["facts"]
        pids = [facts.pop("pid")] if "pid" in facts else []
        for pid in [*pids, *facts.pop("pids", ())]:
            known.setdefault("pids", []).append([pid, started(pid) or 0])
        folders = [facts.pop("folder")] if "folder" in facts else []
        for folder in [*folders, *facts.pop("folders", ())]:
            known.setdefault("folders", []).append(os.fspath(folder))
        known.update(facts)
        try:
            self._write()
        except OSError as error:
            raise self._registry.unusable(error) from None

    def remove(self) -> None:
        """Remove the entry, because nothing is left."""
        if self.recorded:
            self._registry.remove(self.id)

    def _write(self) -> None:
        if self.recorded:
            self._registry.write(self.data)


class Registry:
    """The directory with all entries.

    Args:
        folder: The directory, created with the first entry.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries = folder / "entries"
        self.screens = folder / "screens"
        self.name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]
        """Distinguishes this registry from others in the marks of processes."""

    def add(self, data: dict[str, Any]) -> RegistryEntry:
        """Write a new entry durably.

        Args:
            data: Its content.

        Returns:
            The entry.

        Raises:
            EnvironmentUnavailable: The directory cannot be used.
        """
        data = {"format": FORMAT, **data, "facts": {}}
        try:
            make_own(self.folder, "entries")
            self.write(data, synced=True)
        except OSError as error:
            raise self.unusable(error) from None
        return RegistryEntry(self, data)

    def unusable(self, error: OSError) -> EnvironmentUnavailable:
        """Return the error for a directory that cannot be used."""
        return EnvironmentUnavailable(
            f"the registry of environments in {self.folder} cannot be used: "
            f"{error.strerror or error}. After a crash, open environments could not be found. Name "
            "another directory (for the state of all stores: XDG_STATE_HOME), or declare "
            "'registry: none' in the spec to open it anyway"
        )

    def write(self, data: Mapping[str, Any], *, synced: bool = False) -> None:
        """Replace an entry.

        Args:
            data: The complete content.
            synced: Whether it must also survive a power failure.

        Raises:
            OSError: It cannot be written.
        """
        path = self._path(data["id"])
        text = json.dumps(signed(path.name, data), separators=(",", ":"))
        write_whole(path, text.encode(), synced=synced)

    def remove(self, id: str) -> None:
        """Remove an entry if it exists, and the socket that a dead process has left."""
        for path in (self.screens / id, self._path(id)):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def read(self) -> tuple[list[RegistryEntry], list[Path]]:
        """Return all entries, and move unreadable ones aside.

        Entries of a newer release are left alone, because only that release understands them.
        Entries without this user's signature are ignored, because their content cannot be trusted.

        Returns:
            The entries, oldest first, and the new paths of damaged ones.
        """
        try:
            usable = not fault_of(self.folder.resolve()) and not fault_of(self.entries)
            paths = sorted(self.entries.glob("*.json")) if usable else []
        except OSError:
            return [], []
        entries, damaged = [], []
        for path in paths:
            try:
                data = json.loads(content(path))
                found = data.get("format") if isinstance(data, dict) else None
                if isinstance(found, int) and found > FORMAT:
                    continue
                checked = _checked(data)
                if is_signed(path.name, checked):
                    entries.append(RegistryEntry(self, checked))
            except FileNotFoundError:
                continue  # its owner has just closed it
            except (ValueError, TypeError, LookupError, RecursionError, OSError):
                damaged.append(self._put_aside(path))
        entries.sort(key=lambda entry: entry.data["at"])
        return entries, damaged

    @contextlib.contextmanager
    def reaping(self, *, wait: bool) -> Iterator[bool]:
        """Hold the lock for cleanup.

        Args:
            wait: Whether to wait for another holder.

        Yields:
            Whether the lock was acquired.

        Raises:
            EnvironmentUnavailable: The directory is not writable, and `wait` is set.
        """
        lock = None
        try:
            if os.path.isdir(self.folder):
                lock = take_lock(self.folder / "lock", wait=wait)
        except OSError as error:
            if wait:
                raise EnvironmentUnavailable(
                    "cannot clean up after dead processes: the registry of environments in "
                    f"{self.folder} cannot be written: {error.strerror}"
                ) from None
        try:
            yield lock is not None
        finally:
            if lock is not None:
                os.close(lock)

    def _put_aside(self, path: Path) -> Path:
        aside = self.folder / "damaged"
        target = aside / f"{path.name}.{os.urandom(4).hex()}"
        try:
            make_own(self.folder, "damaged")
            os.replace(path, target)
        except FileNotFoundError:
            return target
        except OSError:  # for example, the disk is full, and the entry stays in place
            return path
        return target

    def _path(self, id: str) -> Path:
        return self.entries / f"{id}.json"


def make_own(folder: Path, *below: str) -> Path:
    """Create a directory below another, and reject directories that others can write.

    Args:
        folder: The upper directory, which can be a link.
        below: The path components below it, which must not be links.

    Returns:
        The lowest directory.

    Raises:
        PermissionError: A directory on the path is a link or can be written by others.
        OSError: It cannot be created.
    """
    for number in range(len(below) + 1):
        each = folder.joinpath(*below[:number])
        each.mkdir(parents=not number, exist_ok=True, mode=0o700)
        if reason := fault_of(each if number else each.resolve()):
            raise PermissionError(f"{each} {reason}")
    return folder.joinpath(*below)


def remove_drafts(folder: Path) -> None:
    """Remove files that dead processes had started to write."""
    for draft in folder.glob(f"*{DRAFT}"):
        pid = draft.name.removesuffix(DRAFT).split(".")[-2:-1]
        if pid and pid[0].isdecimal() and started(int(pid[0])) is None:
            with contextlib.suppress(OSError):
                draft.unlink()


def content(path: Path) -> bytes:
    """Return the bytes of a small regular file, rejecting links, pipes and the like.

    Args:
        path: Path of the file.

    Returns:
        The content.

    Raises:
        OSError: It cannot be read.
        ValueError: It is too large to be a record.
    """
    data = bytearray()
    with open(open_file(path), "rb") as file:
        # In pieces, because a read allocates all that it is asked for.
        while len(data) <= _LARGEST and (piece := file.read(_PIECE)):
            data += piece
    if len(data) > _LARGEST:
        raise ValueError(f"more than {size_text(_LARGEST)}")
    return bytes(data)


def _checked(data: Any) -> dict[str, Any]:
    """Return the data of an entry, if it is valid."""
    if data["format"] != FORMAT:
        raise ValueError("another format")
    if missing := _FIELDS - data.keys():
        raise LookupError(", ".join(sorted(missing)))
    entry = RegistryEntry(None, data)  # type: ignore[arg-type]
    leftover = entry.leftover
    if not all(isinstance(part, int) for part in leftover.owner[:2]) or not isinstance(
        leftover.facts, dict
    ):
        raise ValueError("not an entry")
    if not isinstance(data["at"], int | float):
        raise TypeError("at no time")
    return dict(data)


# Descriptions of registry entries, of this and other processes, as plain data.


def describe_entry(entry: RegistryEntry) -> dict[str, Any]:
    """Return the description of an entry.

    Args:
        entry: Entry of the registry.

    Returns:
        `{id, kind, provider, scope, owner_id, resource_key, generation, state, since, process,
        host, alive, screen, workspace, traces}`, without the configuration. `screen` is whether
        one can look into it.
    """
    data, leftover = entry.data, entry.leftover
    at = datetime.fromtimestamp(data["at"], UTC)
    facts, alive = dict(leftover.facts), not is_dead(leftover.owner)
    if "pids" in facts:
        facts["pids"] = [pid for pid, _ in facts["pids"]]
    return {
        **entry.named,
        "generation": data["generation"],
        "state": data["state"],
        "since": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "process": leftover.owner.pid,
        "host": leftover.owner.host,
        "alive": alive,
        "screen": alive and os.path.lexists(entry.screen),
        "workspace": str(leftover.workspace),
        "traces": facts,
    }


def one_entry(registry: Registry, name: str) -> RegistryEntry:
    """Return the entry with a name.

    Args:
        registry: The registry.
        name: The name of an environment, or an unambiguous prefix of its id.

    Returns:
        The entry.

    Raises:
        NotFound: No entry matches.
        Conflict: Several entries match.
    """
    entries = registry.read()[0]
    matches = [entry for entry in entries if entry.data["resource_key"] == name]
    matches = matches or [entry for entry in entries if entry.id.startswith(name)]
    if not matches:
        raise NotFound(
            f"no environment '{name}' is open or was left open",
            hint=Hint("see: flowengine envs list"),
        )
    if len(matches) > 1:
        ids = ", ".join(entry.id for entry in matches)
        raise Conflict(f"'{name}' means {len(matches)} environments", hint=f"choose one: {ids}")
    return matches[0]

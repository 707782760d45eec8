"""Requests of executions to the manager: specs made from declarations, and moved workspaces."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flowengine import registry
from flowengine.errors import StoreError
from flowengine.execution_environment import EnvironmentManager
from flowengine.execution_environment.registry.archives import MOST_ARCHIVED, pack, unpack
from flowengine.execution_environment.registry.workspaces import LeftWorkspace, Workspaces
from flowengine.journal.store import MovedWorkspace
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.compiled import Plain, SecretText
from flowengine.kernel.notation.addresses import execution_of
from flowengine.sdk.environments import Scope
from flowengine.sdk.processes import make_scratch, remove_scratch, this_process
from flowengine.sdk.steps.context import ExecutionContext
from flowengine.util.plain_data import with_leaves

# Conversion of environment declarations in flow files into specs for the manager.

_LONGEST = 400
"""Maximum length of a name with its arguments."""


def spec_of(
    manager: EnvironmentManager,
    given: Mapping[str, Plain],
    owner: str,
    folder: str,
    secrets: Mapping[str, Plain],
) -> dict[str, Any]:
    """Return the spec of an environment that is not used by an execution.

    Args:
        manager: The manager, which registers the mounted directories.
        given: The evaluated use of a declared environment.
        owner: The future owner.
        folder: Base directory of relative paths.
        secrets: Sources of the flow's secrets.

    Returns:
        A spec of the scope `execution`. Whoever opens it consents to it.
    """
    spec = dict(given["spec"])
    spec |= {"scope": "execution", "owner_id": owner, "resource_key": name_with_args(spec)}
    spec |= filled(spec, folder, secrets)
    for inside, each in spec.get("mounts", {}).items():
        mounted = spec_of(manager, each, owner, folder, secrets)
        spec["mounts"] = {**spec["mounts"], inside: manager.declare(mounted)["id"]}
    return spec


def filled(spec: Mapping[str, Plain], folder: str, secrets: Mapping[str, Plain]) -> dict[str, Any]:
    """Return the parts of a spec that do not come from a flow file."""
    config = with_leaves(spec.get("config", {}), _literal, str)
    return {"secrets": dict(secrets), "config": config, "folder": folder}


def name_with_args(spec: Mapping[str, Any]) -> str:
    """Return the name of an instance, which includes its arguments."""
    name = str(spec["resource_key"])
    if not spec.get("args"):
        return name
    given = ", ".join(f"{key}={value!r}" for key, value in sorted(spec["args"].items()))
    return f"{name}({given})"[:_LONGEST]


def _literal(text: str) -> Plain:
    """Return a text that cannot be mistaken for a reference to a secret."""
    return SecretText([text]) if text.startswith("secret:") else text


# Requests of executions to the manager: specs, each with its name and owner.

STEP: Scope = "action_call"
REGION: Scope = "region"
EXECUTION: Scope = "execution"
SESSION: Scope = "session"
SCOPES: dict[str, Scope] = {
    "step": STEP,
    "region": REGION,
    "execution": EXECUTION,
    "session": SESSION,
}
"""Scope in a flow → the manager's name for it."""


class EnvironmentRequests:
    """The requests of all executions of an engine.

    Args:
        manager: Returns the manager.
        names_in: Returns the names of the environments of a region, given by its owner id.
    """

    def __init__(
        self, manager: Callable[[], EnvironmentManager], names_in: Callable[[str], set[str]]
    ) -> None:
        self._manager = manager
        self._names_in = names_in
        self._ids: dict[tuple[Scope, str], dict[str, tuple[Plain, str, str]]] = {}
        """(scope, owner) → name → the declared use, the user and the spec's id. Checking a spec
        takes twenty times as long as comparing it."""

    def forget(self, scope: Scope, owner: str) -> None:
        """Forget the declarations of an owner, as the manager does."""
        self._ids.pop((scope, owner), None)

    def forget_all(self) -> None:
        """Forget all declarations, so that each is declared again on its next use."""
        self._ids.clear()

    def of(
        self,
        context: ExecutionContext,
        run: Run,
        given: Mapping[str, Plain],
        secrets: Mapping[str, Plain],
    ) -> dict[str, Any] | str:
        """Return the request to the manager: a spec, or the id of a known spec."""
        spec = self.named(context, run, given)
        owner, name = (spec["scope"], spec["owner_id"]), spec["resource_key"]
        known = self._ids.get(owner, {}).get(name)
        if known is not None and known[:2] == (given, context.started_by):
            return known[2]
        if "secrets" in given:  # provided by a program, where `secret:NAME` is a reference
            own = spec.get("secrets", {})
            spec |= {"secrets": {**secrets, **own}, "folder": context.workdir}
        else:
            spec |= filled(spec, context.workdir, secrets)
        if registry.provider(spec["kind"]).acts_for_user(spec.get("config", {})):
            spec["user"] = context.started_by
        if "mounts" in spec and "secrets" not in given:  # a program gives their ids
            spec["mounts"] = {
                inside: self._mounted(context, run, each, secrets)
                for inside, each in spec["mounts"].items()
            }
        if spec["scope"] == STEP or "mounts" in spec:
            return spec
        id: str = self._manager().declare(spec)["id"]
        self._ids.setdefault(owner, {})[name] = (given, context.started_by, id)
        return id

    def named(
        self, context: ExecutionContext, run: Run, given: Mapping[str, Plain]
    ) -> dict[str, Any]:
        """Return a spec with its name and owner for an attempt."""
        spec = dict(given["spec"])
        scope = spec["scope"] = SCOPES[given["scope"]]
        spec["resource_key"] = name_with_args(spec)
        if scope == STEP:
            spec["owner_id"] = f"{context.owner}/{run.unit}.{run.attempt}"
        elif scope == EXECUTION:
            spec["owner_id"] = context.owner
        elif scope == REGION:
            regions = [region_owner(context.owner, region) for region in run.regions or (0,)]
            having = (each for each in regions if spec["resource_key"] in self._names_in(each))
            spec["owner_id"] = next(having, regions[0])
        else:
            spec.setdefault("owner_id", "")
        return spec

    def _mounted(
        self,
        context: ExecutionContext,
        run: Run,
        given: Mapping[str, Plain],
        secrets: Mapping[str, Plain],
    ) -> str:
        wish = self.of(context, run, given, secrets)
        environment: str = wish if isinstance(wish, str) else self._manager().declare(wish)["id"]
        return environment


def region_owner(owner: str, region: int) -> str:
    """Return the id of a region of an execution, given as an owner, as an owner."""
    return f"{owner}/{region}"


# Files of environments in a directory of this host, as archives for executions that move.

_SPEC = re.compile(r"env_[0-9a-f]{1,64}")


class FolderWorkspaces:
    """The files of environments below one directory. See `WorkspacesPort`.

    Args:
        folder: Returns the directory of an `EnvironmentManager`.
    """

    def __init__(self, folder: Callable[[], str]) -> None:
        self._folder = folder
        self._scratch: Path | None = None

    def pack(self, id: str, mark: Sequence[int]) -> list[MovedWorkspace]:
        """Keep archives in a temporary directory, until `close`."""
        del mark  # a living process that uses them has claimed them
        self.close()
        self._scratch = make_scratch()
        return [self._packed(left, self._scratch) for left in self._workspaces().left(id)]

    def _packed(self, left: LeftWorkspace, scratch: Path) -> MovedWorkspace:
        draft = scratch / "draft"
        pack(left.path, draft)
        digest, size = digest_of(draft), draft.stat().st_size
        draft.rename(scratch / digest)
        scope, owner_id, path, generation, was_open = left
        return MovedWorkspace(scope, owner_id, path.name, generation, was_open, size, digest)

    def fetch(self, workspace: MovedWorkspace) -> Path:
        """Return the path of an archive."""
        assert self._scratch is not None
        return self._scratch / workspace.digest

    def put(
        self,
        id: str,
        workspaces: Sequence[MovedWorkspace],
        fetch: Callable[[MovedWorkspace], Path],
    ) -> None:
        """Restore files for the next process that drives an execution."""
        check(id, workspaces)
        for workspace in workspaces:
            scope = EXECUTION if workspace.scope == EXECUTION else REGION
            given = LeftWorkspace(
                scope,
                workspace.owner_id,
                Path(workspace.spec),
                workspace.generation,
                workspace.was_open,
            )
            archive = fetch(workspace)
            try:
                self._workspaces().put(given, lambda path, archive=archive: unpack(archive, path))  # type: ignore[misc]
            except OSError as error:
                raise StoreError(
                    f"the files of execution {id} cannot be kept in {self._folder()}: "
                    f"{error.strerror or error}"
                ) from error

    def remove(self, id: str) -> None:
        """Remove files that `pack` or `put` has found or made."""
        workspaces = self._workspaces()
        for left in workspaces.left(id):
            workspaces.end_scope(left.scope, left.owner_id)

    def close(self) -> None:
        """Remove the archives."""
        if self._scratch is not None:
            remove_scratch(self._scratch)
            self._scratch = None

    def _workspaces(self) -> Workspaces:
        return Workspaces(Path(self._folder()).absolute(), this_process(), os.urandom(6).hex())


def check(id: str, workspaces: Iterable[MovedWorkspace]) -> None:
    """Check descriptions from another store.

    Args:
        id: Full id of the execution.
        workspaces: They.

    Raises:
        StoreError: One is not of this execution, or too large.
    """
    for workspace in workspaces:
        has_region = workspace.scope != EXECUTION
        is_own = execution_of(workspace.owner_id) == id
        is_own = is_own and has_region == ("/" in workspace.owner_id)
        is_known = workspace.scope in (EXECUTION, REGION) and _SPEC.fullmatch(workspace.spec)
        if not is_own or not is_known or not 0 <= workspace.size <= MOST_ARCHIVED:
            raise StoreError(f"the files of an environment of execution {id} are described wrongly")


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

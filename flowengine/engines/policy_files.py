"""The policy files of this host: read when a call is about to be made, and again when one changes.

`policies.yaml` is looked for in the configuration folders of the machine and of the user, and in
the project's `.flowengine` folder. Of all files the strictest answer counts. A project's file can
be written by anyone who works in the project, agents included: it can ask and deny, but its `allow`
answers no question.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from flowengine.errors import FlowEngineError
from flowengine.flow.compiler import compiler
from flowengine.flow.source_digest import source_digest

if TYPE_CHECKING:
    from flowengine.engines.host_rules import HostRules
    from flowengine.journal.ports.flows import FlowPort
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.rules import Called, Verdict

NAME = "policies.yaml"
ABSENT_SECONDS = 0.005
"""How long a look that found no file is believed while no attempt has ended that may have written
one: quick steps, which only compute, follow each other in a fraction of that. Each run begins with
a look of its own."""


_KIND = "policies"
"""What stands in a store in place of the hash of a flow."""


class _Read(NamedTuple):
    mark: tuple[int, ...]
    """Tells the content of the file from another."""
    policies: HostRules | None
    error: FlowEngineError | None


class PolicyFiles:
    """The policy files of a host.

    Args:
        folders: Where those lie that may allow: no project's.
        store: Keeps them compiled, as it keeps flows.
        project: Where one lies that may only restrict.
    """

    def __init__(
        self, folders: Sequence[str], store: FlowPort | None = None, project: str | None = None
    ) -> None:
        self._store = store
        self._restricting = os.path.join(project, NAME) if project is not None else None
        self._paths = [os.path.join(folder, NAME) for folder in folders]
        if self._restricting is not None:
            self._paths.append(self._restricting)
        self._read: dict[str, _Read] = {}
        self._absent_until = 0.0

    def look_again(self) -> None:
        """Believe no earlier look: something has run that may have written a file."""
        self._absent_until = 0.0

    def there(self) -> bool:
        """Return whether there is one, as of a few milliseconds ago at most."""
        now = monotonic()
        if now < self._absent_until:
            return False
        if any(_mark(path) is not None for path in self._paths):
            return True
        self._absent_until = now + ABSENT_SECONDS
        return False

    def check(self) -> None:
        """Read those that are there.

        Raises:
            FlowEngineError: One has errors.
        """
        found = [self._policies(path) for path in self._paths]
        are_absent = not any(found)
        self._absent_until = monotonic() + ABSENT_SECONDS if are_absent else 0.0

    def verdict(self, call: Called, names: Mapping[str, Plain]) -> Verdict | None:
        """Return what the host says about a call; None: nothing.

        Args:
            call: The call.
            names: What conditions see: `args`, without secrets, `calls` and `execution`.

        Raises:
            FlowEngineError: A file has errors, so nobody knows what it would say.
        """
        from flowengine.kernel.graph.rules import STRICTNESS

        verdicts: list[Verdict] = []
        for path in self._paths:
            policies = self._policies(path)
            verdict = policies and policies.verdict(call, names)
            if verdict and not (verdict.do == "allow" and path == self._restricting):
                verdicts.append(verdict)
        return max(verdicts, key=lambda verdict: STRICTNESS.index(verdict.do), default=None)

    def _policies(self, path: str) -> HostRules | None:
        mark = _mark(path)
        if mark is None:
            return None
        found = self._read.get(path)
        if found is None or found.mark != mark:
            found = self._read[path] = _load(self._store, path, mark)
        if found.error is not None:
            raise found.error
        return found.policies


def _mark(path: str) -> tuple[int, ...] | None:
    """Return what tells the content of a file from another; None: there is no such file."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return (error.errno or 0,)  # it is there, and reading it says why it cannot be
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _load(store: FlowPort | None, path: str, mark: tuple[int, ...]) -> _Read:
    try:
        return _Read(mark, _kept(store, path) or _compiled(store, path), None)
    except FlowEngineError as error:
        return _Read(mark, None, error)


def _kept(store: FlowPort | None, path: str) -> HostRules | None:
    """Return the rules of a file as a store keeps them; None: not, or of another content.

    A store lies in a project, the host's rules do not: what this user has not signed is not
    believed.
    """
    if store is None:
        return None
    from flowengine.engines.host_rules import HostRules
    from flowengine.execution_environment.registry.signatures import is_signed
    from flowengine.journal.encoding import unpack

    try:
        found = store.find_source(_key(path))
        if found is None:
            return None
        kept = unpack(found[2])
        if not is_signed(_key(path), kept) or kept["digest"] != source_digest(path):
            return None
        return HostRules(path, unpack(bytes.fromhex(kept["compiled"])))
    except (FlowEngineError, AttributeError, TypeError, ValueError, LookupError):
        return None  # it is damaged, or cannot be read: nobody needs it


def _compiled(store: FlowPort | None, path: str) -> HostRules:
    from flowengine.engines.host_rules import HostRules
    from flowengine.execution_environment.registry.signatures import signed
    from flowengine.flow.compile.host_policies import compile_host_policies
    from flowengine.journal.encoding import pack

    digest = source_digest(path)
    compiled = compile_host_policies(path).compiled
    # If the file has changed meanwhile, nobody knows which content was compiled.
    if store is not None and digest is not None and digest == source_digest(path):
        with suppress(FlowEngineError):  # it only spares time
            kept = signed(_key(path), {"digest": digest, "compiled": pack(compiled).hex()})
            store.remember_source(_key(path), _KIND, [(path, digest)], pack(kept))
    return HostRules(path, compiled)


def _key(path: str) -> str:
    return f"{os.path.abspath(path)}\n{_KIND}\n{compiler()}"

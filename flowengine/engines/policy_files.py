"""The policy files of this host: read when a call is about to be made, and again when one changes.

`policies.yaml` is looked for beside each `settings.yaml`: in the user's configuration folder and in
the project's `.flowengine` folder. Of all files the strictest answer counts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from flowengine.errors import FlowEngineError

if TYPE_CHECKING:
    from flowengine.flow.compile.host_policies import HostPolicies
    from flowengine.flow.compile.policies import Called
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.rules import Verdict

NAME = "policies.yaml"
ABSENT_SECONDS = 0.005
"""How long a look that found no file is believed within a run: quick steps follow each other in a
fraction of that. Each run begins with a look of its own."""


class _Read(NamedTuple):
    mark: tuple[int, ...]
    """Tells the content of the file from another."""
    policies: HostPolicies | None
    error: FlowEngineError | None


class PolicyFiles:
    """The policy files of a host.

    Args:
        folders: Where they may lie.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._paths = [os.path.join(folder, NAME) for folder in folders]
        self._read: dict[str, _Read] = {}
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

    def verdict(self, call: Called, args: Plain, execution: Plain) -> Verdict | None:
        """Return what the host says about a call; None: nothing.

        Args:
            call: The call.
            args: What it is given, without secrets.
            execution: What is known of the execution.

        Raises:
            FlowEngineError: A file has errors, so nobody knows what it would say.
        """
        from flowengine.kernel.graph.rules import STRICTNESS

        found = [self._policies(path) for path in self._paths]
        said = [one.verdict(call, args, execution) for one in found if one is not None]
        return max(
            (one for one in said if one is not None),
            key=lambda one: STRICTNESS.index(one.do),
            default=None,
        )

    def _policies(self, path: str) -> HostPolicies | None:
        mark = _mark(path)
        if mark is None:
            return None
        found = self._read.get(path)
        if found is None or found.mark != mark:
            found = self._read[path] = _load(path, mark)
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


def _load(path: str, mark: tuple[int, ...]) -> _Read:
    from flowengine.flow.compile.host_policies import read_host_policies

    try:
        return _Read(mark, read_host_policies(path), None)
    except FlowEngineError as error:
        return _Read(mark, None, error)

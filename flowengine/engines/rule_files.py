"""The rule files of this host, read before a call and again after a change.

`rules.yaml` is looked up in the configuration directories of the machine and of the user, and in
the project's `.flowengine` directory. The strictest verdict of all files wins. Everyone who works
in a project can write its rule file, including agents. It can therefore only ask and deny, and
its `allow` has no effect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

from flowengine import flow as language
from flowengine.errors import FlowEngineError
from flowengine.execution_environment.registry.entries import is_signed, signed
from flowengine.flow.compiler import compiler
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.store import FlowPort
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.rules import STRICTNESS, Called, Calls, Verdict, in_order, strictest
from flowengine.kernel.graph.specs import RuleSpec
from flowengine.util.files import source_digest

NAME = "rules.yaml"
ABSENT_SECONDS = 0.005
"""Seconds for which the absence of files is cached, unless an attempt has ended that may have
written one. Quick steps, which only compute, follow each other in a fraction of that. Each run
begins with a fresh check."""


_KIND = "rules"
"""Stored in place of the hash of a flow."""


class _Read(NamedTuple):
    mark: tuple[int, ...]
    """Identifies the version of the file's content."""
    rules: HostRules | None
    error: FlowEngineError | None


class RuleFiles:
    """The rule files of a host.

    Args:
        folders: Directories whose files may allow calls. Never a project's directory.
        store: Caches the compiled files.
        project: Directory whose file may only restrict calls.
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
        """Discard the cached absence of files, as something that has run may have written one."""
        self._absent_until = 0.0

    def there(self) -> bool:
        """Return whether a rule file existed within the last few milliseconds."""
        now = monotonic()
        if now < self._absent_until:
            return False
        for path in self._paths:  # this runs for each attempt, so no function per file
            try:
                os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                pass  # the file exists, and reading it reports the error
            return True
        self._absent_until = now + ABSENT_SECONDS
        return False

    def check(self) -> None:
        """Read all existing files.

        Raises:
            FlowEngineError: A file has errors.
        """
        rules = [self._rules(path) for path in self._paths]
        are_absent = not any(rules)
        self._absent_until = monotonic() + ABSENT_SECONDS if are_absent else 0.0

    def verdict(self, call: Called, names: Mapping[str, Plain]) -> Verdict | None:
        """Return the verdict of the host on a call. None: no rule matches.

        Args:
            call: The call.
            names: The variables of conditions: `args`, without secrets, `calls` and `execution`.

        Raises:
            FlowEngineError: A file has errors, so its verdict is unknown.
        """
        verdicts: list[Verdict] = []
        for path in self._paths:
            rules = self._rules(path)
            verdict = rules and rules.verdict(call, names)
            if verdict and not (verdict.do == "allow" and path == self._restricting):
                verdicts.append(verdict)
        return max(verdicts, key=lambda verdict: STRICTNESS.index(verdict.do), default=None)

    def _rules(self, path: str) -> HostRules | None:
        mark = _mark(path)
        if mark is None:
            return None
        read = self._read.get(path)
        if read is None or read.mark != mark:
            read = self._read[path] = _load(self._store, path, mark)
        if read.error is not None:
            raise read.error
        return read.rules


def _mark(path: str) -> tuple[int, ...] | None:
    """Return the version mark of a file's content. None: the file does not exist."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return (error.errno or 0,)  # the file exists, and reading it reports the error
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _load(store: FlowPort | None, path: str, mark: tuple[int, ...]) -> _Read:
    try:
        return _Read(mark, _kept(store, path) or _compiled(store, path), None)
    except FlowEngineError as error:
        return _Read(mark, None, error)


def _kept(store: FlowPort | None, path: str) -> HostRules | None:
    """Return the cached rules of a file. None: not cached, or outdated.

    A store lies in a project, but the host's rules do not. Entries that this user has not signed
    are therefore not trusted.
    """
    if store is None:
        return None

    try:
        source = store.find_source(_key(path))
        if source is None:
            return None
        kept = unpack(source[2])
        if not is_signed(_key(path), kept) or kept["digest"] != source_digest(path):
            return None
        return HostRules(path, unpack(bytes.fromhex(kept["compiled"])))
    except (FlowEngineError, AttributeError, TypeError, ValueError, LookupError):
        return None  # damaged or unreadable, so the file is compiled again


def _compiled(store: FlowPort | None, path: str) -> HostRules:
    digest = source_digest(path)
    compiled = language.call_rules.compile_host_rules(path).compiled
    # If the file has changed since, the compiled content is unknown.
    if store is not None and digest is not None and digest == source_digest(path):
        with suppress(FlowEngineError):  # only a cache
            kept = signed(_key(path), {"digest": digest, "compiled": pack(compiled).hex()})
            store.remember_source(_key(path), _KIND, [(path, digest)], pack(kept))
    return HostRules(path, compiled)


def _key(path: str) -> str:
    return f"{os.path.abspath(path)}\n{_KIND}\n{compiler()}"


# The rules of one rule file, compiled for evaluation on calls.
#
# They are plain data, so that a store can keep them. The compiler takes longer to load than most
# commands take to run.


class HostRules:
    """The rules of one file.

    Args:
        name: How messages name the file.
        compiled: As `flowengine.flow.compile.call_rules` returns them.
    """

    def __init__(self, name: str, compiled: Any) -> None:
        self._name = name
        self._rules: list[tuple[Calls, int | None]] = [
            (Calls((str(word), str(glob)), *more), when)
            for (word, glob), *more, when in compiled["rules"]
        ]
        """The calls that each rule matches, and the number of its condition."""
        self._evaluator = CelEvaluator(compiled["expressions"], name)

    def verdict(self, call: Called, names: Mapping[str, Plain]) -> Verdict | None:
        """Return the verdict of the rules on a call. None: no rule matches.

        Args:
            call: The call.
            names: The variables of conditions: `args`, without secrets, `calls` and `execution`.
        """
        return strictest(
            [in_order(self._fitting(call))],
            lambda number: bool(self._evaluator.evaluate(number, names)),
        )

    def _fitting(self, call: Called) -> list[RuleSpec]:
        rules: list[RuleSpec] = []
        for index, (calls, when) in enumerate(self._rules):
            if call.is_of(calls):
                word, glob = calls.verdict
                rule_name = f"{self._name}: rules[{index}] ({word}: {glob})"
                rule: RuleSpec = {"do": word, "rule": rule_name}  # type: ignore[typeddict-item]
                if when is not None:
                    rule["when"] = when
                rules.append(rule)
        return rules

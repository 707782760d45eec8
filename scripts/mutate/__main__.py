"""The command line: `make mutate`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from scripts.mutate import __doc__ as about
from scripts.mutate import changes, forks, reached
from scripts.mutate.trials import Limits, Result, Trials

TESTS = [
    "tests/kernel", "tests/language", "tests/flow", "tests/journal", "tests/engines",
    "tests/agents", "tests/execution_environment", "tests/testing", "tests/building",
    "tests/expressions", "tests/nodes", "tests/tool_environment", "tests/patterns", "tests/cli",
    "tests/attacks/test_damaged_shapes.py", "tests/attacks/test_foreign_files.py",
]  # fmt: skip
"""Tests that mostly run in their own process. Those of containers and browsers are left out."""

LIBRARIES = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
"""Variables while libraries are imported, as in the product: litellm uses the network otherwise."""


def main() -> int:
    """Try the mutants and return the exit code: 1 if one that was caught before is not now."""
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # let children and files be removed
    root = Path.cwd()
    tests = [one for one in given.tests or TESTS if (root / one.partition("::")[0]).exists()]
    session = _Session(root, given, tests)
    quiet = ["-qq", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "0"]
    status = pytest.main(
        [*quiet, "-o", "faulthandler_timeout=0", "-r", "N", *tests], plugins=[session]
    )
    return session.status if status == pytest.ExitCode.OK else int(status)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make mutate", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "files", nargs="*", type=Path, metavar="FILE", help="files to change, instead of the sample"
    )
    add("--sample", type=int, metavar="N", help="number of changes drawn from FILE")
    add("--against", type=Path, metavar="PATH", help="earlier results: compare with them")
    add("--results", type=Path, default=Path(".mutate/results.jsonl"), metavar="PATH",
        help="where to write the results (%(default)s)")  # fmt: skip
    add("--tests", nargs="+", metavar="PATH", help="tests to run instead of the default ones")
    add("--map", action="store_true", help="record again which places each test reaches")
    add("--budget", type=float, default=15, metavar="S",
        help="seconds of CPU time for the tests of one mutant (%(default)s)")  # fmt: skip
    add("--patience", type=float, default=5, metavar="S",
        help="how much longer than usual a test may take (%(default)s)")  # fmt: skip
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
        help="processes at a time (%(default)s)")  # fmt: skip
    return parser.parse_args()


class _Session:
    """A pytest plugin that tries mutants in place of running the tests."""

    def __init__(self, root: Path, given: argparse.Namespace, tests: Sequence[str]) -> None:
        self.status = 0
        self._root = root
        self._given = given
        self._tests = tests

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do all work that needs the collected tests."""
        _import_all(self._root)
        drawn = self._drawn()
        found = self._map(session.items, drawn)
        with patch.dict(os.environ, LIBRARIES):
            for module in found.modules:
                _import(module)
        if threading.active_count() > 1:
            raise SystemExit("a module starts a thread when it is imported: no process can fork")
        before = _read(self._given.against) if self._given.against else {}
        results = self._try(session.items, found, drawn, before)
        lost = [one for one in results if not one.caught and before.get(one.key, one).caught]
        _report(results, before, lost)
        self.status = 1 if lost else 0
        return True

    def _drawn(self) -> list[changes.Place]:
        if not self._given.files:
            return changes.sample(self._root)
        paths = changes.files(self._root, self._given.files)
        every = (one for path in paths for one in changes.places(self._root, path))
        return changes.lowest(every, self._given.sample)

    def _map(self, items: Sequence[pytest.Item], drawn: Sequence[changes.Place]) -> reached.Map:
        """Return the map, measured if there is none of these places, tests and files."""
        name = reached.fingerprint(self._root, self._tests, drawn)
        folder = self._root / ".mutate" / f"map-{name}"
        if self._given.map or not folder.exists():
            begun = time.monotonic()
            shutil.rmtree(folder, ignore_errors=True)
            new = folder.with_name("new-map")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            reached.measure(self._root, new, items, drawn, self._given.jobs)
            new.rename(folder)
            spent = f"{time.monotonic() - begun:.0f} s; {forks.used():.0f} s of CPU time"
            _say(f"{len(items)} tests, to record which places they reach: {spent}")
        found = reached.Map(folder)
        for test in found.failed:
            _say(f"fails without a change, and is left out: {test}")
        return found

    def _try(
        self,
        items: Sequence[pytest.Item],
        found: reached.Map,
        drawn: Sequence[changes.Place],
        before: Mapping[str, Result],
    ) -> list[Result]:
        given, begun, used = self._given, time.monotonic(), forks.used()
        limits = Limits(given.budget, given.patience)
        hints = {key: result.by for key, result in before.items()}
        results = []
        given.results.parent.mkdir(exist_ok=True)
        trials = Trials(self._root, items, found, limits)
        with given.results.open("w") as file:
            for result in trials.run(drawn, hints, given.jobs):
                results.append(result)
                file.write(json.dumps(result._asdict()) + "\n")
                file.flush()
        for test in sorted(trials.unreliable):
            _say(f"failed alone without a change too, and was left out: {test}")
        spent = f"{time.monotonic() - begun:.0f} s; {forks.used() - used:.0f} s of CPU time"
        _say(f"{len(results)} mutants: {spent}")
        return sorted(results, key=lambda one: (one.path, one.line))


def _import_all(root: Path) -> None:
    """Import every module of the program, so that no mutant meets one that is not loaded yet."""
    for base in (".", "nodes", "envs"):
        for path in sorted((root / base).glob("flowengine*/**/*.py")):
            inside = path.relative_to(root / base).with_suffix("")
            if path.name not in {"__init__.py", "__main__.py"}:
                _import(".".join(inside.parts))


def _import(module: str) -> None:
    with suppress(Exception):
        importlib.import_module(module)


def _read(path: Path) -> dict[str, Result]:
    results = (Result(**json.loads(line)) for line in path.read_text().splitlines())
    return {one.key: one for one in results}


def _report(
    results: Sequence[Result], before: Mapping[str, Result], lost: Iterable[Result]
) -> None:
    for one in results:
        if not one.caught:
            _say(f"{_place(one)}  [{one.ran} of {one.reached} tests]")
    folders: dict[str, list[Result]] = {}
    for one in results:
        folders.setdefault("/".join(one.path.split("/")[:2]), []).append(one)
    for folder, own in [*folders.items(), ("in all", results)]:
        now = f"{sum(one.caught for one in own)} of {len(own)} caught"
        there = [before[one.key] for one in own if one.key in before]
        earlier = f"; before: {sum(one.caught for one in there)} of {len(there)}" if before else ""
        _say(f"{folder:<34} {now}{earlier}")
    if before:
        for one in results:
            if one.caught and one.key in before and not before[one.key].caught:
                _say(f"caught now: {_place(one)} by {one.by}")
        for one in lost:
            _say(f"caught no longer: {_place(one)}; before by {before[one.key].by}")


def _place(one: Result) -> str:
    return f"{one.path}:{one.line}: {one.change}"


def _say(text: str) -> None:
    sys.__stdout__.write(f"{text}\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    sys.exit(main())

"""The places that each test reaches, and its cost: measured once, kept until a file changes."""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

from scripts.mutate import changes, forks
from scripts.mutate.changes import Place
from scripts.mutate.functions import Functions

LEFT_OUT = {"__pycache__", "node_modules"}
READ = {".py", ".yaml", ".toml", ".json"}


LONGEST = 120
"""Seconds after which a test that waits for something has failed."""


class Run(NamedTuple):
    """One test on the unchanged program."""

    test: str
    failed: bool
    cpu: float
    """Seconds, with those of the processes it starts."""
    wall: float
    marks: list[str]
    """Those of the places it reached."""


class Map:
    """The recorded runs of all tests."""

    def __init__(self, folder: Path) -> None:
        self.modules: set[str] = set()
        """Modules that the tests loaded."""
        self.runs: dict[str, Run] = {}
        for part in sorted(folder.glob("part-*.jsonl")):
            for modules, run in map(json.loads, part.read_text().splitlines()):
                self.modules.update(modules)
                self.runs[run[0]] = Run(*run)
        self._by_mark: defaultdict[str, list[Run]] = defaultdict(list)
        for run in self.runs.values():
            for mark in run.marks:
                self._by_mark[mark].append(run)

    @property
    def failed(self) -> list[str]:
        """The tests that fail without any change. They cannot catch one."""
        return [run.test for run in self.runs.values() if run.failed]

    def tests(self, place: Place) -> list[str]:
        """Return the tests that reach a place, in the order to run them.

        The cheapest are first. Many cases of one parametrized test often do the same, so its
        further cases count as dearer.
        """
        cases: Counter[str] = Counter()
        ranked = []
        for run in sorted(self._by_mark[changes.mark(place)], key=lambda run: run.cpu):
            name = run.test.partition("[")[0]
            cases[name] += 1
            ranked.append((run.cpu * cases[name], run.test))
        return [test for _, test in sorted(ranked) if not self.runs[test].failed]


def fingerprint(root: Path, tests: Iterable[str], drawn: Iterable[Place]) -> str:
    """Return a hash of the tests, the places and all files that affect the map."""
    given = sys.version, list(tests), [place.key for place in drawn]
    whole = hashlib.sha256(repr(given).encode())
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(one for one in folders if one[0] != "." and one not in LEFT_OUT)
        for path in (Path(folder, name) for name in sorted(names)):
            if path.suffix in READ:
                whole.update(f"{path}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return whole.hexdigest()[:16]


def measure(
    root: Path, folder: Path, items: Sequence[pytest.Item], drawn: Sequence[Place], jobs: int
) -> None:
    """Run all tests in several processes, and write into the folder what each of them reached.

    A test that ends its process has failed, and another process runs the rest of its file.
    """
    functions = Functions(root)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    queue, queued = os.pipe()
    os.write(queued, b"".join(number.to_bytes(2) for number in range(len(files))))
    os.close(queued)
    part = _Part(root, folder, [*files.values()], queue)
    with forks.Children() as children:
        for _ in range(jobs):
            children.start(partial(part.run, drawn, functions, ()))
        while children:
            end = children.wait()
            if not end.status:
                continue
            if end.error or not end.log:
                raise SystemExit(f"the tests cannot run without a change: {end.error}")
            last = next(item for item in items if item.nodeid == end.log[-1])
            own = files[last.path]
            with (folder / f"part-{end.child}.jsonl").open("a") as file:
                file.write(json.dumps([[], Run(last.nodeid, True, 0.0, 0.0, [])]) + "\n")
            children.start(partial(part.run, drawn, functions, own[own.index(last) + 1 :]))
    os.close(queue)


class _Part:
    """What each of the processes does that run the tests, a file at a time."""

    def __init__(
        self, root: Path, folder: Path, files: Sequence[Sequence[pytest.Item]], queue: int
    ) -> None:
        self._root = root
        self._folder = folder
        self._files = files
        self._queue = queue

    def run(
        self, drawn: Sequence[Place], functions: Functions, first: Iterable[pytest.Item],
        log: TextIO,
    ) -> None:  # fmt: skip
        """Run the tests that another process has left, and then others until none is left."""
        marks: set[str] = set()
        setattr(builtins, changes.PROBE, marks.add)
        for path in {place.path for place in drawn}:
            own = [place for place in drawn if place.path == path]
            functions.replace(changes.probed(self._root, path, own))
        forks.own_output(self._files[0][0].config)
        known = set(sys.modules)
        with (self._folder / f"part-{os.getpid()}.jsonl").open("w", buffering=1) as file:
            for item, after in pairwise(chain(first, self._items(), [None])):
                assert item is not None
                item.add_marker(pytest.mark.timeout(LONGEST), append=False)
                log.write(f"{item.nodeid}\n")
                marks.clear()
                outcome = forks.run_test(item, after)
                cpu, wall = round(outcome.cpu, 4), round(outcome.wall, 4)
                run = Run(item.nodeid, outcome.failed, cpu, wall, sorted(marks))
                file.write(json.dumps([sorted(set(sys.modules) - known), run]) + "\n")
                known.update(sys.modules)

    def _items(self) -> Iterator[pytest.Item]:
        """Take one file after the other from the queue, which all parts share."""
        while number := os.read(self._queue, 2):
            yield from self._files[int.from_bytes(number)]

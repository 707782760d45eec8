"""Changes the program in small ways and sees whether the tests notice: `make mutate`.

    python -m scripts.mutate [--minutes M] [--seed N] [FILE...]

Each mutant is one change to one file: a statement is left out, a condition negated, a comparison or
a constant is another. It is loaded in place of the file by a process that runs the tests of its
folder, the quickest first, and stops at the first that fails. What no test notices is a survivor:
either a test is missing, or the line is not needed, or the change makes no difference. Mutants are
drawn in an order that the seed decides, for as long as `--minutes` says. No file is changed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import pytest

KERNEL = [
    "tests/kernel/test_recorded_journals.py::test_recorded_journal_gives_the_recorded_states",
    "tests/language/test_writes_pass_on.py",
    "tests/kernel/test_splits_and_joins.py",
    "tests/kernel/test_steps.py",
    "tests/kernel/test_asking.py",
    "tests/kernel/test_waits_and_approvals.py",
]
"""Quick, and between them they notice most."""
LANGUAGE = [
    "tests/language/test_finally.py",
    "tests/language/test_cancelling.py",
    "tests/language/test_compensation.py",
    "tests/language",
    "tests/kernel",
]
JOURNAL = ["tests/journal/test_encoding.py", "tests/journal/test_conformance.py", "tests/journal"]
TESTS = {
    "flowengine/kernel": [KERNEL, LANGUAGE],
    "flowengine/journal": [
        JOURNAL,
        ["tests/attacks/test_damaged_shapes.py", "tests/engines/test_running.py"],
    ],
    "flowengine/engines/running/recovery.py": [
        ["tests/engines/test_starts.py", "tests/engines/test_running.py"],
        ["tests/engines/test_crashes.py", "tests/engines/test_lost_environments.py"],
        ["tests/cli/test_evidence.py"],
    ],
}
"""By folder or file: the tests that should notice, in stages; a later one is for survivors."""
SLOW = "hash_seed or cost or covers or thousand or lives_long or explore"
"""Words in the names of tests that cost more than they find."""
LIMIT = 240
"""Seconds after which a mutant has not come to an end, which counts as noticed."""
SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


class Place(NamedTuple):
    """A place in a file where something can be changed."""

    path: Path
    node: int
    """Its number among the nodes of the file."""
    kind: str


class Mutant(NamedTuple):
    """One change to one file."""

    path: Path
    line: int
    what: str
    tree: ast.Module


def places(path: Path) -> Iterator[Place]:
    """Yield the places of a file, in its order."""
    for number, node in enumerate(ast.walk(ast.parse(path.read_text()))):
        for kind in _ways(node):
            yield Place(path, number, kind)


def mutant_at(place: Place) -> Mutant | None:
    """Return the mutant of a place; None where there is nothing to change after all."""
    tree = ast.parse(place.path.read_text())
    node = list(ast.walk(tree))[place.node]
    what = _change(tree, node, place.kind)
    line: int = getattr(node, "lineno", 0)
    return Mutant(place.path, line, what, ast.fix_missing_locations(tree)) if what else None


def _ways(node: ast.AST) -> Sequence[str]:
    """Return in which ways a node can be changed."""
    match node:
        case ast.Expr(value=ast.Call()) | ast.Delete() | ast.Raise() | ast.AugAssign():
            return ["drop"]
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            return ["drop"]
        case ast.If() | ast.IfExp() | ast.While():
            return ["negate"]
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            return ["swap"]
        case ast.BoolOp():
            return ["other"]
        case ast.Constant(value=bool() | int()):
            return ["constant"]
        case ast.Return(value=ast.expr()):
            return ["nothing"]
    return []


def _change(tree: ast.Module, node: ast.AST, kind: str) -> str:
    """Change a node in place; return what was done, or nothing if it cannot be."""
    before = ast.unparse(node).splitlines()[0]
    match node:
        case ast.stmt() if kind == "drop":
            return f"left out: {before}" if _replace(tree, node, ast.Pass()) else ""
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if "TYPE_CHECKING" in ast.unparse(test):
                return ""
            node.test = ast.UnaryOp(ast.Not(), test)
            return f"negated: {ast.unparse(test)}"
        case ast.Compare():
            node.ops = [SWAPPED[type(node.ops[0])]()]
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.Constant(value=bool() as value):
            node.value = not value
        case ast.Constant(value=int() as value):
            node.value = value + 1
        case ast.Return():
            node.value = ast.Constant(None)
    return f"{before}  ->  {ast.unparse(node).splitlines()[0]}"


def _replace(tree: ast.AST, old: ast.stmt, new: ast.stmt) -> bool:
    for parent in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(parent, field, None)
            if isinstance(block, list) and old in block:
                block[block.index(old)] = new
                return True
    return False


class _InPlace(MetaPathFinder):
    """Loads a mutant in place of its file."""

    def __init__(self, mutant: Mutant) -> None:
        self.name = ".".join(mutant.path.with_suffix("").parts)
        self.path = str(mutant.path.resolve())
        self.code = compile(mutant.tree, self.path, "exec")

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, if it is the one."""
        if fullname != self.name:
            return None
        loader: Loader = _Code(fullname, self.path, self.code)
        return spec_from_file_location(fullname, self.path, loader=loader)


class _Code(SourceFileLoader):
    """A loader that has the code already."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self.code = code

    def get_code(self, fullname: str) -> CodeType:
        """Return the code."""
        return self.code


def noticed(mutant: Mutant | None, tests: Sequence[str]) -> bool:
    """Return whether one of the tests fails, or does not end.

    Args:
        mutant: What is loaded in place of its file; None: the program as it is.
        tests: Which, in their order.
    """
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        os.setpgid(0, 0)
        signal.alarm(LIMIT)
        try:
            if mutant is not None:
                sys.meta_path.insert(0, _InPlace(mutant))
            options = ["-x", "-q", "-k", f"not ({SLOW})", "-p", "no:cacheprovider", "--no-header"]
            os._exit(int(pytest.main([*options, *tests])))
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return status != 0


def stages(path: Path) -> list[list[str]]:
    """Return the tests that should notice what is changed in a file."""
    fits = [place for place in TESTS if path == Path(place) or Path(place) in path.parents]
    if not fits:
        sys.exit(f"{path}: no tests are named for it in scripts/mutate.py")
    there = [[test for test in stage if Path(test.partition("::")[0]).exists()]
             for stage in TESTS[fits[0]]]  # fmt: skip
    return [stage for stage in there if stage]


def main() -> int:
    """Run for as long as was asked; return 1 if a mutant survived."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    given = parser.parse_args()
    files: list[Path] = given.files or [Path(place) for place in TESTS]
    paths = [one for file in files for one in (sorted(file.rglob("*.py")) or [file])]
    drawn = [place for path in paths for place in places(path)]
    random.Random(given.seed).shuffle(drawn)
    end = time.monotonic() + given.minutes * 60
    seen = survived = 0
    for place in drawn:
        if time.monotonic() > end:
            break
        mutant = mutant_at(place)
        if mutant is None:
            continue
        seen += 1
        if not any(noticed(mutant, tests) for tests in stages(mutant.path)):
            survived += 1
            sys.stdout.write(f"{mutant.path}:{mutant.line}: {mutant.what}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{survived} of {seen} mutants survived; there are {len(drawn)}\n")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())

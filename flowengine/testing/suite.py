"""Runs files of test cases: every case, and which branches of the flow they take together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import closing
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from flowengine.engines.flows import LoadedFlow
from flowengine.errors import InputError, NotFound
from flowengine.flow.cases.discovery import SUFFIX, files_below
from flowengine.flow.cases.loading import Cases, cases_beside, load_cases
from flowengine.testing.coverage import Coverage
from flowengine.testing.expectations import Problem, path_of, problems
from flowengine.testing.player import Player

if TYPE_CHECKING:
    from flowengine.flow.models.cases import Case


class CaseOutcome(NamedTuple):
    """The result of one case."""

    name: str
    problems: list[Problem]
    """Empty if it has passed."""
    status: str | None
    """Status of the execution. None if it did not begin."""
    path: list[str]
    """Addresses of all steps that began, in order."""
    seconds: float
    """Seconds of real time."""

    @property
    def passed(self) -> bool:
        """Whether all expectations of the case are met."""
        return not self.problems


class SuiteReport(NamedTuple):
    """The results of the cases of one file."""

    cases: Cases
    outcomes: list[CaseOutcome]
    coverage: Coverage
    imports: list[str]
    """Reducers in Python, as `module:function`: the only imported code of the flow."""

    @property
    def passed(self) -> bool:
        """Whether all cases have passed."""
        return all(outcome.passed for outcome in self.outcomes)


def find(paths: Iterable[str]) -> list[str]:
    """Return the files of test cases for some paths.

    Args:
        paths: Test files, flow files (for the test file beside them) or directories. Empty: all
            below the current directory.

    Returns:
        The files, each once, sorted by name within a directory.

    Raises:
        NotFound: A file does not exist, or a directory has no test files.
    """
    files: list[str] = []
    for path in list(paths) or ["."]:
        if os.path.isdir(path):
            inside = files_below(path, SUFFIX)
            if not inside:
                raise NotFound(
                    f"no test file (NAME{SUFFIX}) in {_named(path)}",
                    hint="write one next to a flow, or: flowengine test FLOW --from EXECUTION",
                )
            files += inside
            continue
        beside = path if path.endswith(SUFFIX) else cases_beside(path)
        if not os.path.isfile(beside):
            raise NotFound(
                f"the test file {beside} does not exist",
                hint=f"write it, or record a case: flowengine test {path} --from EXECUTION",
            )
        files.append(beside)
    return list(dict.fromkeys(files))


def _named(folder: str) -> str:
    return "this directory or below it" if folder == "." else f"{folder} or below it"


def run_file(path: str, wanted: Callable[[str], bool] | None = None) -> SuiteReport:
    """Run the cases of one file.

    Args:
        path: The file.
        wanted: Returns for a name whether to run the case. Default: all.

    Returns:
        The results.
    """
    cases = load_cases(path)
    flow = LoadedFlow(cases.flow.flow, cases.flow.form)
    groups = {name: frozenset(users) for name, users in cases.model.groups.items()}
    folder = os.path.dirname(os.path.abspath(path))
    coverage = Coverage(flow.compiled)
    outcomes = [
        run_case(flow, case, groups, folder, coverage)
        for case in cases.model.cases
        if wanted is None or wanted(case.name)
    ]
    return SuiteReport(cases, outcomes, coverage, flow.reducers)


def run_case(
    flow: LoadedFlow,
    case: Case,
    groups: dict[str, frozenset[str]],
    folder: str,
    coverage: Coverage | None = None,
) -> CaseOutcome:
    """Run one case.

    Args:
        flow: The flow.
        case: The case.
        groups: Group → its users, as `user:NAME`.
        folder: Directory for relative paths.
        coverage: Records the taken branches.

    Returns:
        The result.
    """
    began = perf_counter()
    player = Player(flow, case, groups, folder)
    with closing(player.host):
        try:
            player.begin()
        except InputError as error:
            name = (error.field or "").split(".")[0]
            loc = (*case.loc, "inputs", name) if name in case.inputs else (*case.loc, "inputs")
            faults = [Problem(f"the flow refuses the inputs: {error.message}", loc)]
            return CaseOutcome(case.name, faults, None, [], perf_counter() - began)
        player.play()
        if coverage is not None:
            coverage.see(player.observations)
        status = player.execution.state["status"]
        path = path_of(player.observations, player.flow.compiled)
        faults = list(problems(case, player))
    return CaseOutcome(case.name, faults, status, path, perf_counter() - began)

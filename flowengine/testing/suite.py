"""Runs files of test cases: every case, and which branches of the flow they take together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from time import perf_counter
from typing import NamedTuple

from flowengine.engines.flows import LoadedFlow
from flowengine.errors import InputError, NotFound
from flowengine.flow.cases import SUFFIX, Cases, cases_beside, files_below, load_cases
from flowengine.flow.models.cases import Case
from flowengine.kernel.commands import Observation
from flowengine.kernel.graph.compiled import END, END_ALL, OPENING
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec
from flowengine.testing.expectations import Problem, path_of, problems
from flowengine.testing.player import Player

ENTERED = frozenset({"running", "waiting", "succeeded", "failed", "uncertain", "retrying"})


HIDDEN = frozenset({"finally", OPENING})
"""Hidden steps that belong to a flow, not to one of its steps."""


class Branch(NamedTuple):
    """One branch of a flow."""

    step: int
    what: str
    """`entered`, `skipped`, `outcome`, `to` or `handler`."""
    which: str | int = ""
    """The outcome, the target or the number of the handler."""


class Coverage:
    """The branches of a flow that have been taken.

    Args:
        flow: The flow.
    """

    def __init__(self, flow: CompiledFlow) -> None:
        self.flow = flow
        self.branches = list(dict.fromkeys(_branches(flow)))
        self.taken: set[Branch] = set()
        self._known = frozenset(self.branches)

    def see(self, observations: Iterable[Observation]) -> None:
        """Add the branches that one execution has taken."""
        for seen in observations:
            self.taken |= self._known.intersection(_taken(seen))

    @property
    def missed(self) -> list[Branch]:
        """The branches that no case has taken, in the order of the file."""
        left = [branch for branch in self.branches if branch not in self.taken]
        return sorted(left, key=self.place)

    def reported(self) -> list[Branch]:
        """Return the missed branches without those of steps that were never entered themselves."""
        missed = self.missed
        unseen = {branch.step for branch in missed if branch.what == "entered"}
        return [miss for miss in missed if miss.what == "entered" or miss.step not in unseen]

    def place(self, branch: Branch) -> tuple[int, int]:
        """Return line and column of the step of a branch."""
        line, column = (self.flow["steps"][branch.step].get("at") or [0, 0])[:2]
        return line, column

    def name(self, branch: Branch) -> str:
        """Return a branch in words."""
        step = self.flow["steps"][branch.step]
        undoes = " compensate" if step["body"] < 0 and step["id"] not in HIDDEN else ""
        name = f"{step['id']}{undoes}"
        match branch.what:
            case "entered":
                return f"{name}: never entered"
            case "skipped":
                return f"{name}: never skipped by its 'when'"
            case "outcome":
                return f"{name}: outcome {branch.which} never occurred"
            case "to":
                to = int(branch.which)
                ends = {END: "end", END_ALL: "end_all"}
                target = ends.get(to) or self.flow["steps"][to]["id"]
                return f"{name}: never continued to {target}"
        handler = step["on_error"][int(branch.which)]
        types = ", ".join(handler.get("types", ())) or "for every error"
        return f"{name}: on_error entry {types} → {handler.get('do', 'raise')} never used"


def _branches(flow: CompiledFlow) -> Iterator[Branch]:
    generated = {
        step
        for body in flow.get("flows", [])
        if body.get("counts_alone")
        for step in range(*body["steps"])
    }
    for number in sorted(_inside(flow)):
        step = flow["steps"][number]
        if step["body"] < 0 and step["id"] in HIDDEN:
            continue
        yield Branch(number, "entered")
        if number in generated:  # its other branches are generated
            continue
        if "when" in step:
            yield Branch(number, "skipped")
        yield from _ways(number, step)
        for index in range(len(step.get("on_error", ()))):
            yield Branch(number, "handler", index)


def _inside(flow: CompiledFlow) -> set[int]:
    """Return the steps of one execution, without those that `background` starts as another one."""
    subflows = flow.get("flows", [])
    of_subflows = {step for subflow in subflows for step in range(*subflow["steps"])}
    steps = set(range(len(flow["steps"]))) - of_subflows
    left = list(steps)
    while left:
        step = flow["steps"][left.pop()]
        if step.get("action") == "flow":
            callee = flow["bodies"][step["child"]].get("flow", 0)
            more = set(range(*subflows[callee - 1]["steps"])) - steps if callee else set()
            steps |= more
            left += more
    return steps


def _ways(number: int, step: StepSpec) -> Iterator[Branch]:
    split = step.get("split")
    if split is None:
        return
    if split["kind"] == "outcome":
        for outcome in split["outcomes"]:
            yield Branch(number, "outcome", outcome)
        return
    entries = split.get("entries", [])
    if any("when" in entry for entry in entries):
        for entry in entries:
            yield Branch(number, "to", entry["to"])


def _taken(seen: Observation) -> Iterator[Branch]:
    if seen.status == "skipped":
        yield Branch(seen.step, "skipped")
    elif seen.status in ENTERED:
        yield Branch(seen.step, "entered")
    if seen.outcome is not None:
        yield Branch(seen.step, "outcome", seen.outcome)
    for target in seen.to:
        yield Branch(seen.step, "to", target)
    if seen.handler >= 0:
        yield Branch(seen.step, "handler", seen.handler)


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
                where = "this directory" if path == "." else path
                raise NotFound(
                    f"no test file (NAME{SUFFIX}) in {where} or below it",
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
        path = path_of(player.observations)
        faults = list(problems(case, player))
    return CaseOutcome(case.name, faults, status, path, perf_counter() - began)

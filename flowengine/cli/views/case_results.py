"""Results of test cases as text, and as the JUnit XML that CI systems read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from flowengine.cli.terminal.output import writing
from flowengine.errors import FlowFileError
from flowengine.sdk.texts.visible_text import REPLACEMENT, printable_lines
from flowengine.testing.evaluation import Trial
from flowengine.testing.expectations import Problem
from flowengine.testing.suite import CaseOutcome, SuiteReport

_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def problem_lines(report: SuiteReport, problem: Problem) -> list[str]:
    """Return a problem as lines, the first with its location."""
    lines = problem.message.split("\n")
    if problem.loc is not None:
        place = report.cases.source.position(problem.loc)
        lines[0] = f"{place.line}:{place.column}: {lines[0]}"
    return lines


def write_junit(
    path: Path, reports: Sequence[SuiteReport], broken: Sequence[tuple[str, FlowFileError]]
) -> None:
    """Write the results of test cases as JUnit XML.

    Args:
        path: The file, which is replaced. Its directory is created if it is missing.
        reports: The results, by test file.
        broken: Test files that are invalid, or whose flows are.

    Raises:
        UsageError: The file cannot be written.
    """
    suites = []
    for report in reports:
        failed = sum(not outcome.passed for outcome in report.outcomes)
        cases = [_case(report, outcome) for outcome in report.outcomes]
        seconds = sum(outcome.seconds for outcome in report.outcomes)
        suites.append(_suite(report.cases.path, cases, (failed, 0, 0), seconds))
    for file, error in broken:  # a case whose error is the reason
        reason = _element("error", {"message": error.message.splitlines()[0], "type": "error"})
        reason.text = _xml(error.message)
        suites.append(_suite(file, [_test(file, "the file is valid", 0, [reason])], (0, 1, 0), 0))
    _write(path, "flowengine test", suites)


def write_trials(path: Path, file: str, trials: Sequence[Trial]) -> None:
    """Write the trials of an evaluation as JUnit XML, with a suite for each variant.

    Args:
        path: The file, which is replaced.
        file: The evaluation file.
        trials: Its trials.

    Raises:
        UsageError: The file cannot be written.
    """
    suites = []
    for variant in dict.fromkeys(trial.variant for trial in trials):
        own = [trial for trial in trials if trial.variant == variant]
        states = [_TRIALS.get(trial.status) for trial in own]
        failed, errors, skipped = map(states.count, ("failure", "error", "skipped"))
        seconds = sum(trial.seconds for trial in own)
        cases = [_trial(file, trial) for trial in own]
        counts = (failed, errors, skipped)
        suites.append(_suite(file, cases, counts, seconds, f"{file}: {variant}"))
    _write(path, "flowengine eval", suites)


_TRIALS = {"failed": "failure", "error": "error", "waiting": "skipped", "not run": "skipped"}
"""Status of a trial that has not passed → its element."""


def _trial(file: str, trial: Trial) -> Element:
    inner = []
    if trial.status in _TRIALS:
        message = " ".join((trial.problems or [trial.status])[0].split("\n"))
        kind = _TRIALS[trial.status]
        inner = [_element(kind, {"message": message, "type": trial.status})]
        inner[0].text = _xml("\n".join([trial.execution, *trial.problems]))
    name = f"{trial.case} ({trial.number})"
    return _test(file, name, trial.seconds, inner, f".{trial.variant}")


def _write(path: Path, name: str, suites: Sequence[Element]) -> None:
    from xml.etree.ElementTree import ElementTree, indent

    names = ("tests", "failures", "errors", "skipped")
    totals = {name: str(sum(int(suite.attrib[name]) for suite in suites)) for name in names}
    totals["time"] = _time(sum(float(suite.attrib["time"]) for suite in suites))
    root = _element("testsuites", {"name": name, **totals}, suites)
    indent(root)
    with writing(path):
        ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _case(report: SuiteReport, outcome: CaseOutcome) -> Element:
    file = report.cases.path
    problems = ["\n".join(problem_lines(report, problem)) for problem in outcome.problems]
    failures = []
    if problems:
        first, *rest = (line.strip() for line in problems[0].split("\n"))
        message = f"{first.removesuffix(':')}: {'; '.join(rest)}" if rest else first
        failure = _element("failure", {"message": message, "type": "failure"})
        failure.text = _xml("\n".join(f"{file}:{problem}" for problem in problems))
        failures = [failure]
    return _test(file, outcome.name, outcome.seconds, failures)


def _suite(
    file: str,
    cases: Sequence[Element],
    counts: tuple[int, int, int],
    seconds: float,
    name: str = "",
) -> Element:
    """Return cases of a file as a suite, with the numbers of failures, errors and skipped ones."""
    numbers = zip(("tests", "failures", "errors", "skipped"), (len(cases), *counts), strict=True)
    texts = {key: str(number) for key, number in numbers}
    given = {"name": name or file, "file": file, **texts, "time": _time(seconds)}
    return _element("testsuite", given, cases)


def _test(
    file: str, name: str, seconds: float, inner: Sequence[Element], variant: str = ""
) -> Element:
    """Return a case, with the dotted name of its file by which CI systems group cases."""
    stem = Path(file.removesuffix(".yaml").removesuffix(".test").removesuffix(".eval"))
    group = f"{'.'.join(stem.parts).lstrip('/.')}{variant}"
    given = {"name": name, "classname": group, "file": file, "time": _time(seconds)}
    return _element("testcase", given, inner)


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"


def _element(tag: str, attributes: dict[str, str], inner: Sequence[Element] = ()) -> Element:
    element = Element(tag, {name: _xml(value) for name, value in attributes.items()})
    element.extend(inner)
    return element


def _xml(text: str) -> str:
    """Return a text without characters that XML does not allow."""
    return _NOT_XML.sub(REPLACEMENT, printable_lines(text))

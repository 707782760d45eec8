"""`flowengine test`: run the test cases of flows, offline and without waiting."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from flowengine.cli.case_recording import record_case
from flowengine.cli.parsing.declared import arg, command, exits, section
from flowengine.cli.terminal.output import err, err_text, out, out_json, paint
from flowengine.cli.views.case_results import problem_lines, write_junit
from flowengine.errors import FlowFileError, UsageError
from flowengine.testing.suite import CaseOutcome, SuiteReport, find, run_file

FAILED = 1


@command(
    "run the test cases of flows: scripted results, virtual time, no outside calls",
    """\
flowengine test
flowengine test --junit results.xml
flowengine test expense.yaml
flowengine test expense.yaml --case 'no decision'
flowengine test expense.yaml --from 01jc3v""",
    exits("0 if all pass, 1 if one fails, 3 if a file is invalid, 9 if no test file exists"),
    arg(
        "files FILE",
        "flows (NAME.test.yaml next to NAME.yaml is run), test files or directories "
        "(default: all test files below the current directory)",
        nargs="*",
    ),
    arg(
        "--from ID",
        "record an execution as a case in the test file of FILE, or print it without FILE",
        dest="execution",
    ),
    section("with --from", arg("--name NAME", "name of the case that is recorded")),
    section(
        "without --from",
        arg("--case NAME", "only cases whose name contains this text"),
        arg(
            "--junit FILE",
            "also write the results to this file, as JUnit XML for CI systems",
            type=Path,
        ),
    ),
)
def test_command(arguments: Namespace) -> int:
    """Run the cases.

    Returns:
        0 if all have passed, 1 if one has failed, 3 if a file is not valid.

    Raises:
        UsageError: No case has this name.
    """
    if arguments.execution is not None:
        return record_case(arguments)
    reports: list[SuiteReport] = []
    broken: list[tuple[str, FlowFileError]] = []
    wanted = None if arguments.case is None else lambda name: arguments.case in name
    for path in find(arguments.files):
        try:
            report = run_file(path, wanted)
        except FlowFileError as error:
            broken.append((path, error))
            if not arguments.json:
                err_text(error.message)
            continue
        reports.append(report)
        if not arguments.json:
            _show(report, arguments)
    count = sum(len(report.outcomes) for report in reports)
    if arguments.case is not None and not count and not broken:
        raise UsageError(f"no case has '{arguments.case}' in its name")
    if arguments.junit is not None:
        write_junit(arguments.junit, reports, broken)
    if arguments.json:
        out_json(_as_data(reports, [error for _, error in broken]))
    elif count:
        outcomes: list[CaseOutcome] = [outcome for report in reports for outcome in report.outcomes]
        failed = sum(not outcome.passed for outcome in outcomes)
        passed = f"{len(outcomes) - failed} passed"
        out(f"{passed}, {failed} failed" if failed else passed)
    if broken:
        return FlowFileError.exit_code
    return 0 if all(report.passed for report in reports) else FAILED


def _show(report: SuiteReport, arguments: Namespace) -> None:
    """Show one file: a line for each case, the failures, and branches that no case took."""
    path = report.cases.path
    if report.imports and not arguments.quiet:
        err(f"{report.cases.flow_path}: imports its reducers: {', '.join(report.imports)}")
    for outcome in report.outcomes:
        if outcome.passed and arguments.quiet:
            continue
        word = paint("ok    ", "green") if outcome.passed else paint("FAILED", "red")
        time = f"  {outcome.seconds * 1000:.0f} ms" if arguments.verbose else ""
        out(f"{word} {path}: {outcome.name}{time}")
        for problem in outcome.problems:
            for number, line in enumerate(problem_lines(report, problem)):
                out(f"       {'' if number == 0 else '  '}{line}")
    if arguments.case is None:
        coverage = report.coverage
        missed = coverage.reported()
        if missed or not arguments.quiet:
            taken = len(coverage.taken)
            out(f"{report.cases.flow_path}: {taken} of {len(coverage.branches)} branches taken")
            for branch in missed:
                row, column = coverage.place(branch)
                out(f"  {report.cases.flow_path}:{row}:{column}: {coverage.name(branch)}")


def _as_data(reports: list[SuiteReport], broken: list[FlowFileError]) -> dict[str, Any]:
    outcomes = [outcome for report in reports for outcome in report.outcomes]
    return {
        "passed": sum(outcome.passed for outcome in outcomes),
        "failed": sum(not outcome.passed for outcome in outcomes),
        "files": [_file(report) for report in reports],
        "errors": [diagnostic.as_dict() for error in broken for diagnostic in error.diagnostics],
    }


def _file(report: SuiteReport) -> dict[str, Any]:
    coverage = report.coverage
    missed = []
    for branch in coverage.missed:
        line, column = coverage.place(branch)
        missed.append({"branch": coverage.name(branch), "line": line, "column": column})
    return {
        "file": report.cases.path,
        "flow": report.cases.flow_path,
        "imports": report.imports,
        "cases": [_case(report, outcome) for outcome in report.outcomes],
        "branches": {"all": len(coverage.branches), "missed": missed},
    }


def _case(report: SuiteReport, outcome: CaseOutcome) -> dict[str, Any]:
    problems = []
    for problem in outcome.problems:
        place = report.cases.source.position(problem.loc or ())
        problems.append({"message": problem.message, "line": place.line, "column": place.column})
    return {
        "name": outcome.name,
        "passed": outcome.passed,
        "status": outcome.status,
        "path": outcome.path,
        "seconds": round(outcome.seconds, 6),
        "problems": problems,
    }

"""Writes a test case made of an execution to the test file of its flow, or to standard output."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out_json, out_text, writing
from flowengine.errors import NotFound, UsageError
from flowengine.flow.cases import SUFFIX, cases_beside, flow_beside, parse_cases
from flowengine.flow.source.yaml_source import read, read_text
from flowengine.testing.recording import RecordedCase, record, text_of

FAILED = 1


def record_case(arguments: Namespace) -> int:
    """Make a case of an execution and write it.

    Args:
        arguments: Of `flowengine test`.

    Returns:
        The exit code: 1 if replaying the case does not yield the recorded history. It is then
        written to no file.

    Raises:
        NotFound: The execution or the flow file does not exist.
        UsageError: Several files are named, or no case can be added to the file.
    """
    if len(arguments.files) > 1:
        raise UsageError("--from writes into one file: name only one")
    with CliSession(arguments) as session:
        id = session.engine.executions.find(arguments.execution)
        short = session.short(id)
        if arguments.files:
            _check_flow(arguments.files[0], session.flow_of(id).id, short)
        recorded = record(session.engine, id, arguments.name or f"recorded from {short}")
    if arguments.files and not recorded.differences:
        path = arguments.files[0]
        path = path if path.endswith(SUFFIX) else cases_beside(path)
        case = add_case(path, recorded.case)
        message = f"written to {path}: {case['name']}"
    else:
        path, message = None, ""
        if not arguments.json and not arguments.files:
            out_text(text_of(recorded.case, 0).rstrip("\n"))
    if arguments.json:
        out_json({"file": path, "case": recorded.case, "differences": recorded.differences})
    elif message and not arguments.quiet:
        err(message)
    return _report(recorded, kept=not arguments.files)


def _check_flow(path: str, flow: str, execution: str) -> None:
    """Check that a file is for the flow of an execution. A file with cases names its flow itself.

    Raises:
        NotFound: The flow file does not exist.
        UsageError: It is for another flow.
    """
    if path.endswith(SUFFIX):
        if os.path.exists(path):
            return
        path = flow_beside(path)
    if not os.path.isfile(path):
        raise NotFound(
            f"there is no flow file {path}",
            hint=f"give the file of the flow '{flow}', or leave it out to print the case",
        )
    data = read(path).data
    found = data.get("id") if isinstance(data, dict) else None
    if found != flow:
        is_of = f"{path} is not a flow file" if found is None else f"{path} is '{found}'"
        raise UsageError(
            f"execution {execution} is one of the flow '{flow}'; {is_of}",
            hint="leave out the file to print the case",
        )


def _report(recorded: RecordedCase, *, kept: bool) -> int:
    """Report how the history of the case differs.

    Args:
        recorded: The case.
        kept: Whether it was printed although it differs.
    """
    if not recorded.differences:
        return 0
    fate = "" if kept else ", so it was not written (without FILE, it is printed)"
    err(f"the case does not reproduce the recorded history{fate}:")
    for line in "\n".join(recorded.differences).split("\n"):
        err(f"  {line}")
    return FAILED


def add_case(
    path: str,
    case: dict[str, Any],
    command: str = "test",
    check: Callable[[str], object] = parse_cases,
) -> dict[str, Any]:
    """Add a case at the end of a file.

    Args:
        path: The file, which is created if it does not exist.
        case: The case.
        command: Name of the command that reads such files.
        check: Reads the text of such a file.

    Returns:
        The case, with a name that is new in the file.

    Raises:
        UsageError: No case can be added to the file.
    """
    if not os.path.exists(path):
        _save(path, f"cases:\n{text_of(case)}", check)
        return case
    with open(path, encoding="utf-8") as file:
        text = file.read()
    source = read_text(text, path)
    cases = source.data.get("cases") if isinstance(source.data, dict) else None
    if not isinstance(cases, list) or not cases or source.problems:
        raise UsageError(
            f"{path} is not a file with cases", hint=f"show its errors: flowengine {command} {path}"
        )
    names = {case.get("name") for case in cases if isinstance(case, dict)}
    name, number = case["name"], 1
    while name in names:
        number += 1
        name = f"{case['name']} ({number})"
    named = {**case, "name": name}
    line = source.line_text(source.position(("cases", 0)).line)
    dash = line.lstrip(" ")[:2]
    indent = len(line) - len(line.lstrip(" ")) if dash == "- " else None
    blank = "\n" if text.endswith("\n") else "\n\n"
    longer = f"{text}{blank}{text_of(named, indent or 0)}"
    expected = {**source.data, "cases": [*cases, named]}
    if indent is None or read_text(longer, path).data != expected:
        raise UsageError(
            f"{path} cannot take another case at its end",
            hint="write 'cases:' as the last key, each case with a dash, or leave FILE out and"
            " paste the printed case",
        )
    _save(path, longer, check)
    return named


def _save(path: str, text: str, check: Callable[[str], object]) -> None:
    check(text)
    with writing(path), open(path, "w", encoding="utf-8") as file:
        file.write(text)

# Shows E24, E78, E105, F11, F31, F88, F91, S89
"""The corpus of broken flow files and their exact reports.

`broken/CODE_what.yaml` is a flow file, `CODE_what.txt` the report of `flowengine check` about it,
without its last line, which counts the diagnostics. To add a case, write the first file and run

    UPDATE_GOLDEN=1 pytest tests/flow/test_broken.py

to create the second, then read it as an author of that mistake would. A first line `# checker only:
WHY` marks errors that the JSON Schema cannot detect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_file
from flowengine.flow.export.file_schema import flow_schema
from flowengine.flow.source.diagnostics import render
from flowengine.flow.source.yaml_source import read

BROKEN = Path(__file__).parent / "broken"
CASES = sorted(BROKEN.glob("*.yaml"))
LOCAL = re.compile(
    r":(\d+):\d+: error\[E10[2-6]\]: "
    r"(?!the default|the file|a flow needs|a library|expected at most)"
    r"(?!.* takes no '|'\w+' is a step|'budget' has no meaning)"
)
"""Lines of errors that the JSON Schema can detect: those about which no other place decides."""
WHAT = ("error", "warning")


def report(name: str) -> str:
    """Return the checker's report about a file of the corpus."""
    try:
        compiled = compile_file(name)
    except FlowFileError as error:
        return error.message + "\n"
    return render(compiled.diagnostics, read(name).files) + "\n"


def counted(diagnostics: str, name: str) -> str:
    """Return the last line of the report of a file with these diagnostics."""
    numbers = {what: len(re.findall(rf"(?m)^\S+: {what}\[", diagnostics)) for what in WHAT}
    told = [f"{number} {what}{'s' * (number > 1)}" for what, number in numbers.items() if number]
    return f"{' and '.join(told)} in {name}{'; nothing was run' * (numbers['error'] > 0)}\n"


def golden(case: Path) -> str:
    """Return the expected report of a case, empty if it does not exist yet."""
    path = case.with_suffix(".txt")
    return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.fixture(autouse=True)
def in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.stem))
def test_a_broken_file_gives_the_golden_report(case: Path) -> None:
    actual = report(case.name)

    if os.environ.get("UPDATE_GOLDEN"):
        case.with_suffix(".txt").write_text(re.sub(r".+\n\Z", "", actual), encoding="utf-8")
    assert actual == golden(case) + counted(golden(case), case.name)


def test_a_file_is_named_after_the_code_it_shows() -> None:
    for case in CASES:
        code = case.stem.partition("_")[0].upper()

        assert f"[{code}]: " in golden(case), case


def test_the_corpus_is_large_and_has_no_report_without_its_file() -> None:
    reports = {path.stem for path in BROKEN.glob("*.txt")}

    assert reports == {case.stem for case in CASES}
    assert len(CASES) >= 60


def parts(data: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each part of a flow with its path: a flow that has no other, beside a step."""
    base = {"flowengine": 1, "id": "part", "steps": [{"id": "step", "output": 1}]}
    for key, value in data.items():
        if key == "steps" and isinstance(value, list):
            yield from (((key, n), {**base, key: [one]}) for n, one in enumerate(value))
        else:
            yield (key,), {**base, key: value}


def test_what_can_be_seen_locally_fails_in_the_json_schema_too() -> None:
    """Each part of a file in which the checker finds an error."""
    validator = Draft202012Validator(flow_schema())
    wrong = 0
    for case in CASES:
        lines = {int(line) for line in LOCAL.findall(golden(case))}
        if not lines:
            continue
        source = read(case)
        if source.line_text(1).startswith("# checker only: "):
            assert validator.is_valid(source.data), case
            continue
        begins = [source.position(path, key=len(path) == 1).line for path, _ in parts(source.data)]
        for (path, flow), begin in zip(parts(source.data), begins, strict=True):
            end = min((line for line in begins if line > begin), default=10**6)
            if any(begin <= line < end for line in lines):
                assert not validator.is_valid(flow), (case, path)
                wrong += 1
    assert wrong > 100

"""The cases of an evaluation: those of its file, and the rows of a JSONL or CSV file."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from flowengine.engines.typed_text import by_type
from flowengine.errors import InputError
from flowengine.flow.evaluations import EvalPlan, beside
from flowengine.flow.models.evaluations import EvalCase, Rows
from flowengine.sdk.texts.json_values import read_json


def cases_of(plan: EvalPlan, inputs: dict[str, Any]) -> list[EvalCase]:
    """Return the cases of an evaluation, those in its data file included.

    Args:
        plan: The evaluation.
        inputs: The inputs that its flow declares: name → JSON Schema.

    Returns:
        The cases, each with its own name.

    Raises:
        InputError: The data file cannot be read as the evaluation describes it.
    """
    cases = list(plan.model.cases)
    rows = plan.model.data
    if rows is not None:
        cases += _from_rows(beside(plan.path, rows.file), rows, inputs)
    for name, count in Counter(case.name for case in cases).items():
        if count > 1:
            raise InputError(
                f"{plan.path}: two cases are named {name!r}", hint="choose another 'name' column"
            )
    return cases


def _from_rows(path: str, rows: Rows, inputs: dict[str, Any]) -> Iterator[EvalCase]:
    is_csv = path.endswith(".csv")
    for name in rows.inputs or ():
        if name not in inputs:
            raise InputError(
                f"the flow has no input {name!r}, for which {path} is to have a column",
                hint=f"it has: {', '.join(inputs)}",
            )
    needed = [name for name, schema in inputs.items() if "default" not in schema]
    for line, row in islice(_rows(path, is_csv=is_csv), rows.limit):
        place = f"{path}:{line}"
        columns = rows.inputs or {name: name for name in inputs if name in row}
        missing = [name for name in needed if name not in columns]
        if missing:
            raise InputError(
                f"no column of {place} is for the input {missing[0]!r}",
                hint=f"'inputs' of 'data' names a column for each input: {', '.join(row)}",
            )
        wanted = [*columns.values(), *filter(None, (rows.expected, rows.name))]
        for column in wanted:
            if column not in row:
                raise InputError(
                    f"{place} has no column {column!r}", hint=f"its columns: {', '.join(row)}"
                )
        given = {}
        for name, column in columns.items():
            schema = inputs.get(name, {})
            value = row[column]
            given[name] = by_type(schema, value, f"{place}: {name}", name) if is_csv else value
        name = str(row[rows.name]) if rows.name else f"{os.path.basename(path)}:{line}"
        expected = row[rows.expected] if rows.expected else None
        yield EvalCase(name=name, inputs=given, expected=expected)


def _rows(path: str, *, is_csv: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file, each with its line."""
    try:
        with open(path, encoding="utf-8-sig", newline="" if is_csv else None) as file:
            if is_csv:
                reader = csv.DictReader(file, restval="")
                names = list(reader.fieldnames or ())
                if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
                    raise InputError(f"{path} has the column {repeated[0]!r} twice")
                for row in reader:
                    yield reader.line_num, {key: row[key] for key in row if key is not None}
                return
            for line, text in enumerate(file, 1):
                if text.strip():
                    row = read_json(text, f"{path}:{line}", "data")
                    if not isinstance(row, dict):
                        raise InputError(f"{path}:{line} is not an object with columns")
                    yield line, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}") from None

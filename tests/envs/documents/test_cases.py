# Shows W42, W43, W64, W65, W66, W67, W68, W69, W70, W71, W74, W75, W76, W79, W80
"""Documents and the Markdown that they become.

`cases/*.yaml` has groups of cases: a file or its compact description (`written.py`), options of the
conversion, and the whole result (`case_files.py`). To add a case, write its first part, run

    UPDATE_GOLDEN=1 pytest tests/envs/documents/test_cases.py

to add the second, and read it as a reader of the document would.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowengine.flow.export.definition import to_yaml
from flowengine_documents.document import ConversionLimits, Document, Unreadable
from flowengine_envs.documents.converting import convert
from tests.envs.documents.case_files import RESULT, Case, shared_of, whole, without, written
from tests.envs.documents.written import KINDS, built

CASES = Path(__file__).with_name("cases")
OPTIONS = ("name", "media_type", "base", "comments", "password", "limits")


@cache
def content_of(path: Path) -> dict[str, Any]:
    """Return the groups of cases of a file, and what they share."""
    loaded: dict[str, Any] = yaml.load(path.read_text(), yaml.CSafeLoader)
    return loaded


ALL = [
    pytest.param(path, group, number, id=f"{path.stem}: {group} {number + 1}")
    for path in sorted(CASES.glob("*.yaml"))
    for group, cases in content_of(path).items()
    if group != "all"
    for number, case in enumerate(cases)
    if case.keys() != {"all"}
]


@pytest.mark.parametrize(("path", "group", "number"), ALL)
def test_a_document_becomes_this_markdown(path: Path, group: str, number: int) -> None:
    content = content_of(path)
    case, shared = content[group][number], shared_of(content, group, number)
    stated = whole(shared, case)
    given = {key: stated[key] for key in stated if key in KINDS or key in OPTIONS}
    without_format = {"format"} if "error" in stated else set[str]()
    expected = {key: stated[key] for key in stated if key not in {*given, *without_format}}

    found = result(given)

    if os.environ.get("UPDATE_GOLDEN") and found != expected:
        own = {key: case[key] for key in case if key not in (*RESULT, "OUT")}
        content[group][number] = {**own, **without(shared, own, found)}
        path.write_text(written(content))
    else:
        assert found == expected, f"{path.name}, {group!r}, case {number + 1}:\n" + "\n".join(
            difflib.ndiff(to_yaml(expected).split("\n"), to_yaml(found).split("\n"))
        )


def result(given: Case) -> Case:
    """Return what a file becomes: an error, or its Markdown and everything that differs from the
    default.
    """
    data = built(given)
    named = {"name": given["file"]} if "file" in given else {}
    options = {**named, **{key: given[key] for key in OPTIONS if key in given}}
    if "limits" in options:
        options["limits"] = ConversionLimits(**options["limits"])
    try:
        document = convert(data, **options)
    except Unreadable as error:
        return {"error": type(error).__name__, "message": str(error)}
    assert (document.size, document.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    for part in document.parts:
        mark = f"<!-- {part.kind} {part.number}"
        assert document.markdown[part.start :].startswith(mark), "a part does not begin at its mark"
    found = {
        "format": document.format,
        "title": document.title,
        "notes": document.notes,
        "truncated": document.truncated,
        "parts": [part.name for part in document.parts if part.name],
        "tables": [] if tables_are_shown(document) else document.tables,
        "markdown": document.markdown or "(empty)",
    }
    return {key: value for key, value in found.items() if value}


def tables_are_shown(document: Document) -> bool:
    """Return whether the Markdown has the tables of a document, and no others."""
    lines = [
        line.strip("> ")
        for line in document.markdown.split("\n")
        if line.lstrip(" >-").startswith("| ")
    ]
    shown = [
        "| " + " | ".join(cells) + " |"
        for table in document.tables
        for cells in [table[0], ["---"] * len(table[0]), *table[1:]]
    ]
    return lines == shown

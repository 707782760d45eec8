# Shows F16
"""The structural hash changes with every change in meaning, and with nothing else (F16).

The flows are the examples. A change affects one scalar. Changes of the same kind, at the same place
of the language, follow the same path through the compiler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.flow.source.yaml_source import read
from tests.flow.examples import FILES, compiled
from tests.flow.verdicts import compiled_if_accepted

PARTS = [
    (file, part, parts)
    for file in FILES
    for parts in [1 + file.stat().st_size // 1500]
    for part in range(parts)
]
"""Each leaf of a file is a flow to compile, so for large files a test takes every nth."""
FOR_PEOPLE = {"description"}
"""Keys whose text no execution ever reads."""
Path_ = tuple[str | int, ...]


def leaves(data: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the paths of all scalars with a meaning."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key not in FOR_PEOPLE:
                yield from leaves(value, (*path, key))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from leaves(item, (*path, index))
    else:
        yield path


def changed(data: Any, path: Path_) -> Any:
    """Return the data with one scalar changed."""
    if path:
        copy: Any = dict(data) if isinstance(data, dict) else list(data)
        copy[path[0]] = changed(data[path[0]], path[1:])
        return copy
    if isinstance(data, bool) or data is None:
        return not data
    if isinstance(data, int | float):
        return data + 1
    number = re.search(r"\d+", data)
    if number:
        return f"{data[: number.start()]}{int(number[0]) + 1}{data[number.end() :]}"
    inner = re.fullmatch(r"\$\{\{(.*)\}\}", data, re.DOTALL)
    if inner:
        return f"${{{{ [{inner[1]}][0] }}}}"
    return data[:-1] + "x" if data.endswith("y") else data + "y"


def hash_of(data: Any, folder: Path) -> str | None:
    """Return the hash of a flow, or None if it is rejected."""
    found = compiled_if_accepted(json.dumps(data), folder)
    return found.hash if found else None


def changes(file: Path) -> Iterator[tuple[Path_, Any]]:
    """Yield the paths of scalars that belong to an example's flow, with the whole data."""
    data = read(file).data
    run = {flow["id"] for flow in compiled(file).flow.get("flows", [])}
    for path in leaves(data):
        if path[0] != "flows" or path[1] in run:  # the other flows exist for other files
            yield path, data


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("file", "part", "parts"), PARTS, ids=[f"{file.stem}-{part}" for file, part, _ in PARTS]
)
def test_any_change_in_meaning_changes_it(
    file: Path, part: int, parts: int, tenth: int | None
) -> None:
    hash = compiled(file).hash
    these = [*changes(file)][part::parts]
    kept = [
        path
        for path, data in (these if tenth is None else these[tenth::10])
        if hash_of(changed(data, path), file.parent) == hash
    ]

    assert kept == []

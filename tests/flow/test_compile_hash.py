"""The structural hash: any change in meaning changes it, and nothing else does (F16)."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowengine.errors import FlowFileError
from flowengine.flow.compile import Compiled, compile_file, compile_text
from flowengine.flow.source.diagnostics import Diagnostic, Diagnostics
from flowengine.flow.source.yaml_source import read

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = [p for p in sorted(EXAMPLES.glob("**/*.yaml")) if ".test" not in p.suffixes]
PARTS = [
    (file, part, parts)
    for file in FILES
    for parts in [1 + file.stat().st_size // 1500]
    for part in range(parts)
]
"""Each leaf of a file is a flow to compile: of a large file a test takes every nth."""
FOR_PEOPLE = {"description"}
"""Keys whose text no execution ever sees."""
Path_ = tuple[str | int, ...]


@cache
def compiled(file: Path) -> Compiled:
    """Return an example, compiled once for all tests."""
    return compile_file(file)


class Refused(Exception):
    """A flow is wrong; what else is wrong with it does not matter."""


def end_at_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have flows refused at once: finding all that is wrong with them would take most time."""
    add = Diagnostics.add

    def add_and_end(found: Diagnostics, diagnostic: Diagnostic) -> None:
        add(found, diagnostic)
        if not diagnostic.is_warning:
            raise Refused

    monkeypatch.setattr(Diagnostics, "add", add_and_end)


def shuffled(data: Any, draw: random.Random) -> Any:
    """Return the same data with the keys of all maps in another order."""
    if isinstance(data, list):
        return [shuffled(item, draw) for item in data]
    if isinstance(data, dict):
        keys = list(data)
        draw.shuffle(keys)
        return {key: shuffled(data[key], draw) for key in keys}
    return data


def leaves(data: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the places of all scalars that mean something."""
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


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.stem))
def test_comments_blanks_and_the_place_of_the_file_do_not_matter(
    file: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(file.parent, tmp_path / "elsewhere") / "renamed.yaml"
    text = file.read_text(encoding="utf-8")
    moved.write_text("# a comment\n" + text.replace("\nsteps:", "\n\n# here\nsteps:  # they are"))

    assert compile_file(moved).hash == compiled(file).hash


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.stem))
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(seed=st.integers())
def test_the_order_of_keys_and_the_way_of_quoting_do_not_matter(file: Path, seed: int) -> None:
    text = json.dumps(shuffled(read(file).data, random.Random(seed)))

    assert compile_text(text, folder=file.parent).hash == compiled(file).hash


@pytest.mark.parametrize(
    ("file", "part", "parts"), PARTS, ids=[f"{file.stem}-{part}" for file, part, _ in PARTS]
)
def test_any_change_in_meaning_changes_it(
    file: Path, part: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = read(file).data
    flow, hash, *_ = compiled(file)
    run = {flow["id"] for flow in flow.get("flows", [])}
    end_at_first_error(monkeypatch)
    kept = []
    for path in [*leaves(data)][part::parts]:
        if path[0] == "flows" and path[1] not in run:
            continue  # it is there for other files, and no part of this flow
        try:
            other = compile_text(json.dumps(changed(data, path)), folder=file.parent).hash
        except (FlowFileError, Refused):
            continue
        if other == hash:
            kept.append(path)

    assert kept == []

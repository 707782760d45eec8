# Shows F16
"""The structural hash: equal for equal meanings, different for different ones."""

from __future__ import annotations

import copy
import json
import shutil
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.flow.compile import compile_file, compile_text
from flowengine.flow.export.definition import definition, to_yaml
from flowengine.flow.source.yaml_source import read
from flowengine.flow.structural_hash import structural_hash
from tests.rows import each_row

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = [
    EXAMPLES / "hello.yaml",
    EXAMPLES / "expense" / "expense.yaml",
    EXAMPLES / "trip" / "trip.yaml",
    EXAMPLES / "document_review" / "review.yaml",
]
files = st.sampled_from(FILES)


@cache
def hash_of(file: Path) -> str:
    """Return the hash of an example, which is compiled once for all tests."""
    return compile_file(file).hash


@pytest.mark.endurance
@settings(max_examples=15)
@given(path=files, random=st.randoms(use_true_random=False), note=st.text("ab#: '\"{}", max_size=9))
def test_comments_blanks_quotes_and_braces_do_not_matter(
    path: Path, random: Random, note: str
) -> None:
    """A file in block style with comments, and one in flow style with everything quoted."""
    data = {**read(path).data, "x-note": note}
    lines = []
    for line in to_yaml(data).splitlines():
        if line[:1] not in {" ", ""} and random.random() < 0.5:
            lines += [f"# {note}", "", f"    # {note}"]
        lines.append(line)

    block = compile_text("\n".join(lines) + "\n", folder=path.parent)
    braces = compile_text(json.dumps(data, indent=random.choice([None, 1, 7])), folder=path.parent)

    assert block.hash == braces.hash == hash_of(path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_the_name_and_the_place_of_the_file_do_not_matter(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    shutil.copytree(path.parent, folder)
    moved = (folder / path.name).rename(folder / "renamed.yaml")

    assert compile_file(moved).hash == hash_of(path)


def flow(steps: str) -> str:
    return f"flowengine: 1\nid: test\nsteps:\n{steps}"


REDUCED = "state: {n: {type: integer, default: 0, reducer: {python: 'os:"
DIFFERENT = {
    "a step": "  - {id: a}\n  - {id: b}\n",
    "steps the other way round": "  - {id: b}\n  - {id: a}\n",
    "an edge": "  - {id: a, next: {all: [b, end]}}\n  - {id: b}\n",
    "text": "  - {id: a, output: '1'}\n",
    "an integer": "  - {id: a, output: 1}\n",
    "a double": "  - {id: a, output: 1.0}\n",
    "a boolean": "  - {id: a, output: true}\n",
    "null": "  - {id: a, output: null}\n",
    "no output": "  - {id: a}\n",
    "an expression": "  - {id: a, output: '${{ 1 }}'}\n",
    "a template": "  - {id: a, output: ' ${{ 1 }}!'}\n",
    "an escaped expression": "  - {id: a, output: '$${{ 1 }}'}\n",
    "a list": "  - {id: a, output: [expr, 0]}\n",
    "another list": "  - {id: a, output: [0, expr]}\n",
    "a map that looks like a place": "  - {id: a, output: {at: [1, 2]}}\n",
    "another such map": "  - {id: a, output: {at: [1, 3]}}\n",
    "a condition": "  - {id: a, when: '${{ true }}'}\n",
    "another condition": "  - {id: a, when: '${{ false }}'}\n",
    "attempts": "  - {id: a, retry: 3, call: std.print, with: {text: a}}\n",
    "more attempts": "  - {id: a, retry: 4, call: std.print, with: {text: a}}\n",
    "a script": "  - {id: a, run: make}\n",
    "another script": "  - {id: a, run: make test}\n",
    "a duration": "  - {id: a, wait: 60s}\n",
    "the same duration in other words": "  - {id: a, wait: 1m}\n",
    "a reducer": f"  - {{id: a}}\n{REDUCED}getpid'}}}}}}\n",
    "another reducer": f"  - {{id: a}}\n{REDUCED}getppid'}}}}}}\n",
}


def test_each_of_these_flows_has_a_hash_of_its_own() -> None:
    hashes: dict[str, str] = {}
    for name, steps in DIFFERENT.items():
        found = compile_text(flow(steps)).hash
        assert found not in hashes, (name, hashes.get(found))
        hashes[found] = name


def test_a_store_tells_names_of_tools_and_places_of_code_apart(tmp_path: Path) -> None:
    """Rules about calls refer to tool names, and code is searched in these folders."""
    text = "tools: {NAME: {python: 'os:getcwd', args: {}}}\n" + flow("  - {id: a, call: NAME}\n")
    one, other = (compile_text(text.replace("NAME", name)) for name in ("one", "other"))
    elsewhere = compile_text(text.replace("NAME", "one"), folder=tmp_path)

    assert one.hash == other.hash == elsewhere.hash
    assert len({one.form, other.form, elsewhere.form}) == 3
    assert compile_text("# x\n" + text.replace("NAME", "one")).form == one.form


def test_short_and_long_forms_are_the_same_flow() -> None:
    short = flow("  - {id: a, wait: 3d, retry: 3, next: b}\n  - {id: b}\n")
    long = flow("  - {id: a, wait: {for: 3d}, retry: {attempts: 3}, next: {to: b}}\n  - id: b\n")

    assert compile_text(short).hash == compile_text(long).hash


def test_numbers_of_expressions_do_not_matter() -> None:
    """They follow the order of the file, which has no meaning."""
    one: Any = {
        "steps": [{"id": "a", "when": 0, "output": ["text", ["x", 1]], "at": [1, 2]}],
        "expressions": [{"source": "p", "at": [1, 1]}, {"source": "q"}],
    }
    other: Any = {
        "expressions": [{"source": "q", "at": [9, 9]}, {"source": "p"}],
        "steps": [{"output": ["text", ["x", 0]], "when": 1, "id": "a"}],
    }
    third = copy.deepcopy(one)
    third["steps"][0]["when"] = 1

    assert structural_hash(one) == structural_hash(other)
    assert structural_hash(one) != structural_hash(third)


LIKE_PARTS = [
    "signals: {s: {data: {enum: [expr, 7]}}}\nsteps: [{id: a, output: X}]",
    "state: {body: {enum: [text, [{to: 7}], X], default: text}}\nsteps: [{id: a}]",
    "outputs: {o: {value: {set: X}, type: object, default: {set: 5, until: 7}}}\nsteps: [{id: a}]",
    "outputs: {task: 1, when: 2, sources: {value: X, enum: [expr, 7]}}\nsteps: [{id: a}]",
    "state: {const: {type: integer, default: 0}}\nsteps: [{id: a, set: {const: X}}]",
    "steps:\n- {id: a, approval: {title: t, choices: [{id: before}, {id: until}]}, output: X,"
    " next: {outcome: {before: b, until: c}}}\n- {id: b, next: end}\n- {id: c}",
    "steps: [{id: a, output: {task: X, when: 7, set: [expr, 7], with: {until: 7}}}]",
]
"""Data and names of a file that look like a part of the compiled form."""


@each_row("text", LIKE_PARTS)
def test_data_and_names_may_look_like_parts_of_the_compiled_form(text: str) -> None:
    head = "flowengine: 1\nid: f\ninputs: {x: {type: integer}}\n"
    texts = (text.replace("X", f"'${{{{ inputs.x + {n} }}}}'") for n in (1, 2))
    forms = [compile_text(head + one) for one in texts]
    assert len({form.hash for form in forms}) == len({definition(form.flow) for form in forms}) == 2

# Shows F16
"""The structural hash: equal for equal meanings, different for different ones."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.flow.compile import compile_file, compile_text
from flowengine.flow.export.definition import definition, to_yaml
from flowengine.flow.source.yaml_source import read
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


def test_a_store_tells_names_of_tools_and_places_of_code_apart(tmp_path: Path) -> None:
    """Rules about calls refer to tool names, and code is searched in these folders."""
    text = "tools: {NAME: {python: 'os:getcwd', args: {}}}\n" + flow("  - {id: a, call: NAME}\n")
    one, other = (compile_text(text.replace("NAME", name)) for name in ("one", "other"))
    elsewhere = compile_text(text.replace("NAME", "one"), folder=tmp_path)

    assert one.hash == other.hash == elsewhere.hash
    assert len({one.form, other.form, elsewhere.form}) == 3
    assert compile_text("# x\n" + text.replace("NAME", "one")).form == one.form


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

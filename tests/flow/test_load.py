"""From a file to a model: short forms, positions, and recovery after errors."""

from __future__ import annotations

from typing import Any

from flowengine.flow.export.definition import expanded
from flowengine.flow.loading.load import load_source
from flowengine.flow.models import FlowModel, Part
from flowengine.flow.source.diagnostics import Diagnostics, render
from flowengine.flow.source.yaml_source import read_text
from tests.rows import each_row

HEAD = "flowengine: 1\nid: test\n"
GREET = "steps:\n  - {id: greet, output: Hello!}\n"


def load(text: str) -> tuple[FlowModel | None, list[str]]:
    """Return the model of a file, and its errors as `line:column code message`."""
    found = Diagnostics()
    model = load_source(read_text(text), found)
    return model, [f"{one.line}:{one.column} {one.code} {one.message}" for one in found]


def good(text: str) -> FlowModel:
    found = Diagnostics()
    source = read_text(text)
    model = load_source(source, found)
    assert model is not None, render(found, source.files)
    assert list(found) == [], render(found, source.files)
    return model


def step(text: str) -> Any:
    return good(f"{HEAD}steps:\n  - {{id: one, {text}}}\n").steps[0]


@each_row(
    ("short", "long"),
    [
        ("wait: 3d", "wait: {for: 3d}"),
        ("wait: '${{ inputs.pause }}'", "wait: {for: '${{ inputs.pause }}'}"),
        ("approval: Really?", "approval: {title: Really?}"),
        (
            "approval: {title: Really?, choices: [approve, no_way], remind: 8h}",
            "approval: {title: Really?, choices: [{id: approve}, {id: no_way}],"
            " remind: {every: 8h}}",
        ),
        ("fail: Out of stock", "fail: {message: Out of stock}"),
        ("cancel: [one]", "cancel: {steps: [one]}"),
        ("cancel: execution", "cancel: {steps: execution}"),
        ("run: make test", "run: {script: make test}"),
        ("python: shop:pay", "python: {function: shop:pay}"),
        ("next: end", "next: {to: end}"),
        ("next: {all: [one, {else: end}]}", "next: {all: [{to: one}, {else: end}]}"),
        ("join: all", "join: {need: all}"),
        ("join: 2", "join: {need: 2}"),
        ("map: 3", "map: {over: 3}"),
        ("map: [1, 2]", "map: {over: [1, 2]}"),
        ("map: {over: 3, join: 2}", "map: {over: 3, join: {need: 2}}"),
        (
            "loop: {until: '${{ true }}', max: 3, every: 10s}",
            "loop: {until: '${{ true }}', max: 3, every: {delay: 10s}}",
        ),
        ("retry: 3", "retry: {attempts: 3}"),
        ("retry: {type: Timeout}", "retry: {type: [Timeout]}"),
        (
            "on_error: [{fail: Not found}, {type: Timeout, next: end}]",
            "on_error: [{fail: {message: Not found}}, {type: [Timeout], next: end}]",
        ),
        (
            "call: std.print, compensate: {run: undo, retry: 3}",
            "call: std.print, compensate: {run: {script: undo}, retry: {attempts: 3}}",
        ),
    ],
)
def test_a_short_form_is_the_long_one(short: str, long: str) -> None:
    assert step(short).plain() == step(long).plain()


def test_an_output_of_the_flow_is_a_value_or_says_its_type() -> None:
    model = good(f"{HEAD}outputs:\n  a: 3\n  b: {{value: 3, type: integer}}\n{GREET}")

    assert (model.outputs["a"].value, model.outputs["a"].json_schema) == (3, {})
    assert (model.outputs["b"].value, model.outputs["b"].json_schema) == (3, {"type": "integer"})


def test_a_step_kind_that_is_not_installed_is_an_unknown_key() -> None:
    _, errors = load(f"{HEAD}steps:\n  - {{id: a, teleport: {{to: moon}}}}\n")

    assert errors == ["4:13 E102 unknown key 'teleport' in a step"]


def parts(value: Any) -> list[Part]:
    if isinstance(value, Part):
        inner = [getattr(value, name) for name in value.__dict__ if not name.startswith("_")]
        return [value, *parts(inner)]
    if isinstance(value, dict):
        return parts(list(value.values()))
    return [one for item in value for one in parts(item)] if isinstance(value, list) else []


FULL = f"""\
{HEAD}version: "3"
title: Everything once
inputs:
  name: {{type: string, default: "null"}}
state:
  notes: {{type: array, default: [], reducer: append}}
signals: {{paid: {{key: "${{{{ inputs.name }}}}"}}}}
secrets: {{KEY: {{env: KEY}}}}
tools:
  pay: {{http: {{method: POST, url: "https://pay.example.com"}}, retry: 3}}
defaults: {{retry: 5}}
limits: {{duration: none}}
steps:
  - id: ask
    approval:
      title: "Really, ${{{{ inputs.name }}}}?"
      body: |
        Two lines:
          - one # not a comment
    set: {{notes: "yes"}}
    next: {{outcome: {{approve: pay, reject: end}}}}
  - id: pay
    call: pay
    with: {{amount: 1.0, note: "a: b"}}
    on_error: [{{type: Timeout, next: end}}]
    join: all
outputs:
  notes: ${{{{ state.notes }}}}
"""


def test_the_expanded_form_is_the_same_flow_and_expands_to_itself() -> None:
    model = good(FULL)

    written = expanded(model)

    assert good(written).plain() == model.plain()
    assert expanded(good(written)) == written
    assert all(part.loc is not None for part in parts(model))


def test_the_expanded_form_says_what_a_reducer_makes_of_a_write() -> None:
    written = expanded(good(FULL))

    assert '      notes: "yes"  # append\n' in written


def test_names_that_begin_with_x_are_ignored_among_names_and_kept_among_arguments() -> None:
    model = good(
        f"{HEAD}state: {{n: {{type: integer, default: 0}}, x-doc: why}}\n"
        "steps:\n  - {id: a, call: std.print, with: {x-text: 1}, set: {n: 1, x-why: 2}}\n"
    )

    assert list(model.state) == ["n"]
    assert model.steps[0].set == {"n": 1}
    assert model.steps[0].with_ == {"x-text": 1}


def test_the_source_is_left_as_it_was_read() -> None:
    source = read_text(
        "id: Bad Id\nsteps:\n  - {id: a, set: &s {Bad: 1, good: 2}}\n  - {set: *s}\n"
    )
    before = repr(source.data)

    load_source(source, Diagnostics())

    assert repr(source.data) == before


@each_row(
    ("given", "message"),
    [
        ("5", "expected none, ask, required, a condition or a mapping, got the number 5"),
        ("requierd", "expected none, ask, required, a condition or a mapping, got 'requierd'"),
        ("{when: 5}", "expected a condition, got the number 5"),
        ("{edit: true}", "unknown key 'edit' in an 'approval'"),
        ("{expires: {then: approve}}", "'expires' needs 'after'"),
    ],
)
def test_what_people_are_asked_before_is_checked(given: str, message: str) -> None:
    _, errors = load(f"{HEAD}environments: {{e: {{kind: files, approval: {given}}}}}\n{GREET}")

    assert any(message in error for error in errors), errors

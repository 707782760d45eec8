"""The JSON Schema of flow files: up to date, complete, and consistent with the checker."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from flowengine.flow.export.definition import expanded, to_yaml
from flowengine.flow.export.file_schema import case_schema, eval_schema, flow_schema, schema_for
from flowengine.flow.loading.load import load_source
from flowengine.flow.source.diagnostics import Diagnostics, render
from flowengine.flow.source.yaml_source import read, read_text
from tests.flow.examples import FILES
from tests.sliced_examples import sliced

ROOT = Path(__file__).parents[2]
SCHEMA = flow_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
CASES = sorted((ROOT / "examples").rglob("*.test.yaml"))
EVALUATIONS = sorted((ROOT / "examples").rglob("*.eval.yaml"))

EVERYTHING = """\
flowengine: 1
id: everything
version: "3"
title: Every part of the language once
description: For tests
x-note: anything
inputs:
  amount: {type: number, exclusiveMinimum: 0, ui: {widget: money}}
  names: {type: array, items: {type: string}, default: [], minItems: 0}
state:
  notes: {type: array, default: [], reducer: append}
  best: {type: integer, default: 0, reducer: {python: "shop:best"}}
signals:
  paid: {key: "${{ inputs.order }}", data: {type: object}}
secrets: {KEY: {env: KEY}, CERT: {file: /run/secrets/cert}}
tools:
  pay:
    description: Pays
    http: {method: POST, url: "https://pay.example.com", headers: {a: b}, body: "${{ args }}"}
    args: {type: object, properties: {amount: {type: number}}, required: [amount]}
    returns: {type: object}
    with: {key: "${{ secrets.KEY }}"}
    effect: idempotent
    idempotency_key: "${{ args.order }}"
    retry: 3
    timeout: 30s
  list: {shell: [ls, "${{ args.path }}"], args: {type: object}}
  best: {python: "shop:best"}
defaults: {in: host, concurrency: 4, effect: once, on_crash: ask, retry: 5, timeout: 1m}
limits: {activations: 5, steps: 50, duration: 30d}
budget: {tool_calls: 300, wall_time: 2h, then: ask, assignees: ["user:ana"]}
steps:
  - id: ask
    approval:
      title: Really?
      body: ${{ inputs.reason }}
      subject: {amount: 3}
      edit: [amount]
      form: {type: object, properties: {code: {type: string}}, required: [code]}
      choices: [approve, {id: reject, comment: required, title: No, as: reject}]
      assignees: ["group:finance", "${{ inputs.boss }}"]
      exclude: ${{ inputs.others }}
      need: 2
      claim: true
      delegate: false
      expires: {after: 2d, then: reject}
      remind: 8h
      escalate: [{after: 1d, assignees: ["user:cfo"]}]
      batch: all
      files: []
    set: {notes: one}
    next: {outcome: {approve: both, else: end}}
  - id: both
    when: ${{ inputs.amount > 3 }}
    parallel:
      - {id: left, python: "shop:pay", with: {a: 1}, next: end_all}
      - {id: right, call: pay, with: {amount: 3}, compensate: {call: list, with: {path: a}}}
    next: {all: [work, {when: "${{ true }}", to: race}, {else: more}]}
  - id: work
    run: {command: [make, "${{ inputs.target }}"], env: {A: 1}, files: {out: "*.txt"}, accept: any}
    in: host
    title: Work
    retry: {attempts: 3, delay: 1s, backoff: 1.5, max_delay: 5m, jitter: none, type: [A]}
    timeout: 5m
    deadline: ${{ inputs.limit }}
    effect: idempotent
    on_crash: retry
    output: ${{ result.stdout }}
    on_error:
      - {type: [Timeout, ExitCode], when: "${{ error.attempt > 1 }}", next: more}
      - {output: {a: 1}, set: {notes: two}}
      - {compensate: true, fail: {type: A.b, message: no, data: 1, retryable: true}}
    next: {first: [{when: "${{ output == '' }}", to: race}, {else: end}]}
  - id: race
    wait:
      first:
        - {id: paid, signal: paid, match: "${{ signal.data.ok }}", key: k, count: 2,
           transient: true}
        - {id: late, for: 3d}
        - {id: over, until: "2026-11-25T09:00:00+01:00"}
    next: {outcome: {paid: more, late: end, over: end}}
  - id: more
    join: {need: 1, late: queue, from: [both, race, work]}
    map: {over: "${{ inputs.names }}", as: name, key: "${{ name }}", concurrency: 2,
          on_item_error: wait, max_failures: 10%, join: {need: 3, late: cancel}}
    loop: {until: "${{ true }}", max: 3, every: {delay: 1s, backoff: 2, max_delay: 1m}}
    group:
      - {id: get, http: {method: GET, url: "https://example.com"}, next: inner}
      - {id: inner, wait: 15m}
      - {id: stop, cancel: {steps: [get], as: succeeded, reason: enough}}
      - {id: no, fail: Not this way}
on_error: compensate
outputs:
  a: ${{ state.notes }}
  b: {value: 3, type: integer}
"""


# Shows F10, T88
def test_the_file_in_schemas_is_current() -> None:
    """`flowengine check --schema flow > schemas/flow-1.schema.json` or UPDATE_GOLDEN=1."""
    path = ROOT / "schemas" / "flow-1.schema.json"
    text = json.dumps(SCHEMA, indent=2, ensure_ascii=False) + "\n"

    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_the_schema_of_test_cases_is_current_and_fits_the_examples() -> None:
    """`flowengine check --schema test > schemas/test-1.schema.json` writes it."""
    path = ROOT / "schemas" / "test-1.schema.json"
    schema = case_schema()
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"

    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
    validator = Draft202012Validator(schema)
    assert len(CASES) >= 6
    for one in CASES:
        assert [error.message for error in validator.iter_errors(read(one).data)] == [], one
    assert not validator.is_valid({"cases": [{"name": "a", "tols": {}}]})
    assert not validator.is_valid(
        {"cases": [{"name": "a", "tools": {"x": {"return": 1, "raise": "A"}}}]}
    )


def test_the_schema_of_evaluations_is_current_and_fits_the_examples() -> None:
    """`flowengine check --schema eval > schemas/eval-1.schema.json` writes it."""
    path = ROOT / "schemas" / "eval-1.schema.json"
    schema = eval_schema()
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"

    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
    validator = Draft202012Validator(schema)
    assert len(EVALUATIONS) >= 3
    for one in EVALUATIONS:
        assert [error.message for error in validator.iter_errors(read(one).data)] == [], one
    assert validator.is_valid({"cases": [{"name": "a", "expect": {"calls": ["find"]}}]})
    assert not validator.is_valid({"cases": [], "require": {"passed": 2}})
    assert not validator.is_valid({"cases": [], "repeat": 0})


def test_it_is_a_schema_of_draft_2020_12() -> None:
    jsonschema_rs.meta.validate(SCHEMA)

    assert SCHEMA["$schema"].endswith("2020-12/schema")


def keys(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each key of the language with its schema, except inside embedded JSON Schemas."""
    if isinstance(node, dict):
        for name, one in node.get("properties", {}).items():
            if "$ref" in one or "description" in one or not path.endswith("allOf"):
                yield f"{path}.{name}", one
        for name, one in node.items():
            if name not in {
                "properties",
                "Schema",
                "AnswerSchema",
                "StateSchema",
                "not",
                "if",
                "then",
            }:
                yield from keys(one, f"{path}.{name}")
    elif isinstance(node, list):
        for one in node:
            yield from keys(one, path)


LANGUAGE = {
    path: schema
    for path, schema in keys(SCHEMA)
    if "Output.anyOf." not in path or path.endswith(".value")
    if not path.endswith((".need", ".compensate", ".to")) or "description" in schema
    if ".allOf." not in path and ".examples" not in path
}


def test_every_key_says_what_it_means_with_an_example() -> None:
    silent = [
        path
        for path, schema in LANGUAGE.items()
        if not schema.get("description") or not schema.get("examples")
        if not path.startswith(".$defs.Schema")
        if ".kind_" not in path and "$ref" not in schema
    ]

    assert silent == []
    assert len(LANGUAGE) > 150


@pytest.mark.endurance
def test_examples_and_defaults_of_every_key_fit_it() -> None:
    wrong = []
    for path, schema in LANGUAGE.items():
        values = [
            *schema.get("examples", []),
            *([schema["default"]] if "default" in schema else []),
        ]
        if values:
            validator = Draft202012Validator({"$defs": SCHEMA["$defs"], **schema})
            wrong += [(path, value) for value in values if not validator.is_valid(value)]

    assert wrong == []


def test_objects_are_closed() -> None:
    """Each mapping of known keys rejects others, but permits `x-` keys."""
    for name, definition in SCHEMA["$defs"].items():
        for one in (definition, *definition.get("anyOf", ())):
            if "properties" in one and not name.startswith("kind_"):
                assert one["additionalProperties"] is False, name
                assert "^x-" in one["patternProperties"], name


def load(text: str) -> list[str]:
    """Return the checker's findings."""
    found = Diagnostics()
    load_source(read_text(text), found)
    return [f"{one.code} {one.message}" for one in found]


def test_every_part_of_the_language_passes_both() -> None:
    source = read_text(EVERYTHING)
    found = Diagnostics()

    model = load_source(source, found)

    assert list(found) == [], render(found, source.files)
    assert model is not None
    assert [error.message for error in VALIDATOR.iter_errors(source.data)] == []
    assert VALIDATOR.is_valid(read_text(expanded(model)).data)


def test_examples_pass_both() -> None:
    for path in FILES:
        source, found = read(path), Diagnostics()

        load_source(source, found)

        assert list(found) == [], render(found, source.files)
        assert [error.message for error in VALIDATOR.iter_errors(source.data)] == [], path


def places_in(node: Any, loc: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield each path in some data."""
    entries = node.items() if isinstance(node, dict) else enumerate(node)
    for step, one in entries:
        yield (*loc, step)
        if isinstance(one, dict | list):
            yield from places_in(one, (*loc, step))


PLACES = [*places_in(read_text(EVERYTHING).data)]
ODD: list[Any] = [None, True, 0, -1, 3, 1.5, "", "word", "3d", "a b", "${{ 1 }}", "x ${{ 1 }}"]
ODD += [[], ["end"], [1], {}, {"id": "b"}, {"a": "b"}, {"first": []}, [[]]]
LOCAL = {"E102", "E103", "E104", "E105", "E106", "E306", "E501"}
CHECKER_ONLY = ("the default ", "is not one of the choices")
"""Errors that depend on two places."""
SCHEMA_ONLY = {("steps", 1, "parallel", 0, "next")}
"""Targets inside `parallel` are checked when the graph is compiled (`E205`)."""


@sliced(examples=30)
@given(place=st.sampled_from(PLACES), odd=st.sampled_from(ODD), how=st.sampled_from("rrdak"))
# Shows F10
def test_schema_and_checker_find_the_same_files_wrong(
    place: tuple[Any, ...], odd: Any, how: str
) -> None:
    """After a value is replaced, removed or added, or a key misspelled, both must agree."""
    data = copy.deepcopy(read_text(EVERYTHING).data)
    owner = data
    for step in place[:-1]:
        owner = owner[step]
    if how == "d":
        del owner[place[-1]]
    elif how == "a" and isinstance(owner, dict):
        owner["extra"] = odd
    elif how == "k" and isinstance(owner, dict):
        owner[f"{place[-1]}s"] = owner.pop(place[-1])
    else:
        owner[place[-1]] = odd

    messages = load(to_yaml(data))
    found = {message[:4] for message in messages}
    if place in SCHEMA_ONLY or any(one in message for one in CHECKER_ONLY for message in messages):
        return

    assert VALIDATOR.is_valid(data) == (not found & LOCAL)


@pytest.fixture(scope="module")
def own() -> dict[str, Any]:
    model = load_source(read_text(EVERYTHING), Diagnostics())
    assert model is not None
    return schema_for(model)


def test_the_schema_for_a_file_knows_its_steps_tools_and_signals(own: dict[str, Any]) -> None:
    definitions = own["$defs"]

    jsonschema_rs.meta.validate(own)
    assert {"ask", "inner", "right", "end", "end_all"} <= set(definitions["Target"]["enum"])
    assert {"pay", "list", "std.print", "std.ask"} <= set(definitions["ToolName"]["enum"])
    assert definitions["SignalName"]["enum"] == ["paid"]
    assert Draft202012Validator(own).is_valid(read_text(EVERYTHING).data)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("next: more}", "next: moore}"),
        ("call: pay", "call: payy"),
        ("with: {amount: 3}", "with: {amount: three}"),
        ("signal: paid", "signal: payed"),
        ("set: {notes: one}", "set: {note: one}"),
    ],
)
def test_the_schema_for_a_file_refuses_other_names(
    own: dict[str, Any], before: str, after: str
) -> None:
    assert before in EVERYTHING
    data = read_text(EVERYTHING.replace(before, after)).data

    assert VALIDATOR.is_valid(data)
    assert not Draft202012Validator(own).is_valid(data)

# Shows V54, V55
"""Forms made from schemas: groups, rows, edits, and answers that are not maps."""

from __future__ import annotations

import re
from typing import Any

import pytest

from flowengine.errors import InputError
from flowengine.page.fields import FormFaults, shown_form
from flowengine.page.forms import entered, entered_inputs, fields_of, inputs_of
from tests.server.api import Api
from tests.server.test_page import Browser
from tests.server.test_page_starts import submitted

LINE = {
    "type": "object",
    "properties": {
        "item": {"type": "string"},
        "amount": {"type": "number", "default": 1},
        "rush": {"type": "boolean"},
    },
    "required": ["item"],
}
ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}}
FORM = {
    "type": "object",
    "$defs": {"line": LINE},
    "properties": {
        "address": ADDRESS,
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "required": ["lines"],
}
ORDER = """
flowengine: 1
id: order
inputs:
  lines:
    type: array
    items: {type: object, properties: {item: {type: string}, amount: {type: number}}}
  to: {type: object, properties: {city: {type: string}}, default: {city: Bern}}
steps:
  - id: ask
    approval:
      title: Order?
      assignees: ["user:ben"]
      subject: {to: "${{ inputs.to }}", lines: "${{ inputs.lines }}", ready: true}
      edit: true
      form:
        type: object
        properties:
          signed: {type: object, properties: {name: {type: string}}, required: [name]}
        required: [signed]
"""


@pytest.fixture
def flows() -> tuple[str, ...]:
    return (ORDER,)


def wait(**more: Any) -> dict[str, Any]:
    return {"form": FORM, "subject": None, **more}


def test_groups_and_rows_are_made_from_objects_and_lists_of_objects() -> None:
    address, lines = fields_of(wait())
    assert [field.name for field in address.fields] == ["form.address.city", "form.address.zip"]
    [row] = lines.fields
    assert [(one.name, one.value, one.kind) for one in row.fields] == [
        ("form.lines.0.item", "", "text"),
        ("form.lines.0.amount", "1", "number"),
        ("form.lines.0.rush", "", "select"),
    ]
    more = {"more": "form.lines", "form.lines.count": "1", "form.lines.0.item": "pen"}
    lines = fields_of(wait(), more)[1]
    assert [row.fields[0].value for row in lines.fields] == ["pen", ""]


def test_what_nobody_filled_in_is_left_out_and_each_value_has_its_type() -> None:
    given = {
        "choice": "approve",
        "form.address.city": "",
        "form.address.zip": "",
        "form.lines.count": "3",
        "form.lines.0.item": "pen",
        "form.lines.0.amount": "2.5",
        "form.lines.0.rush": "true",
        "form.lines.1.item": "",
        "form.lines.1.amount": "1",
        "form.lines.1.rush": "",
        "form.lines.2.item": "ink",
        "form.lines.2.amount": "1",
    }
    lines = [{"item": "pen", "amount": 2.5, "rush": True}, {"item": "ink", "amount": 1}]
    assert entered(wait(), given) == {"choice": "approve", "form": {"lines": lines}}
    given["form.address.zip"] = "3000"
    assert entered(wait(), given)["form"]["address"] == {"zip": 3000}
    given["form.address.zip"] = "x"
    with pytest.raises(InputError, match="'zip' must be a whole number"):
        entered(wait(), given)
    empty = {"choice": "approve", "form.lines.count": "1", "form.lines.0.amount": "1"}
    assert entered(wait(), empty)["form"] == {"lines": []}


# Shows P13
def test_all_faults_are_found_at_once_and_a_list_of_choices_has_boxes() -> None:
    some = {"type": "array", "items": {"enum": ["tea", "milk"]}, "title": "Drinks"}
    lines = {"type": "array", "items": {"$ref": "#/$defs/line"}}
    properties = {
        "address": ADDRESS,
        "lines": lines,
        "drinks": some,
        "day": {"type": "string", "format": "date"},
    }
    form = wait(form={**FORM, "properties": properties, "required": ["lines", "day"]})
    boxes = fields_of(form, {"form.drinks.1": "milk"})[2]
    assert (boxes.kind, boxes.options, boxes.chosen) == ("boxes", ["tea", "milk"], ["milk"])
    given = {
        "form.address.zip": "x",
        "form.lines.count": "1",
        "form.lines.0.amount": "many",
        "form.drinks.1": "milk",
        "form.day": "soon",
    }
    with pytest.raises(FormFaults, match="4 fields need a change") as refused:
        entered(form, given)
    names = ["form.address.zip", "form.lines.0.item", "form.lines.0.amount", "form.day"]
    assert [*refused.value.faults] == names
    right = {"form.address.zip": "1", "form.lines.0.item": "pen", "form.lines.0.amount": "1"}
    sent = entered(form, {**given, **right, "form.day": "2026-11-27"})["form"]
    assert sent["drinks"] == ["milk"]
    fields = fields_of(form, {"more": "form.lines", "form.lines.count": "1"})
    assert shown_form(fields, None, {"more": "form.lines"})["focus"] == "form.lines.1.item"


def test_a_schema_without_end_is_entered_as_json_from_some_depth_on() -> None:
    many = {f"n{number}": {"$ref": "#"} for number in range(20)}
    tree: dict[str, Any] = {"type": "object", "properties": many}
    found = inputs_of({"tree": tree}, {})
    kinds = [found[0].kind]
    fields = found
    while fields and fields[0].fields:
        fields = fields[0].fields
        kinds.append(fields[0].kind)
    assert kinds == ["group"] * 4 + ["area"]
    assert entered_inputs({"tree": tree}, {"input.tree.n0.n0.n0.n0": '{"a": 1}'}) == {
        "tree": {"n0": {"n0": {"n0": {"n0": {"a": 1}}}}}
    }


def test_an_order_is_started_edited_and_decided_with_groups_and_rows(api: Api) -> None:
    """Without JavaScript: rows are added by the server, and nothing is started meanwhile."""
    owner, ben = Browser(api), Browser(api, api.token("user:ben"))
    form = {**submitted(owner, "/flows/order"), "input.lines.0.item": "pen"}
    form["input.lines.0.amount"] = "2"
    again = owner("POST", "/flows/order", {**form, "more": "input.lines"})
    assert again.status_code == 200
    assert 'name="input.lines.1.item"' in again.text
    assert 'value="pen"' in again.text
    assert api.engine.executions.list().items == []
    started = owner("POST", "/flows/order", form)
    execution = started.headers["location"].rpartition("/")[2]
    [asked] = api.engine.resume(execution).waits
    assert asked["subject"] == {
        "to": {"city": "Bern"},
        "lines": [{"item": "pen", "amount": 2}],
        "ready": True,
    }

    path = f"/approvals/{asked['id']}"
    form = {**submitted(ben, path), "choice": "approve", "form.signed.name": "Ben"}
    assert ben("POST", path, {**form, "more": "edit.lines"}).status_code == 200
    assert api.engine.approvals.show(asked["id"])["status"] == "pending"
    form |= {"edit.to.city": "Genf", "edit.ready": "false"}
    assert ben("POST", path, form).status_code == 303
    decision = api.engine.approvals.show(asked["id"])["decision"]
    assert decision["edits"] == {"to.city": "Genf", "ready": False}
    assert decision["form"] == {"signed": {"name": "Ben"}}
    text = ben("GET", path).text
    assert re.search("to.city</dt><dd>Bern → Genf", text)

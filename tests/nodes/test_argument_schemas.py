"""Arguments that one side supplies are hidden from the other, wherever a schema names them."""

from __future__ import annotations

import json
import time
from typing import Any

from flowengine.sdk.values.argument_schemas import (
    described_arguments,
    required_arguments,
    without_arguments,
)
from flowengine.sdk.values.validation import shared
from tests.rows import each_row

CITY = {"properties": {"city": {}, "key": {}}, "required": ["city", "key"]}
PLACE = {"properties": {"lat": {"type": "number"}}, "required": ["lat"]}


@each_row(
    ("schema", "named", "required", "fitting", "unfitting"),
    [
        (CITY, {"city", "key"}, {"city", "key"}, {"city": "B"}, {}),
        ({"anyOf": [CITY, PLACE]}, {"city", "key", "lat"}, set(), {"city": "B"}, {"lat": "x"}),
        ({"allOf": [CITY, PLACE]}, {"city", "key", "lat"}, {"city", "key", "lat"},
         {"city": "B", "lat": 1}, {"city": "B"}),
        ({"$ref": "#/$defs/C", "$defs": {"C": CITY}}, {"city", "key"}, {"city", "key"},
         {"city": "B"}, {}),
        ({"if": {"required": ["lat"]}, "then": PLACE, "else": CITY}, {"city", "key", "lat"}, set(),
         {"city": "B"}, {"lat": "x"}),
        ({"dependentRequired": {"city": ["key", "lat"]}}, set(), set(), {"city": "B", "lat": 1},
         {"city": "B"}),
        ({"dependentSchemas": {"lat": CITY}}, {"city", "key"}, set(), {"lat": 1, "city": "B"},
         {"lat": 1}),
        # a definition that a value inside also has
        ({"$ref": "#/$defs/C", "$defs": {"C": {**CITY, "properties": {
            "city": {}, "near": {"$ref": "#/$defs/C"}}}}},
         {"city", "near"}, {"city", "key"}, {"city": "B", "near": {"city": "C", "key": "k"}},
         {"city": "B", "near": {"city": "C"}}),
    ],
)  # fmt: skip
def test_a_hidden_argument_is_neither_named_nor_required(
    schema: Any, named: set[str], required: set[str], fitting: Any, unfitting: Any
) -> None:
    hidden = without_arguments({"type": "object", **schema}, {"key"})

    assert described_arguments(schema).keys() == named
    assert required_arguments(schema) == required
    assert described_arguments(hidden).keys() == named - {"key"}
    assert required_arguments(hidden) == required - {"key"}
    assert shared(hidden).misfits(fitting) == []
    assert shared(hidden).misfits(unfitting) != []


def test_definitions_that_combine_each_other_are_read_once() -> None:
    """Following each way through them would take longer than anyone waits."""
    definitions: dict[str, Any] = {
        f"A{n}": {"allOf": [{"$ref": f"#/$defs/A{n + 1}"}] * 2, "properties": {f"p{n}": {}}}
        for n in range(60)
    }
    definitions["A60"] = {"anyOf": [{"$ref": "#/$defs/A0"}, {"required": ["key"]}]}
    schema = {"$ref": "#/$defs/A0", "$defs": definitions}
    begun = time.process_time()

    assert len(described_arguments(schema)) == 60
    assert "key" not in json.dumps(without_arguments(schema, {"p3", "key"})["properties"])
    assert time.process_time() - begun < 5

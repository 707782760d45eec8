# Shows F13
"""F13: names and types are checked before a run, with exact positions."""

from __future__ import annotations

from typing import Any

from flowengine.flow.expressions.checker import check
from flowengine.flow.expressions.types import CheckedExpression, DeclaredNames, Note
from tests.rows import each_row


@each_row(
    ("source", "code", "marked", "hint"),
    [
        ("inputs.amout > 500", "E301", "inputs.amout", "did you mean 'inputs.amount'?"),
        ("1 + size(inputs.nme)", "E301", "inputs.nme", "did you mean 'inputs.name'?"),
        ("inputs.name +\n  input.name", "E301", "input", "did you mean 'inputs'?"),
        ("steps.drft.output", "E301", "steps.drft", "did you mean 'steps.draft'?"),
        ("steps.fetch.ouput.x", "E301", "steps.fetch.ouput", "'steps.fetch.output'"),
        ("inputs.order.lines[0].prize", "E301", "inputs.order.lines[0].prize", "[0].price"),
        ("inputs.order.lines.map(l, l.prize)", "E301", "l.prize", "did you mean 'l.price'?"),
        ("inputs['amout']", "E301", "inputs['amout']", "'inputs.amount'"),
        ("approved", "E301", "approved", "quotes"),
        ("size", "E301", "size", "write size(…)"),
        ("sise(inputs.name)", "E301", "sise", "'size'"),
        ("math.flor(1.5)", "E301", "flor", "'floor'"),
        ("map(inputs.numbers, x, 1)", "E302", "map", "write l.map(x, …)"),
        ("len(inputs.name)", "E301", "len", "write size(x)"),
        ("keys(steps)", "E301", "steps", "steps.x.output"),
        ("steps[inputs.name].output", "E301", "steps[inputs.name].output", "steps.x.output"),
        ("steps.later.output", "E304", "steps.later", "earlier"),
    ],
)
def test_a_wrong_name_is_marked_with_a_suggestion(
    names: DeclaredNames, source: str, code: str, marked: str, hint: str
) -> None:
    (problem,) = check(source, names).problems
    assert problem.code == code
    assert source[problem.offset : problem.offset + problem.length] == marked
    assert hint in (problem.hint or "")


@each_row(
    ("source", "code", "marked"),
    [
        ("inputs.name + 1", "E311", "+"),
        ("inputs.amount + 2", "E311", "+"),
        ("inputs.urgent && inputs.name", "E311", "&&"),
        ("!inputs.count", "E311", "!"),
        ("inputs.name < 3", "E311", "<"),
        ("inputs.name.contains(1)", "E311", "contains"),
        ("now + duration('1h')", "E311", "+"),
        ("keys(inputs.name)", "E311", "inputs.name"),
        ("timestamp(now) + duration('1 day')", "E311", "'1 day'"),
        ("duration('100000w') > duration('1h')", "E311", "'100000w'"),
        ("sum(inputs.map)", "E311", "inputs.map"),
        ("json()", "E311", "json"),
        ("inputs.name.first", "E311", "inputs.name.first"),
        ("inputs.order.lines.price", "E311", "inputs.order.lines.price"),
        ("inputs.numbers[inputs.name]", "E311", "inputs.numbers[inputs.name]"),
        ("inputs.numbers[-1]", "E311", "inputs.numbers[-1]"),
        ("inputs.color == 'rot'", "E311", "'rot'"),
        ("(inputs.urgent ? 1 : 'a') + 1", "E311", "?"),
        ("{1: 2}", "E311", "1"),
        ("type(inputs.any)", "E311", "type"),
        ("string", "E311", "string"),
        ("inputs.numbers.filter(n, n)", "E303", "n"),
        ("inputs.count ? 1 : 2", "E303", "inputs.count"),
        ("inputs.map.map(k, k)", "E312", "map"),
        ("'key ' + secrets.API_KEY", "E403", "secrets.API_KEY"),
        ("result.x", "E301", "result"),
    ],
)
def test_operands_and_arguments_of_wrong_types_are_marked(
    complain: Any, source: str, code: str, marked: str
) -> None:
    assert complain(source) == [(code, marked)]


@each_row(
    ("source", "marked", "hint"),
    [
        ("inputs.amount >", "", None),
        ("inputs.name == 'Ada' and true", "and", "'&&'"),
        ("inputs.name = 'Ada'", "=", "'=='"),
        ("inputs.urgent & true", "&", "'&&'"),
        ("'Ada", "'", "end it"),
        ("{'a' 1}", "1", None),
        ("${{ inputs.name }}", "$", "whole expression"),
        ("inputs.map.in", "in", '["in"]'),
        ("if(true)", "if", "condition ? one : other"),
        ("not inputs.urgent", "not", "'!'"),
        ("'\\d'", "'\\d'", "r'…'"),
        ("size(1,)", ")", None),
        ("has(inputs)", "has", "has(inputs.name)"),
        ("inputs.numbers.map(1, 2)", "map", ".map(x, …)"),
        ("inputs.map.keys()", "keys", "keys(…)"),
        ("join(inputs.numbers, ',')", "join", "x.join(…)"),
        ("(" * 40 + "1" + ")" * 40, "(", "steps"),
        (" + ".join(["inputs.name"] * 60), "inputs.name", "steps"),
        (" || ".join(["true"] * 300), "||", None),
        ("'" + "x" * 200_000 + "'", "'", "tool"),
    ],
)
def test_broken_syntax_is_marked(
    names: DeclaredNames, source: str, marked: str, hint: str | None
) -> None:
    (problem,) = check(source, names).problems
    assert problem.code == "E302"
    assert source[problem.offset : problem.offset + problem.length] == marked
    assert (hint or "") in (problem.hint or "")


@each_row(
    ("source", "warned"),
    [
        ("steps.draft.output", False),
        ("steps.draft.output == null", False),
        ("steps.draft.output.text", True),
        ("steps.draft.output.text == 'x'", True),
        ("default(steps.draft.output.text, '')", False),
        ("has(steps.draft.output.text) && steps.draft.output.text == 'x'", False),
        ("steps.draft.output != null && steps.draft.output.text == 'x'", False),
        ("steps.draft.status == 'succeeded' && steps.draft.output.text == 'x'", False),
        ("steps.draft.outcome == 'ok' ? steps.draft.output.score : 0.0", False),
        ("steps.fetch.status == 'succeeded' && steps.draft.output.text == 'x'", True),
        ("default(steps.draft.output.text, '') + steps.draft.output.text", True),
    ],
)
def test_reaching_into_what_may_be_null_is_a_warning(
    names: DeclaredNames, source: str, warned: bool
) -> None:
    problems = check(source, names).problems
    assert [(one.code, one.warning) for one in problems] == [("W305", True)] * warned


def test_the_path_is_told_of_an_expression_that_is_one(names: DeclaredNames) -> None:
    assert check("steps.draft.output", names).path == ("steps", "draft", "output")
    assert check("secrets.API_KEY", names) == CheckedExpression(
        record={"node": ["path", "secrets", ["API_KEY"]], "at": [0, 0, "secrets.API_KEY"]},
        schema={"x-secret": True},
        references=[("secrets", "API_KEY")],
        problems=[],
        path=("secrets", "API_KEY"),
    )
    assert check("inputs.count + 1", names).path is None


def test_references_in_schemas_are_followed() -> None:
    tree = {
        "$defs": {"node": {"type": "object", "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}},
        "$ref": "#/$defs/node",
    }  # fmt: skip
    names = DeclaredNames({"properties": {"inputs": {"properties": {"tree": tree}}}})
    assert check("inputs.tree.children[0].children[1].name + 'x'", names).problems == []
    (problem,) = check("inputs.tree.children[0].nme", names).problems
    assert problem.code == "E301"
    kept = check("inputs.tree.children[0]", names).schema
    again = DeclaredNames({"properties": {"steps": kept}})
    assert check("steps.children[0].name + 1", again).problems[0].code == "E311"


def test_parts_of_a_schema_are_put_together() -> None:
    whole = {
        "$defs": {"base": {"type": "object", "properties": {"id": {"type": "string"}}}},
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"n": {"type": "integer"}}}],
    }
    names = DeclaredNames({"properties": {"x": whole, "odd": {"$ref": "#/$defs/none"}}})
    assert check("x.id + string(x.n + 1)", names).problems == []
    assert check("x.idd", names).problems[0].code == "E301"
    assert check("odd.any.thing + 1", names).problems == []


@each_row("word", ["anyOf", "oneOf"])
def test_one_of_several_shapes_needs_the_name_in_one_of_them(word: str) -> None:
    circle = {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {}}}
    square = {"type": "object", "properties": {"kind": {"const": "square"}, "side": {}}}
    names = DeclaredNames({"properties": {"shape": {word: [circle, square]}}})
    assert check("shape.kind == 'circle' && shape.r > 1", names, "bool").problems == []
    assert check("shape.sides", names).problems[0].code == "E301"


def test_a_path_into_what_arrived_has_to_fit_every_source() -> None:
    sources = {
        "write": {"type": "object", "properties": {"text": {"type": "string"}, "n": {}}},
        "rewrite": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
    names = DeclaredNames(
        {"properties": {"join": {"properties": {"output": {"x-sources": sources}}}}}
    )
    assert check("join.output.text + '.'", names).problems == []
    assert check("join.output.text + 1", names).problems[0].code == "E311"
    (problem,) = check("join.output.n", names).problems
    assert problem.code == "E301"
    assert "when it comes from 'rewrite'" in problem.message


def test_a_hidden_name_says_why() -> None:
    note = Note("E308", "several arrivals are merged here", "write join.outputs")
    names = DeclaredNames(
        {"properties": {"join": {"properties": {"outputs": {}}}}}, {"join.output": note}
    )
    (problem,) = check("join.output.text", names).problems
    assert (problem.code, problem.message, problem.hint) == note[:3]
    assert problem.length == len("join.output")


def test_positions_count_characters_not_bytes(complain: Any) -> None:
    assert complain("'𝒳é' + inputs.nme") == [("E301", "inputs.nme")]
    assert complain("'𝒳é' + inputs.count") == [("E311", "+")]
    assert complain("'a'\n  + // é\n  inputs.count") == [("E311", "+")]


def test_blanks_and_comments_inside_an_expression_do_not_change_its_record(
    names: DeclaredNames,
) -> None:
    tidy = check("inputs.count + 1 > 2 && size(inputs.name) == 3", names, "bool").record
    other = check("(inputs.count+1)>2 // why\n  &&size( inputs . name )==3", names, "bool").record
    assert {**tidy, "at": []} == {**other, "at": []}

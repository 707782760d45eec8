"""The scalar types of the language: what may stand in one field.

Each type is one check, which raises with the code and the words of the report, and one piece of
JSON Schema; so the checker and the editor say the same. `X | expression` types take a constant of
type X or a text that is exactly one expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, NoReturn
from unicodedata import combining, normalize

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from flowengine.kernel.notation.percentages import PERCENTAGE
from flowengine.kernel.notation.times import parse_duration, parse_time

ID = r"[a-z][a-z0-9_]{0,62}"
EXPRESSION = r"^\s*\$\{\{[\s\S]+\}\}\s*$"
LARGEST = 2**63 - 1
"""The largest integer: what is stored, and what expressions calculate with, has 64 bits."""
OPEN = re.compile(r"(?<!\$)\$\{\{")
"""The beginning of an expression: `${{`, not the escaped `$${{`."""


class AsSchema:
    """What a type is in the JSON Schema of flow files; `$ref` leads to `DEFINITIONS`."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


NEVER = frozenset({"true", "false", "null", "in"})
"""Words that are no name anywhere."""
TARGETS = frozenset({"end", "end_all"})
NOT_STEPS = TARGETS | {"execution"}
NOT_OUTCOMES = frozenset({"skipped", "expired", "timeout", "else"})
ROOTS = words(
    "inputs state steps execution now item index key round join signal result output outcome error"
    " args secrets idempotency_key"
)
"""The roots of names in expressions."""
FUNCTIONS = words(
    "default format_time json parse_json keys values entries merge sum sort unique flatten range"
    " digest size matches contains startsWith endsWith int uint double string bytes bool dyn type"
    " duration timestamp"
)
CEL_WORDS = words(
    "as break const continue else for function if import let loop package namespace return var void"
    " while map filter all has exists exists_one"
)
NOT_ALIASES = frozenset({"std"})
NOT_BARE = (ROOTS - {"item"}) | FUNCTIONS | CEL_WORDS | words("std flow this self run action")
"""Names that stand without a prefix are none of these; an item may say that it is `item`."""


def fail(code: str, message: str, hint: str | None = None) -> NoReturn:
    """Refuse a value.

    Args:
        code: The code of the diagnostic.
        message: What is wrong.
        hint: What to write.

    Raises:
        PydanticCustomError: Always; the loader makes a diagnostic of it.
    """
    context = {"message": message, "hint": hint}
    raise PydanticCustomError(code, "{message}", context)


def shown(value: Any) -> str:
    """Return a value as a message names it: its type in the file's words, and itself."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    text = str(value)
    return repr(text if len(text) <= 60 else text[:57] + "...")


def is_expression(value: Any) -> bool:
    """Return whether a value is a text that is exactly one expression (blanks aside)."""
    return isinstance(value, str) and re.match(EXPRESSION, value) is not None


def has_expression(value: Any) -> bool:
    """Return whether a value is a text with an expression in it."""
    return isinstance(value, str) and OPEN.search(value) is not None


def wrong(expected: str, value: Any, hint: str | None = None) -> NoReturn:
    """Refuse a value of the wrong type or form (`E103`)."""
    fail("E103", f"expected {expected}, got {shown(value)}", hint)


def _constant_text(value: Any, expected: str) -> str:
    if not isinstance(value, str):
        quoted = isinstance(value, bool | int | float)
        wrong(expected, value, "put it in quotes to make it text" if quoted else None)
    if has_expression(value):
        fail(
            "E306",
            f"expected {expected}; an expression is not allowed here",
            "write the text itself",
        )
    return value


def name(what: str, reserved: frozenset[str] = frozenset()) -> Callable[[Any], str]:
    """Return the check of an id.

    Args:
        what: What is named, for messages: `the id of a step`.
        reserved: Words it must not be, besides those that are no name anywhere.

    Returns:
        A function that gives the id back, or raises `E105`.
    """

    def check(value: Any) -> str:
        if not isinstance(value, str):
            fail("E105", f"{shown(value)} cannot be {what}", "use a word")
        text = _constant_text(value, what)
        if not re.fullmatch(ID, text):
            fail("E105", f"{text!r} cannot be {what}", _better_id(text))
        if text in NEVER or text in reserved:
            fail("E105", f"{text!r} is a reserved word and cannot be {what}", "use another word")
        return text

    return check


def _better_id(text: str) -> str:
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower().replace("ß", "ss")
    plain = "".join(one for one in normalize("NFKD", plain) if not combining(one))
    plain = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:63]
    rule = "use lowercase letters, digits, underscores, a letter first, at most 63 characters"
    return f"write {plain!r}" if re.fullmatch(ID, plain) else rule


def _secret_name(value: Any) -> str:
    text = _constant_text(value, "the name of a secret")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", text) or text in NEVER:
        fail("E105", f"{text!r} cannot be the name of a secret", "use letters, digits, underscores")
    return text


def constant_text(value: Any) -> str:
    """Return the check's value if it is text without expressions."""
    return _constant_text(value, "text")


def error_type(value: Any) -> str:
    """Return the check's value if it is the name of an error."""
    if has_expression(value):
        message = "expected the name of an error; an expression is not allowed here"
        again = "'fail: ${{ error }}', or 'fail: ${{ steps.x.error }}' in a later step"
        fail("E306", message, f"write the name; to raise an error again: {again}")
    text = constant_text(value)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", text):
        wrong("the name of an error: letters, digits, '_' and '.'", value)
    return text


def _tool_name(value: Any) -> str:
    text = constant_text(value)
    if not re.fullmatch(TOOL_NAME, text):
        wrong("the name of a tool", value)
    return text


def _flow_name(value: Any) -> str:
    text = constant_text(value)
    if not re.fullmatch(FLOW_NAME, text):
        hint = "write 'child' (an entry of 'flows'), 'alias.child', or a path: './child.yaml'"
        wrong("the name of a flow, or the path of its file", value, hint)
    return text


def _import_path(value: Any) -> str:
    text = constant_text(value)
    if not re.fullmatch(FLOW_PATH, text):
        wrong("the path of a flow file", value, "such as './lib.yaml' or 'acme_flows:lib.yaml'")
    return text


def _environment_use(value: Any) -> dict[str, Any]:
    """Return an environment that is used as `{name: arguments}`."""
    if not isinstance(value, str | dict):
        wrong("the name of an environment, or {name: arguments}", value)
    given = value if isinstance(value, dict) else {value: {}}
    if len(given) != 1 or not all(isinstance(args, dict) for args in given.values()):
        wrong("the name of an environment, or {name: arguments}", value)
    [(found, args)] = given.items()
    if not isinstance(found, str) or not re.fullmatch(TOOL_NAME, found):
        wrong("the name of an environment", found)
    return {found: args}


def _environment_uses(value: Any) -> dict[str, dict[str, Any]]:
    """Return environments that are used, by the name under which they are found."""
    if isinstance(value, list):
        uses = [_environment_use(one) for one in value]
        names = [next(iter(use)).rpartition(".")[2] for use in uses]
        if len(set(names)) < len(names):
            wrong("each environment once", value, "give one of them another name: {name: env}")
        return dict(zip(names, uses, strict=True))
    if not isinstance(value, dict):
        wrong("a list of environments, or a map from names to environments", value)
    return {name: _environment_use(one) for name, one in value.items()}


def _arguments(value: Any) -> dict[str, Any] | str:
    """Return arguments by name, or the one expression that gives them all."""
    if not isinstance(value, dict) and not is_expression(value):
        wrong("a map of arguments, or one expression that gives it", value)
    if isinstance(value, str):
        return value
    return {name: one for name, one in value.items() if not name.startswith("x-")}


def _template(value: Any) -> str:
    if not isinstance(value, str):
        quoted = isinstance(value, bool | int | float)
        wrong("text", value, "put it in quotes to make it text" if quoted else None)
    return value


def _expression(value: Any) -> str:
    if not is_expression(value):
        wrong("an expression", value, "write one, such as ${{ error }}")
    return str(value)


def _condition(value: Any) -> str:
    if not is_expression(value):
        wrong("a condition", value, "write one expression, such as ${{ inputs.amount > 50 }}")
    return str(value)


def _duration(value: Any) -> str:
    expected = "a duration such as 30s"
    if isinstance(value, bool | int | float):
        wrong(expected, value, f"give the unit, for example {value}s")
    try:
        parse_duration(_constant_text(value, expected))
    except ValueError:
        wrong(expected, value, "whole numbers with w, d, h, m, s, ms in this order: 90s, 1h30m")
    return str(value)


def _positive_duration(value: Any) -> str:
    text = _duration(value)
    if not parse_duration(text):
        wrong("a duration longer than 0", value)
    return text


def _duration_or_none(value: Any) -> str:
    return "none" if value == "none" else _duration(value)


def _time(value: Any) -> str:
    expected = "a time such as 2026-11-25T09:14:02Z"
    try:
        parse_time(_constant_text(value, expected))
    except ValueError:
        wrong(expected, value, "RFC 3339, with offset")
    return str(value)


def _target(value: Any) -> str:
    if isinstance(value, list):
        names = ", ".join(one if isinstance(one, str) else "…" for one in value)
        hint = f"write 'all: [{names}]' for a token along each, or 'first' for one of them"
        fail("E103", "this leads to one step, but is a list", hint)
    if has_expression(value):
        hint = "choose with conditions: 'first: [{when: …, to: a}, {else: b}]'"
        fail("E306", "expected a target; an expression is not allowed here", hint)
    return name("a target")(value)


def integer(least: int, expected: str, most: int = LARGEST) -> Callable[[Any], int]:
    """Return the check of a whole number from `least` to `most`, called `expected`."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            wrong(expected, value)
        if value > most:
            wrong(expected, value, f"at most {most:,}")
        return value

    return check


def _factor(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 1 <= value < float("inf")
    ):
        wrong("a factor of 1 or more", value)
    return value


def _jitter(value: Any) -> str | float:
    if value in ("full", "none"):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        wrong("'full', 'none' or a fraction from 0 to 1", value)
    return value


def _failures(value: Any) -> int | str:
    expected = "a count, a percentage such as 10%, or an expression"
    if isinstance(value, str) and re.fullmatch(PERCENTAGE, value):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        wrong(expected, value)
    return value


def one_or_many(check: Callable[[Any], str]) -> Callable[[Any], list[str]]:
    """Return the check of one text or a list of them; it always gives a list."""

    def checked(value: Any) -> list[str]:
        if value == []:
            wrong("at least one", value)
        return [check(one) for one in value] if isinstance(value, list) else [check(value)]

    return checked


def or_expression(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a check that also takes a text that is exactly one expression."""

    def checked(value: Any) -> Any:
        return value if is_expression(value) else check(value)

    return checked


def defined(name: str) -> AsSchema:
    """Return the JSON Schema of a type that has a name in `DEFINITIONS`."""
    return AsSchema({"$ref": f"#/$defs/{name}"})


def schema_or_expression(schema: dict[str, Any]) -> AsSchema:
    """Return the JSON Schema of a constant or an expression."""
    return AsSchema({"anyOf": [schema, {"$ref": "#/$defs/Expression"}]})


FLOW_PATH = r"[^\x00-\x1f]+\.ya?ml"
FLOW_NAME = rf"{ID}(\.{ID})?|{FLOW_PATH}"
TOOL_NAME = rf"{ID}(\.[A-Za-z0-9_-]+)*"


def _id_schema(reserved: frozenset[str] = frozenset()) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{ID}$", "not": {"enum": sorted(NEVER | reserved)}}


DEEPEST = 1000
"""Subflows inside one another: an address grows with each, so their cost grows as the square."""
_POSITIVE = {"type": "integer", "minimum": 1, "maximum": LARGEST}
_DURATION = {"$ref": "#/$defs/Duration"}
_RFC3339 = r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$"
_TIME = {"type": "string", "pattern": _RFC3339}

DEFINITIONS: dict[str, dict[str, Any]] = {
    "Expression": {"type": "string", "pattern": EXPRESSION},
    "Duration": {
        "type": "string",
        "pattern": r"^(?=\d)(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?$",
        "description": "Whole numbers with w, d, h, m, s, ms in this order.",
        "examples": ["90s", "1h30m"],
    },
    "Id": _id_schema(),
    "StepId": _id_schema(NOT_STEPS),
    "StepName": _id_schema(),
    "Target": _id_schema(),
    "ToolId": _id_schema(frozenset({"std"})),
    "ToolName": {"type": "string", "pattern": f"^{TOOL_NAME}$"},
    "FlowName": {"type": "string", "pattern": f"^({FLOW_NAME})$"},
    "FlowPath": {"type": "string", "pattern": f"^{FLOW_PATH}$"},
    "Text": {"type": "string", "not": {"pattern": r"(^|[^$])\$\{\{"}},
    "SignalName": _id_schema(),
    "Outcome": _id_schema(NOT_OUTCOMES),
    "BareName": _id_schema(NOT_BARE),
    "Alias": _id_schema(NOT_ALIASES),
    "SecretName": {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_]{0,62}$"},
}
"""Types that the JSON Schema names; those of one file (`schema --for`) say more."""

Id = Annotated[str, PlainValidator(name("a name")), defined("Id")]
FlowId = Annotated[str, PlainValidator(name("the id of a flow")), defined("Id")]
StepId = Annotated[str, PlainValidator(name("the id of a step", NOT_STEPS)), defined("StepId")]
StepName = Annotated[str, PlainValidator(name("the name of a step")), defined("StepName")]
"""A step that is named, not declared: `cancel`, `join.from`."""
Target = Annotated[str, PlainValidator(_target), defined("Target")]
"""The id of a step of the same scope, `end` or `end_all`."""
RoutedOutcome = Annotated[str, PlainValidator(name("an outcome")), defined("Id")]
"""An outcome that is named: also `skipped`, `expired`, `timeout`, `ok`, and `else`."""
Outcome = Annotated[
    str, PlainValidator(name("the id of a choice", NOT_OUTCOMES)), defined("Outcome")
]
AlternativeId = Annotated[
    str, PlainValidator(name("the id of an alternative", NOT_OUTCOMES)), defined("Outcome")
]
BareName = Annotated[
    str, PlainValidator(name("the name of an item", NOT_BARE)), defined("BareName")
]
ToolId = Annotated[
    str, PlainValidator(name("the name of a tool", frozenset({"std"}))), defined("ToolId")
]
SecretName = Annotated[str, PlainValidator(_secret_name), defined("SecretName")]
SignalName = Annotated[str, PlainValidator(name("the name of a signal")), defined("SignalName")]
ToolName = Annotated[str, PlainValidator(_tool_name), defined("ToolName")]
FlowName = Annotated[str, PlainValidator(_flow_name), defined("FlowName")]
"""A flow that a step runs: by its name here, as `alias.name`, or by its file."""
FlowPath = Annotated[str, PlainValidator(_import_path), defined("FlowPath")]
Alias = Annotated[
    str, PlainValidator(name("the alias of an import", NOT_ALIASES)), defined("Alias")
]
NOT_ENVIRONMENTS = NOT_BARE | {"host"}
EnvironmentName = Annotated[
    str,
    PlainValidator(name("the name of an environment", NOT_ENVIRONMENTS)),
    AsSchema(_id_schema(NOT_ENVIRONMENTS)),
]
_ONE_USE: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "pattern": f"^{TOOL_NAME}$"},
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "propertyNames": {"pattern": f"^{TOOL_NAME}$"},
            "additionalProperties": {"type": "object"},
        },
    ]
}
EnvironmentUse = Annotated[Any, PlainValidator(_environment_use), AsSchema(_ONE_USE)]
"""The name of an environment, or `{name: arguments}`."""
EnvironmentUses = Annotated[
    Any,
    PlainValidator(_environment_uses),
    AsSchema(
        {
            "anyOf": [
                {"type": "array", "items": _ONE_USE, "minItems": 1},
                {"type": "object", "additionalProperties": _ONE_USE, "minProperties": 1},
            ]
        }
    ),
]
"""Environments by the name under which a function finds them: a list, or a map of other names."""

Text = Annotated[str, PlainValidator(constant_text), defined("Text")]
"""Text without expressions."""
Template = Annotated[str, PlainValidator(_template), AsSchema({"type": "string"})]
"""Text, perhaps with expressions in it."""
Value = Annotated[Any, AsSchema({})]
"""Any data, with expressions anywhere in it."""
Arguments = Annotated[
    dict[str, Any] | str,
    PlainValidator(_arguments),
    schema_or_expression({"type": "object", "patternProperties": {"^x-": {}}}),
]
"""By name, or one expression that gives a map."""

Expression = Annotated[str, PlainValidator(_expression), defined("Expression")]
"""One expression, of any type."""
Condition = Annotated[str, PlainValidator(_condition), defined("Expression")]
ConditionOrBoolean = Annotated[
    str | bool,
    PlainValidator(lambda value: value if isinstance(value, bool) else _condition(value)),
    AsSchema({"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/Expression"}]}),
]
Duration = Annotated[str, PlainValidator(_duration), AsSchema(_DURATION)]
PositiveDuration = Annotated[
    str,
    PlainValidator(_positive_duration),
    AsSchema({"allOf": [_DURATION, {"type": "string", "pattern": "[1-9]"}]}),
]
DurationOrNone = Annotated[
    str, PlainValidator(_duration_or_none), AsSchema({"anyOf": [{"const": "none"}, _DURATION]})
]
DurationOrExpression = Annotated[
    str, PlainValidator(or_expression(_duration)), schema_or_expression(_DURATION)
]
TimeOrExpression = Annotated[str, PlainValidator(or_expression(_time)), schema_or_expression(_TIME)]
Positive = Annotated[
    int, PlainValidator(integer(1, "a whole number of 1 or more")), AsSchema(_POSITIVE)
]
Depth = Annotated[
    int,
    PlainValidator(integer(1, f"a whole number from 1 to {DEEPEST:,}", DEEPEST)),
    AsSchema({**_POSITIVE, "maximum": DEEPEST}),
]
PositiveOrExpression = Annotated[
    int | str,
    PlainValidator(or_expression(integer(1, "a whole number of 1 or more, or an expression"))),
    schema_or_expression(_POSITIVE),
]
Factor = Annotated[float, PlainValidator(_factor), AsSchema({"type": "number", "minimum": 1})]
Jitter = Annotated[
    str | float,
    PlainValidator(_jitter),
    AsSchema(
        {"anyOf": [{"enum": ["full", "none"]}, {"type": "number", "minimum": 0, "maximum": 1}]}
    ),
]
Failures = Annotated[
    int | str,
    PlainValidator(or_expression(_failures)),
    schema_or_expression(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": f"^{PERCENTAGE}$"},
            ]
        }
    ),
]
Effect = Literal["pure", "idempotent", "once"]
OnCrash = Literal["ask", "retry", "fail"]

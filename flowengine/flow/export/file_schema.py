"""The JSON Schema of flow files, generated from the models, for editors.

It contains all rules that can be checked locally. Names, edges, types and secrets are left to the
checker. An error of the kinds E102 to E106 for the loader is also one for the schema, and a test
keeps the two consistent.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from flowengine.flow.loading.json_schemas import (
    ANYTHING,
    BOOLEANS,
    COUNTS,
    LISTS,
    MAPS,
    NUMBERS,
    REDUCERS,
    SCHEMAS,
    TEXTS,
    TYPES,
)
from flowengine.flow.models import (
    Compensation,
    FlowBody,
    FlowModel,
    Output,
    ParallelStep,
    Part,
    Pluggable,
    Step,
    Tool,
)
from flowengine.flow.models.agent import InlineAgent
from flowengine.flow.models.base import FieldInfo, plain
from flowengine.flow.models.cases import CaseFile
from flowengine.flow.models.evaluations import EvalFile
from flowengine.flow.models.kinds import brought_tools, configuration, kind_names
from flowengine.flow.models.types import DEFINITIONS, TARGETS, AsSchema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
LONG_OR_NOTHING = {"type": ["object", "null"]}
"""Any form that is not a short form."""
TEMPLATE = {"type": "string", "pattern": r"\$\{\{"}
"""A text with an expression in it."""
SAID = ("description", "default", "examples")
IGNORED: dict[str, Any] = {"^x-": {}}
"""Keys that are allowed in every mapping and ignored."""
_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}

Schema = dict[str, Any]


_RECEIVED = {
    "$ref": "#/$defs/SignalName",
    "description": "The signal whose messages are written to the key.",
    "examples": ["note"],
}


_TYPE = {
    "type": "string",
    "description": "A Python type, `module:Type`, that validates answers. It defines their form "
    "if no other keyword does.",
    "examples": ["models:Report"],
}


def flow_schema() -> Schema:
    """Return the JSON Schema of flow files, draft 2020-12."""
    definitions: dict[str, Schema] = {
        **copy.deepcopy(DEFINITIONS),
        "Schema": _keywords(),
        "AnswerSchema": _keywords(python=_TYPE),
        "StateSchema": _keywords(reducer=_reducer(), signal=_RECEIVED),
    }
    _define(FlowModel, definitions)
    _define(InlineAgent, definitions)
    for name in sorted({*kind_names("step"), *kind_names("tool")}):
        definitions[_kind_name(name)] = _kind(name)
    top = definitions.pop("FlowModel")
    head = {"$schema": DIALECT, "title": "A flow of flowengine, language version 1"}
    return {**head, **top, "$defs": dict(sorted(definitions.items()))}


def case_schema() -> Schema:
    """Return the JSON Schema of test case files, draft 2020-12."""
    title = "Test cases of a flow of flowengine, version 1"
    return _schema_of(CaseFile, title, "Duration", "SignalName")


def eval_schema() -> Schema:
    """Return the JSON Schema of evaluation files, draft 2020-12."""
    return _schema_of(EvalFile, "An evaluation of a flow of flowengine, version 1")


def _schema_of(file: type[Part], title: str, *shared: str) -> Schema:
    """Return the JSON Schema of a file with cases, with the shared definitions that it uses."""
    definitions: dict[str, Schema] = copy.deepcopy({name: DEFINITIONS[name] for name in shared})
    _define(file, definitions)
    top = definitions.pop(file.__name__)
    return {"$schema": DIALECT, "title": title, **top, "$defs": dict(sorted(definitions.items()))}


def schema_for(model: FlowModel, imported: Mapping[str, FlowModel] | None = None) -> Schema:
    """Return the JSON Schema for one file: with its own step ids, tools and signals as enums.

    Args:
        model: The file, which may have errors.
        imported: The files that it imports, by alias.

    Returns:
        The schema of `flow_schema`, restricted to these names.
    """
    schema = flow_schema()
    definitions = schema["$defs"]
    others = (imported or {}).items()
    bodies: list[FlowModel | FlowBody] = [model, *model.flows.values()]
    ids = sorted({name for body in bodies for name in _ids([*body.steps, *body.finally_])})
    flows = [*model.flows, *([model.id] if model.steps else [])]
    flows += [f"{alias}.{name}" for alias, one in others for name in one.flows]
    flows += [f"{alias}.{one.id}" for alias, one in others if one.steps]
    path = {"$ref": "#/$defs/FlowPath"}
    definitions["FlowName"] = {"anyOf": [{"enum": sorted(flows)}, path]}
    declared = [("", model), *((f"{alias}.", one) for alias, one in others)]
    tools = {
        f"{prefix}{name}": tool for prefix, one in declared for name, tool in one.tools.items()
    }
    servers = [name for name, tool in tools.items() if tool.server is not None]
    single = [*sorted(tools.keys() - set(servers)), *sorted(brought_tools())]
    of_servers = [{"pattern": f"^{re.escape(name)}\\.."} for name in servers]
    definitions["Target"] = {"enum": [*ids, *sorted(TARGETS)]}
    definitions["StepName"] = {"enum": ids}
    definitions["SignalName"] = {"enum": sorted(model.signals)}
    names = {"enum": single}
    definitions["ToolName"] = {"anyOf": [names, *of_servers]} if of_servers else names
    arguments = [
        {
            "if": {"required": ["call"], "properties": {"call": {"const": name}}},
            "then": {"properties": {"with": _or_expressions(tool.args)}},
        }
        for name, tool in sorted(model.tools.items())
        if tool.args
    ]
    keys = sorted({key for body in bodies for key in body.state})
    states = {"propertyNames": {"anyOf": [{"pattern": "^x-"}, {"enum": keys}]}}
    for name in ("Step", "ParallelStep"):
        definitions[name]["allOf"] = definitions[name].get("allOf", []) + arguments
        definitions[name]["properties"]["set"] |= states
    return schema


def _ids(steps: Iterable[Step]) -> Iterator[str]:
    for step in steps:
        yield step.id
        yield from _ids([*(step.group or ()), *(step.parallel or ()), *step.finally_])


def _or_expressions(schema: Schema) -> Schema:
    """Return the schema of arguments that may each be an expression.

    None of them is required here.
    """
    given = schema.get("properties", {})
    properties = {key: {"anyOf": [value, TEMPLATE]} for key, value in given.items()}
    return {"properties": properties}


# Parts


def _define(top: type[Part], definitions: dict[str, Schema]) -> None:
    """Add the schemas of a part and of all its parts."""
    waiting: list[type[Part]] = [top]
    known: set[type[Part]] = {top}
    while waiting:
        part = waiting.pop()
        definitions[part.__name__] = _part(part)
        new = sorted(set(_parts_in(part)) - known, key=lambda one: one.__name__)
        known.update(new)
        waiting += new


def _part(cls: type[Part]) -> Schema:
    """Return the schema of a mapping, without that of its short form."""
    properties: dict[str, Schema] = {}
    required = []
    for key, (name, info) in cls.fields_by_key().items():
        found = [_docstrings(one.__module__).get((one.__name__, name)) for one in cls.__mro__]
        properties[key] = _field(info, next(filter(None, found)))
        if info.is_required:
            required.append(key)
    _more_properties(cls, properties)
    schema: Schema = {"type": "object", "properties": properties, "required": required}
    schema |= {"additionalProperties": False, "patternProperties": IGNORED}
    rules = [*(rule.as_schema(properties) for rule in cls.RULES), *cls.RULES_AS_SCHEMA]
    if issubclass(cls, Step):
        takers = [{"required": [key]} for key in cls.with_arguments()]
        rules.append({"if": {"required": ["with"]}, "then": {"anyOf": takers}})
    actions = _actions(cls, properties)
    if actions:
        schema["oneOf"] = actions
    if rules:
        schema["allOf"] = rules
    schema = {key: value for key, value in schema.items() if value != []}
    described = {"description": (cls.__doc__ or "").strip().splitlines()[0]}
    if cls.SHORT:
        return {**described, "anyOf": [*copy.deepcopy(cls.SHORT), schema]}
    if cls.MAIN is None:
        return {**described, **schema}
    short = {key: value for key, value in properties[cls.MAIN].items() if key != "default"}
    return {**described, "anyOf": [{"not": LONG_OR_NOTHING, **short}, schema]}


def _more_properties(cls: type[Part], properties: dict[str, Schema]) -> None:
    if issubclass(cls, Pluggable):
        for kind in kind_names(cls.PLACE):
            properties[kind] = {"$ref": f"#/$defs/{_kind_name(kind)}"}
    if cls is Output:
        properties |= _keywords()["properties"]
    if cls is ParallelStep:
        ends: Schema = {"enum": sorted(TARGETS)}
        long = {"type": "object", "properties": {"to": ends}, "required": ["to"]}
        properties["next"]["anyOf"] = [ends, {**long, "additionalProperties": False}]
        del properties["next"]["$ref"], properties["join"]


def _actions(cls: type[Part], properties: dict[str, Schema]) -> list[Schema]:
    """Return the alternative schemas of a step, by its kind of action.

    A plain step has none.
    """
    if not issubclass(cls, Pluggable):
        return []
    alone: list[Schema] = [{"required": [key]} for key in cls.actions() if key in properties]
    if cls in {Compensation, Tool}:
        return alone
    return [*alone, {"not": {"anyOf": copy.deepcopy(alone)}}]


@cache
def _docstrings(module: str) -> dict[tuple[str, str], str]:
    """Return the docstrings in a module with models, by model and field."""
    if not module.startswith("flowengine."):
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found, types = dict[tuple[str, str], str](), _documented(tree.body)
    for cls in tree.body:
        if isinstance(cls, ast.ClassDef):
            for one in cls.body:
                if isinstance(one, ast.AnnAssign):
                    of_type = types.get(ast.unparse(one.annotation), "")
                    found[cls.name, ast.unparse(one.target)] = of_type
            found |= {(cls.name, name): text for name, text in _documented(cls.body).items()}
    return found


def _documented(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the docstrings of the names in a body."""
    found: dict[str, str] = {}
    for statement, after in pairwise(body):
        match statement, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def _field(info: FieldInfo, description: str) -> Schema:
    schema = _type(info.annotation, info)
    schema["description"] = description
    # Without a key, a list that must have items is something else than an empty one.
    has_none = info.is_required or (info.default == [] and info.min_length)
    default = None if has_none else plain(info.default)
    if default is not None:
        schema["default"] = default
    schema["examples"] = info.examples
    return schema


def _type(annotation: Any, info: FieldInfo | None = None) -> Schema:
    """Return the schema of a type, which can be that of a whole field."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        for marker in annotation.__metadata__:
            if isinstance(marker, AsSchema):
                return copy.deepcopy(marker.schema)
        return _type(arguments[0], info)
    if origin in {Union, types.UnionType}:
        some = [_type(argument, info) for argument in arguments if argument is not type(None)]
        return some[0] if len(some) == 1 else {"anyOf": some}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        of, item = arguments[0], _type(arguments[0])
        schema = {"type": "array", "items": item} | _least("minItems", info)
        single = isinstance(of, type) and issubclass(of, Part) and of.SINGLE
        return {"anyOf": [schema, item]} if single else schema
    if origin is dict:
        return _dict(arguments[0], arguments[1], info)
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return {"$ref": f"#/$defs/{annotation.__name__}"}
    return {"type": _PLAIN[annotation]}


def _least(word: str, info: FieldInfo | None) -> Schema:
    return {word: info.min_length} if info is not None and info.min_length else {}


def _dict(key: Any, value: Any, info: FieldInfo | None) -> Schema:
    schema: Schema = {"type": "object", **_least("minProperties", info)}
    names = _type(key)
    if names != {"type": "string"}:
        schema["propertyNames"] = {"anyOf": [{"pattern": "^x-"}, names]}
    schema["patternProperties"] = IGNORED
    content = _type(value)
    if content:
        schema["additionalProperties"] = content
    return schema


def _parts_in(part: type[Part]) -> Iterator[type[Part]]:
    for _, info in part.fields_by_key().values():
        yield from _parts_of(info.annotation)


def _parts_of(annotation: Any) -> Iterator[type[Part]]:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield annotation
    for argument in get_args(annotation):
        yield from _parts_of(argument)


# Step kinds


def _kind_name(name: str) -> str:
    return f"kind_{name}"


def _kind(name: str) -> Schema:
    """Return the schema of a step kind's value: its configuration or the short form."""
    schema = configuration(name)
    main, inline = schema.pop("x-main", None), schema.pop("x-inline", None)
    properties = dict(schema.get("properties", {}))
    for key, value in properties.items():
        if key != main or value.get("type") != "string":
            kept = {word: value[word] for word in SAID if word in value}
            filled = TEMPLATE if value.get("type") == "string" else {"$ref": "#/$defs/Expression"}
            properties[key] = {**kept, "anyOf": [value, filled]}
    schema |= {"properties": properties, "patternProperties": IGNORED}
    if main is None:
        return schema
    short = {key: rule for key, rule in properties[main].items() if key != "default"}
    return {
        "description": str(schema.pop("description", f"The step kind {name}.")),
        "anyOf": [
            {"not": LONG_OR_NOTHING, **short},
            schema,
            *([{"$ref": f"#/$defs/{inline}"}] if inline else []),
        ],
    }


# JSON Schemas inside a flow file


def _keywords(**more: Schema) -> Schema:
    """Return the schema of a JSON Schema with the closed set of keywords."""
    inner: Schema = {"$ref": "#/$defs/Schema"}
    groups: list[tuple[frozenset[str], Schema]] = [
        (SCHEMAS, {"anyOf": [{"type": "boolean"}, inner]}),
        (LISTS, {"type": "array", "items": inner, "minItems": 1}),
        (MAPS, {"type": "object", "additionalProperties": inner}),
        (NUMBERS, {"type": "number"}),
        (COUNTS, {"type": "integer", "minimum": 0}),
        (TEXTS, {"type": "string"}),
        (BOOLEANS, {"type": "boolean"}),
        (ANYTHING, {}),
    ]
    properties = {key: dict(schema) for keys, schema in groups for key in keys}
    one_type: Schema = {"enum": list(TYPES)}
    types_: Schema = {"type": "array", "items": one_type, "minItems": 1}
    properties["type"] = {"anyOf": [one_type, types_]}
    properties["required"] = {"type": "array", "items": {"type": "string"}}
    properties["enum"] = {"type": "array", "minItems": 1}
    properties["$ref"] = {"type": "string", "pattern": "^#"}
    return {
        "description": "A JSON Schema, draft 2020-12, with `ui` for forms.",
        "type": "object",
        "properties": dict(sorted({**properties, **more}.items())),
        "additionalProperties": False,
        "patternProperties": IGNORED,
    }


def _reducer() -> Schema:
    own: Schema = {
        "type": "object",
        "properties": {"python": {"type": "string"}},
        "required": ["python"],
        "additionalProperties": False,
    }
    return {
        "anyOf": [{"enum": list(REDUCERS)}, own],
        "description": "How a write combines the old value and the new one.",
        "default": "replace",
        "examples": ["append"],
    }

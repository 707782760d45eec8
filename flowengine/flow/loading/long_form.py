"""Expansion of the short forms of a flow file, and checks of its keys.

The data is walked along the models. If another value is found in place of a mapping, it becomes the
value of the mapping's main key. `x-` keys are removed. Unknown keys, keys that exclude each other,
keys that are not implemented yet, and errors in JSON Schemas and in the configurations of step
kinds are reported and left out.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from flowengine.errors import FlowEngineError
from flowengine.flow.loading.json_schemas import schema_problems
from flowengine.flow.loading.kind_configurations import config_problems
from flowengine.flow.models import Loc, Output, Part, Pluggable
from flowengine.flow.models.agent import IsSchema
from flowengine.flow.models.kinds import configuration, is_kind, kind_names, short_form
from flowengine.flow.models.types import has_expression
from flowengine.flow.source.diagnostics import DiagnosticReporter, Fault
from flowengine.flow.source.synonyms import synonym
from flowengine.sdk.texts.near_words import nearest

_KEYS = 3
"""Keys that a message names."""
_COMMAND = "write 'run: {command: […]}'"
LEFT_OUT = object()
"""Placeholder for an invalid part that was reported."""


class Shape(NamedTuple):
    """The aspects of a field's type that matter for the expansion."""

    part: type[Part] | None = None
    schema: IsSchema | None = None
    within: str | None = None
    """`list` or `dict` if the field contains several, or None for a single one."""
    free: bool = False
    """Whether the keys of a `dict` are arbitrary and not names of the flow."""


def _inside(cls: type[Pluggable], key: str, given: Mapping[str, Any]) -> str | None:
    """Return the hint for a key that belongs into the configuration beside it, or None."""
    for kind in given:
        if not is_kind(kind, cls.PLACE):
            continue
        try:
            schema = configuration(kind)
        except FlowEngineError:
            continue
        if key in schema.get("properties", {}):
            main = schema.get("x-main")
            before = "" if main in {None, key} else f"{main}: …, "
            value = given[key]
            short = value if isinstance(value, str) and value.isidentifier() else "…"
            return f"{kind!r} contains it: '{kind}: {{{before}{key}: {short}}}'"
    return None


def _shape(annotation: Any, within: str | None = None) -> Shape:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        for marker in annotation.__metadata__:
            if isinstance(marker, IsSchema):
                return Shape(schema=marker, within=within)
        return _shape(arguments[0], within)
    if origin in {Union, types.UnionType}:
        shapes = (_shape(argument, within) for argument in arguments if argument is not type(None))
        return next((shape for shape in shapes if shape.part or shape.schema), Shape())
    if origin in {list, dict}:
        inner = _shape(arguments[-1], origin.__name__)
        return inner._replace(within=origin.__name__, free=arguments[0] is str)
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return Shape(part=annotation, within=within)
    return Shape()


@cache
def shapes(cls: type[Part]) -> dict[str, Shape]:
    """Return the shape of each field of a model, by its key."""
    return {key: _shape(info.annotation) for key, (_, info) in cls.fields_by_key().items()}


class Expander:
    """Expands one file.

    Args:
        report: Receives the errors.
    """

    def __init__(self, report: DiagnosticReporter) -> None:
        self.report = report
        self.parts: dict[Loc, type[Part]] = {}
        """The model of each mapping of the expanded data."""
        self.meant: dict[Loc, set[str]] = {}
        """The likely meanings of misspelled keys of a mapping."""

    def part(self, cls: type[Part], value: Any, loc: Loc) -> Any:
        """Return the long form of a value.

        Args:
            cls: The expected model.
            value: The value.
            loc: Its place.

        Returns:
            A mapping without the keys that have errors. If the value cannot be expanded to one, the
            value.
        """
        given = value if isinstance(value, dict) else cls.short_form(value)
        if not isinstance(given, dict):
            return given
        self.parts[loc] = cls
        given = {key: entry for key, entry in given.items() if not key.startswith("x-")}
        if cls is Output:
            schema = {key: entry for key, entry in given.items() if key != "value"}
            if self._refused(schema_problems(schema, loc), loc):
                given = {key: entry for key, entry in given.items() if key == "value"}
        expanded = {key: self._entry(cls, key, given, loc) for key in given}
        acts = self._means_an_action(cls, loc)
        for problem in cls.problems(given):
            if problem.key == "with" and acts:
                continue
            place = loc if problem.key is None else (*loc, problem.key)
            if problem.key is None and self.meant.get(loc):
                continue  # a missing key may be the misspelled one
            self.report.at(problem.code, problem.message, place, problem.hint, key=True)
            self.report.unread.add(place)
        expanded = {key: entry for key, entry in expanded.items() if entry is not LEFT_OUT}
        if issubclass(cls, Pluggable) and "with" in expanded:
            tried = any(map(cls.is_action, given)) or self._means_an_action(cls, loc)
            if tried and not any(map(cls.is_action, expanded)):
                del expanded["with"]  # the arguments of an action that is left out
        return expanded

    def _means_an_action(self, cls: type[Part], loc: Loc) -> bool:
        """Return whether a misspelled key of a step is probably its action."""
        meant = self.meant.get(loc, set())
        return issubclass(cls, Pluggable) and any(map(cls.is_action, meant))

    def _entry(self, cls: type[Part], key: str, given: Mapping[str, Any], loc: Loc) -> Any:
        """Return the long form of one entry of a mapping, or `LEFT_OUT` when it is reported."""
        value, place, field = given[key], (*loc, key), cls.fields_by_key().get(key)
        if field is not None and value is None and not field[1].takes_null:
            self.report.at("E103", f"{key!r} has no value", place, "give one, or leave it out")
        elif field is not None:
            return self._field(shapes(cls)[key], value, place)
        elif issubclass(cls, Pluggable) and is_kind(key, cls.PLACE):
            return self._kind(cls, key, value, place)
        elif cls is Output:
            return value
        else:
            self._unknown_key(cls, key, given, place)
        self.report.unread.add(place)
        return LEFT_OUT

    def _unknown_key(self, cls: type[Part], key: str, given: Mapping[str, Any], loc: Loc) -> None:
        known = [*cls.fields_by_key()]
        if issubclass(cls, Pluggable):
            known += kind_names(cls.PLACE)
        if issubclass(cls, Pluggable) and (hint := _inside(cls, key, given)) is not None:
            self.report.at("E102", f"unknown key {key!r} in {cls.NOUN}", loc, hint, key=True)
            return
        foreign = synonym(cls.__name__, key)
        if foreign is not None:
            message = f"unknown key {key!r} in {cls.NOUN}"
            as_list = foreign.key == "run" and isinstance(given[key], list)
            self.report.at("E102", message, loc, _COMMAND if as_list else foreign.hint, key=True)
            if foreign.key is not None and foreign.key not in given:
                self.meant.setdefault(loc[:-1], set()).add(foreign.key)
                self.report.unread.add((*loc[:-1], foreign.key))
            return
        meant = nearest(key, [one for one in known if one not in given])
        # Keys of the author have names as values. An expression is meant as another form.
        is_named = not any(item in known for item in given) and not any(
            map(has_expression, given.values())
        )
        if cls.BELOW is not None and not meant and is_named:
            self._keys_of_author(cls.BELOW, given, loc)
            return
        hint = f"did you mean {meant!r}?" if meant else None
        if hint is None and len(known) <= 8:
            hint = f"known are {', '.join(known)}"
        self.report.at("E102", f"unknown key {key!r} in {cls.NOUN}", loc, hint, key=True)
        if meant:
            self.meant.setdefault(loc[:-1], set()).add(meant)

    def _keys_of_author(self, below: str, given: Mapping[str, Any], loc: Loc) -> None:
        """Report, once, keys that belong below another key."""
        if below in self.meant.get(loc[:-1], ()):
            return
        self.meant.setdefault(loc[:-1], set()).add(below)
        where, verb = str(loc[-2]), "belongs" if len(given) == 1 else "belong"
        message = f"{', '.join(map(repr, [*given][:_KEYS]))} {verb} below {below!r} in {where!r}"
        hint = f"write {where}: {{{below}: {{{loc[-1]}: STEP}}}}"
        self.report.at("E102", message, loc, hint, key=True)

    def _field(self, shape: Shape, value: Any, loc: Loc) -> Any:
        if shape.part is not None and shape.part.SINGLE and shape.within == "list":
            value = value if isinstance(value, list) else [value]
        if shape.within == "list" and isinstance(value, list):
            return [self._one(shape, item, (*loc, index)) for index, item in enumerate(value)]
        if shape.within == "dict" and isinstance(value, dict):
            return {
                key: self._one(shape, entry, (*loc, key))
                for key, entry in value.items()
                if shape.free or not key.startswith("x-")
            }
        return value if shape.within else self._one(shape, value, loc)

    def _one(self, shape: Shape, value: Any, loc: Loc) -> Any:
        if shape.part is not None:
            return self.part(shape.part, value, loc)
        if shape.schema is not None and isinstance(value, dict):
            if self._refused(schema_problems(value, loc, shape.schema.more), loc):
                return {}
            return {key: entry for key, entry in value.items() if not key.startswith("x-")}
        return value

    def _refused(self, problems: Iterator[Fault], loc: Loc) -> bool:
        """Report errors in a schema or configuration, and return whether there are any."""
        found = list(problems)
        for place, code, message, hint, key, _ in found:
            self.report.at(code, message, place, hint, key=key)
        if found:
            self.report.unread.add(loc)
        return bool(found)

    def _kind(self, cls: type[Pluggable], key: str, value: Any, loc: Loc) -> Any:
        """Check the configuration of a step kind, and return its long form.

        Args:
            cls: The model of the part that contains it.
            key: The kind.
            value: The configuration, in long or short form.
            loc: Its place.
        """
        try:
            schema = configuration(key)
        except FlowEngineError as error:
            self.report.at("E401", error.message, loc, error.hint, key=True)
            self.report.unread.add(loc)
            return LEFT_OUT
        value = short_form(schema, value)
        problems = (
            problem._replace(hint=f"write it beside {key!r}, not in it")
            if problem.key and problem.loc[:-1] == loc and problem.loc[-1] in cls.fields_by_key()
            else problem
            for problem in config_problems(schema, value, key, loc)
        )
        return LEFT_OUT if self._refused(problems, loc) else value

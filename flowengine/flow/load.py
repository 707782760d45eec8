"""From a source to a validated model, with every error at its place.

Three passes. *Expand* walks the data along the models: short forms become long ones, `x-` keys go,
unknown keys, keys that exclude one another and words that are not built yet are reported.
*Validate* lets pydantic look at the values. *Locate* tells each part where it stands.

What is wrong is reported and left out, and the rest is looked at all the same: the model of a
broken file lacks what is in `FlowModel.unread`.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, Union, cast, get_args, get_origin

from pydantic import ValidationError

from flowengine.errors import FlowEngineError
from flowengine.flow.configurations import config_problems
from flowengine.flow.diagnostics import Diagnostics, Position, did_you_mean, nearest
from flowengine.flow.json_schemas import SchemaProblem, schema_problems
from flowengine.flow.models import FlowModel, Loc, Output, Part, Step
from flowengine.flow.models.flow import Pluggable
from flowengine.flow.models.kinds import configuration, kind_names, short_form
from flowengine.flow.models.not_yet import not_yet, refused_keys
from flowengine.flow.models.schemas import IsSchema
from flowengine.flow.models.types import OPEN, shown
from flowengine.flow.source import Source

VERSION = 1
"""Of the language."""
LEFT_OUT = object()
"""In place of what is wrong and was reported."""
PASSES = 20
"""So many times what is wrong is left out and the rest validated again."""


def load_source(source: Source, diagnostics: Diagnostics) -> FlowModel | None:
    """Return the model of a flow file.

    Args:
        source: The file.
        diagnostics: Gets everything that is wrong (`E1xx`, `E5xx`).

    Returns:
        The model; of a file with errors one without what is wrong; None if nothing is left to look
        at.
    """
    return _Loader(source, diagnostics).load()


class Shape(NamedTuple):
    """What of a field's type matters for expanding."""

    part: type[Part] | None = None
    schema: IsSchema | None = None
    within: str | None = None
    """`list` or `dict` of it; None: it alone."""


def _shape(annotation: Any, within: str | None = None, metadata: tuple[Any, ...] = ()) -> Shape:
    for marker in metadata:
        if isinstance(marker, IsSchema):
            return Shape(schema=marker, within=within)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _shape(arguments[0], within, annotation.__metadata__)
    if origin in {Union, types.UnionType}:
        shapes = (_shape(one, within) for one in arguments if one is not type(None))
        return next((one for one in shapes if one.part or one.schema), Shape())
    if origin in {list, dict}:
        return _shape(arguments[-1], origin.__name__)
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return Shape(part=annotation, within=within)
    return Shape()


@cache
def _shapes(cls: type[Part]) -> dict[str, Shape]:
    """Return the shape of each field of a model, by its key."""
    return {
        key: _shape(info.annotation, metadata=tuple(info.metadata))
        for key, (_, info) in cls.fields_by_key().items()
    }


class _Loader:
    """One load of one file."""

    def __init__(self, source: Source, diagnostics: Diagnostics) -> None:
        self.source = source
        self.diagnostics = diagnostics
        self.unread: set[Loc] = set()
        self.parts: dict[Loc, type[Part]] = {}
        """What each mapping of the expanded data is."""
        self.meant: dict[Loc, set[str]] = {}
        """What misspelt keys of a mapping were most likely meant to be."""

    def load(self) -> FlowModel | None:
        for problem in self.source.problems:
            self.diagnostics.add(problem)
        data = self.source.data
        if self.source.root is None:
            return None
        if not isinstance(data, dict):
            self._error("E103", f"a flow file is a mapping, this is {shown(data)}", ())
            return None
        data = dict(data)
        if not self._readable_version(data):
            return None
        self._refuse_keys_with_expressions(data, ())
        expanded = self._part(FlowModel, data, ())
        self._check_ids(expanded)
        model = self._validate(expanded)
        if model is not None:
            _locate(model, ())
            model._unread = frozenset(self.unread)
        return model

    # Reporting

    def _error(
        self, code: str, message: str, loc: Loc, hint: str | None = None, *, key: bool = False
    ) -> None:
        self._report(code, message, self.source.position(loc, key=key), hint)

    def _report(self, code: str, message: str, place: Position, hint: str | None) -> None:
        """Report, unless the same place is no YAML, from which it only follows."""
        broken = ((one.line, one.column) for one in self.source.problems)
        if (place.line, place.column) not in broken:
            self.diagnostics.error(code, message, place, hint=hint)

    def _drop(self, loc: Loc) -> None:
        self.unread.add(loc)

    # The whole file

    def _readable_version(self, data: dict[str, Any]) -> bool:
        if "flowengine" not in data:
            hint = "write 'flowengine: 1' in the first line"
            self._error("E104", "the file does not say its language version", (), hint)
            data["flowengine"] = VERSION
            return True
        version = data["flowengine"]
        if version == VERSION and isinstance(version, int) and not isinstance(version, bool):
            return True
        place = self.source.position(("flowengine",))
        if isinstance(version, int) and not isinstance(version, bool):
            message = f"language version {version} is not supported; this release reads version 1"
            newer = "a newer release of flowengine may read it" if version > VERSION else "write 1"
            self._report("E501", message, place, newer)
            return False
        self._report(
            "E103", f"expected the language version 1, got {shown(version)}", place, "write 1"
        )
        data["flowengine"] = VERSION
        return True

    def _refuse_keys_with_expressions(self, data: Any, loc: Loc) -> None:
        if isinstance(data, list):
            for index, item in enumerate(data):
                self._refuse_keys_with_expressions(item, (*loc, index))
        elif isinstance(data, dict):
            for key, value in data.items():
                if OPEN.search(key):
                    message = "a key cannot contain an expression"
                    self._error("E306", message, (*loc, key), "compute the map in a tool", key=True)
                self._refuse_keys_with_expressions(value, (*loc, key))

    def _check_ids(self, flow: dict[str, Any]) -> None:
        """Report ids that two steps have."""
        first: dict[str, Loc] = {}
        for loc, step in _steps(flow, ()):
            name = step.get("id")
            if not isinstance(name, str):
                continue
            if name in first:
                line = self.source.position((*first[name], "id")).line
                hint = f"it is the id of the step in line {line} too; ids are unique in a file"
                self._error("E105", f"duplicate step id {name!r}", (*loc, "id"), hint)
                self._drop(loc)
            first.setdefault(name, loc)

    # Expanding

    def _part(self, cls: type[Part], value: Any, loc: Loc) -> Any:
        """Return what stands at `loc` in long form, as far as it is a mapping."""
        given = value if isinstance(value, dict) else cls.short_form(value)
        if not isinstance(given, dict):
            return given
        self.parts[loc] = cls
        given = {key: one for key, one in given.items() if not key.startswith("x-")}
        if cls is Output:
            schema = {key: one for key, one in given.items() if key != "value"}
            if self._refused(schema_problems(schema, loc), loc):
                given = {key: one for key, one in given.items() if key == "value"}
        expanded = {key: self._entry(cls, key, given, loc) for key in given}
        self._rules(cls, given, loc)
        expanded = {key: one for key, one in expanded.items() if one is not LEFT_OUT}
        actions = set(cls.actions()) if issubclass(cls, Pluggable) else set()
        if given.keys() & actions and not expanded.keys() & actions:
            expanded.pop("with", None)  # the arguments of an action that is left out
        return expanded

    def _rules(self, cls: type[Part], given: Mapping[str, Any], loc: Loc) -> None:
        """Report what is wrong with the keys of a mapping taken together."""
        for problem in cls.problems(given):
            place = loc if problem.key is None else (*loc, problem.key)
            if problem.key is None and self.meant.get(loc):
                continue  # a key that is needed may be the misspelt one
            self._error(problem.code, problem.message, place, problem.hint, key=True)
            self._drop(place)

    def _entry(self, cls: type[Part], key: str, given: Mapping[str, Any], loc: Loc) -> Any:
        """Return the long form of one entry of a mapping, or `LEFT_OUT` when it is reported."""
        value, place, field = given[key], (*loc, key), cls.fields_by_key().get(key)
        refused = not_yet(cls.__name__, key, value)
        if refused is not None:
            self._error("E502", f"not supported yet: {refused.what}", place, key=True)
        elif field is not None and value is None and field[1].annotation is not Any:
            self._error("E103", f"{key!r} has no value", place, "give one, or leave it out")
        elif field is not None:
            return self._field(_shapes(cls)[key], value, place)
        elif issubclass(cls, Pluggable) and key in kind_names(cls.PLACE):
            return self._kind(key, value, place)
        elif cls is Output:
            return value
        else:
            self._unknown_key(cls, key, given, place)
        self._drop(place)
        return LEFT_OUT

    def _unknown_key(self, cls: type[Part], key: str, given: Mapping[str, Any], loc: Loc) -> None:
        refused = refused_keys(cls.__name__)
        known = [one for one in cls.fields_by_key() if one not in refused]
        if issubclass(cls, Pluggable):
            known += kind_names(cls.PLACE)
        meant = nearest(key, [one for one in (*known, *refused) if one not in given])
        hint = f"did you mean {meant!r}?" if meant else None
        if hint is None and len(known) <= 8:
            hint = f"known are {', '.join(known)}"
        self._error("E102", f"unknown key {key!r} in {cls.NOUN}", loc, hint, key=True)
        if meant:
            self.meant.setdefault(loc[:-1], set()).add(meant)

    def _field(self, shape: Shape, value: Any, loc: Loc) -> Any:
        if shape.part is not None and shape.part.SINGLE and shape.within == "list":
            value = value if isinstance(value, list) else [value]
        if shape.within == "list" and isinstance(value, list):
            return [self._one(shape, one, (*loc, index)) for index, one in enumerate(value)]
        if shape.within == "dict" and isinstance(value, dict):
            kept = {key: one for key, one in value.items() if not key.startswith("x-")}
            return {key: self._one(shape, one, (*loc, key)) for key, one in kept.items()}
        return value if shape.within else self._one(shape, value, loc)

    def _one(self, shape: Shape, value: Any, loc: Loc) -> Any:
        if shape.part is not None:
            return self._part(shape.part, value, loc)
        if shape.schema is not None and isinstance(value, dict):
            return self._schema(shape.schema, value, loc)
        return value

    def _schema(self, kind: IsSchema, value: dict[str, Any], loc: Loc) -> dict[str, Any]:
        if self._refused(schema_problems(value, loc, kind.more), loc):
            return {}
        return {key: one for key, one in value.items() if not key.startswith("x-")}

    def _refused(self, problems: Iterator[SchemaProblem], loc: Loc) -> bool:
        """Report what is wrong in a schema or configuration, and return whether anything is."""
        good = True
        for problem in problems:
            self._error(problem.code, problem.message, problem.loc, problem.hint, key=problem.key)
            good = False
        if not good:
            self._drop(loc)
        return not good

    def _kind(self, key: str, value: Any, loc: Loc) -> Any:
        """Check the configuration of a step kind, and return its long form."""
        try:
            schema = configuration(key)
        except FlowEngineError as error:
            self._error("E401", error.message, loc, error.hint, key=True)
            self._drop(loc)
            return LEFT_OUT
        value = short_form(schema, value)
        for inner, one in value.items() if isinstance(value, dict) else ():
            refused = not_yet(key, inner, one)
            if refused is not None:
                self._error("E502", f"not supported yet: {refused.what}", (*loc, inner), key=True)
        return LEFT_OUT if self._refused(config_problems(schema, value, key, loc), loc) else value

    # Validating

    def _validate(self, data: dict[str, Any]) -> FlowModel | None:
        for round_ in range(PASSES):
            try:
                return FlowModel.model_validate(data)
            except ValidationError as error:
                for one in error.errors(include_url=False):
                    loc, key = _clean(one["loc"])
                    if round_ == 0:
                        self._invalid(cast("dict[str, Any]", one), loc, key)
                    if not self._leave_out(data, loc, one["type"]):
                        return None
        return None

    def _invalid(self, error: dict[str, Any], loc: Loc, key: bool) -> None:
        kind, context = error["type"], error.get("ctx", {})
        if kind[0] == "E" and kind[1:].isdigit():
            self._error(kind, context["message"], loc, context["hint"], key=key)
        elif kind == "missing":
            if loc in self.unread or str(loc[-1]) in self.meant.get(loc[:-1], ()):
                return  # it is there, and what is wrong with it has been told
            owner = self.parts.get(loc[:-1], FlowModel)
            message = f"{owner.NOUN} needs {loc[-1]!r}"
            self._error("E104", message, loc[:-1], _example(owner, str(loc[-1])), key=True)
        else:
            message, hint = _plain_error(kind, context, error["input"], self._part_at(loc))
            self._error("E103", message, loc, hint)

    def _part_at(self, loc: Loc) -> type[Part] | None:
        """Return the model that is expected at a place."""
        owner = self.parts.get(loc[:-1])
        shape = _shapes(owner).get(str(loc[-1])) if owner and loc else None
        if shape is not None:
            return shape.part
        return self._part_at(loc[:-1]) if loc and isinstance(loc[-1], int) else None

    def _leave_out(self, data: Any, loc: Loc, kind: str) -> bool:
        """Take what is wrong out of the data; False if nothing would be left."""
        if kind == "missing":
            owner, part = _get(data, loc[:-1]), self.parts.get(loc[:-1])
            if loc[-1] == "id" and part is not None and issubclass(part, Step | FlowModel):
                owner["id"] = _stand_in(loc)
                return True
            loc = loc[:-1]
        while loc:
            owner = _get(data, loc[:-1])
            if isinstance(owner, dict):
                self._drop(loc)
                owner.pop(loc[-1], None)
                return True
            part = self._part_at(loc)
            if isinstance(owner, list) and part is not None and issubclass(part, Step):
                self._drop(loc)
                owner[int(loc[-1])] = {"id": _stand_in(loc)}
                return True
            loc = loc[:-1]
        return False


def _stand_in(loc: Loc) -> str:
    """Return an id for what has none, which nothing else in the file is called."""
    return "_".join(["unnamed", *(str(one) for one in loc if isinstance(one, int))])


def _get(data: Any, loc: Loc) -> Any:
    for step in loc:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _steps(scope: Any, loc: Loc) -> Iterator[tuple[Loc, dict[str, Any]]]:
    """Yield all steps of a scope, those inside groups too, with their places."""
    for key in ("steps", "group", "parallel", "finally"):
        inner = scope.get(key)
        for index, step in enumerate(inner if isinstance(inner, list) else ()):
            if isinstance(step, dict):
                place = (*loc, key, index)
                yield place, step
                yield from _steps(step, place)


def _clean(loc: tuple[int | str, ...]) -> tuple[Loc, bool]:
    """Return a place without what pydantic adds for unions and keys, and whether it is a key."""
    names = [one for one in loc if not (isinstance(one, str) and one.startswith("<"))]
    if names and names[-1] == "[key]":
        return tuple(names[:-1]), True
    return tuple(names), False


def _example(owner: type[Part], key: str) -> str:
    field = owner.fields_by_key().get(key)
    example = field[1].examples[0] if field and field[1].examples else None
    return f"for example '{key}: {example}'" if isinstance(example, str | int) else f"add {key!r}"


_EXPECTED = {
    "list_type": "a list",
    "dict_type": "a mapping",
    "bool_type": "true or false",
    "string_type": "text",
    "int_type": "a whole number",
}


def _plain_error(
    kind: str, context: Mapping[str, Any], value: Any, part: type[Part] | None
) -> tuple[str, str | None]:
    """Return message and hint for an error that pydantic found by itself."""
    if kind == "literal_error":
        words = [
            word.strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(", ")
        ]
        hint = did_you_mean(value, words) if isinstance(value, str) else None
        return f"expected {context['expected']}, got {shown(value)}", hint
    hint = None
    if kind == "list_type" and isinstance(value, dict):
        hint = "begin each entry with '- '"
    if kind == "too_short":
        return f"expected at least {context['min_length']} entry, there is none", None
    if kind in {"model_type", "model_attributes_type"}:
        keys = list(part.fields_by_key()) if part else []
        hint = f"its keys are {', '.join(keys)}" if 0 < len(keys) <= 10 else None
        hint = "write {} for an empty one" if value is None else hint
        return f"expected a mapping, got {shown(value)}", hint
    hint = None
    if (
        kind == "bool_type"
        and isinstance(value, str)
        and value.lower() in {"yes", "no", "on", "off"}
    ):
        hint = "only true and false are booleans"
    return f"expected {_EXPECTED.get(kind, context.get('error', kind))}, got {shown(value)}", hint


def _locate(value: Any, loc: Loc) -> None:
    """Tell each part where it stands."""
    if isinstance(value, Part):
        value._loc = loc
        for key, (name, _) in type(value).fields_by_key().items():
            if value.has(name):
                _locate(getattr(value, name), (*loc, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _locate(item, (*loc, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            _locate(item, (*loc, key))

"""Base of all parts of a flow file: closed mappings with a place, a main key, and rules on keys."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import (
    Any,
    ClassVar,
    NamedTuple,
    Self,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from flowengine.flow.source.diagnostics import Loc

REQUIRED: Any = object()
"""The default of a key that must be given."""


class FieldInfo(NamedTuple):
    """A key of a mapping, as its model declares it."""

    default: Any
    key: str | None
    """The key, if it is not the name of the field."""
    examples: list[Any]
    min_length: int
    """The least number of entries of a list or map."""
    max_length: int | None
    annotation: Any = None

    @property
    def is_required(self) -> bool:
        """Whether the key must be given."""
        return self.default is REQUIRED

    @property
    def takes_null(self) -> bool:
        """Whether its value may be null, because it may be anything."""
        return Any in {self.annotation, *get_args(self.annotation)[:1]}


def Field(
    *,
    examples: list[Any],
    default: Any = REQUIRED,
    key: str | None = None,
    min_length: int = 0,
    max_length: int | None = None,
) -> Any:
    """Return the declaration of a key, for the attribute of a `Part` or its annotation.

    The docstring of the attribute is its description in the schema of the file.

    Args:
        examples: Values, as in the file.
        default: The value if the file does not have it. Parts share it, so nothing changes it.
        key: The key, if it is not the name of the attribute.
        min_length: The least number of entries of a list or map.
        max_length: The largest number of entries of a list.
    """
    return FieldInfo(default, key, examples, min_length, max_length)


def listed(words: Iterable[str]) -> str:
    """Return words as a list in a sentence: `'a', 'b' or 'c'`."""
    *most, last = [repr(word) for word in words]
    return f"{', '.join(most)} or {last}" if most else last


class MappingProblem(NamedTuple):
    """An error in the keys of a mapping.

    `key` is the key concerned, or None for the whole mapping.
    """

    key: str | None
    code: str
    message: str
    hint: str | None = None


class ExclusiveKeys(NamedTuple):
    """A rule: a mapping has at most one of these keys, or exactly one if `required`."""

    keys: tuple[str, ...]
    required: bool = True

    def problems(self, cls: type["Part"], given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Yield the errors in a mapping of a model."""
        keys = [key for key in given if key in self.keys]
        if len(keys) == 1 or not (keys or self.required):
            return
        names = listed(self.keys)
        if not keys:
            yield MappingProblem(None, "E104", f"{cls.NOUN} needs {names}", f"add {names}")
        for extra in keys[1:]:
            message = f"{cls.NOUN} has {keys[0]!r} and {extra!r}, but only one is allowed"
            yield MappingProblem(extra, "E103", message, f"keep one of {names}")

    def as_schema(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rule as JSON Schema of a mapping with these properties."""
        each = [{"required": [key]} for key in self.keys if key in properties]
        return {"oneOf": each if self.required else [*each, {"not": {"anyOf": each}}]}


class KeyNeeds(NamedTuple):
    """A rule: a key has a meaning only beside one of some others."""

    key: str | None
    """None stands for the whole mapping, which needs one of them."""
    others: tuple[str, ...]
    hint: str | None = None

    def problems(self, cls: type["Part"], given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Yield the errors in a mapping of a model."""
        names = listed(self.others)
        if given.keys() & {*self.others}:
            return
        if self.key is None:
            yield MappingProblem(None, "E104", f"{cls.NOUN} needs {names}", self.hint)
        elif self.key in given:
            message = f"{self.key!r} has no meaning without {names}"
            hint = self.hint or f"add {names}, or leave it out"
            yield MappingProblem(self.key, "E103", message, hint)

    def as_schema(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rule as JSON Schema of a mapping with these properties."""
        needs = {"anyOf": [{"required": [key]} for key in self.others if key in properties]}
        return needs if self.key is None else {"if": {"required": [self.key]}, "then": needs}


class KeyExcludes(NamedTuple):
    """A rule: a key cannot be combined with another one, or with certain values of it."""

    key: str
    other: str
    hint: str
    values: tuple[Any, ...] = ()

    def problems(self, cls: type["Part"], given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Yield the errors in a mapping of a model."""
        value = given.get(self.other)
        if self.key in given and self.other in given and (not self.values or value in self.values):
            other = f"{self.other}: {str(value).lower()}" if self.values else self.other
            message = f"{self.key!r} cannot be combined with {other!r}"
            yield MappingProblem(self.key, "E103", message, self.hint)

    def as_schema(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rule as JSON Schema of a mapping with these properties."""
        both: dict[str, Any] = {"required": [self.key, self.other]}
        if self.values:
            both["properties"] = {self.other: {"enum": [*self.values]}}
        return {"not": both}


Rule = ExclusiveKeys | KeyNeeds | KeyExcludes


@dataclass_transform(
    eq_default=False, kw_only_default=True, frozen_default=True, field_specifiers=(Field,)
)
class PartType(type):
    """The class of the models, which keeps what each of them declares."""

    own: dict[str, FieldInfo]

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> None:
        super().__init__(name, bases, body)
        cls.own = {}
        for key, annotation in cls.__annotations__.items():
            for info in (body.get(key), *getattr(annotation, "__metadata__", ())):
                if isinstance(info, FieldInfo):
                    cls.own[key] = info
                    setattr(cls, key, None if info.is_required else info.default)


class Part(metaclass=PartType):
    """A mapping of the file, with its short forms expanded.

    A field has the name of its key in the file. If that is a Python keyword, an underscore is
    appended (`with_`). What the file does not have is not stored: the class has the default.
    `reading.py` reads a part from data, and checks it.
    """

    NOUN: ClassVar[str]
    """The name of the mapping in messages, with its article: `a step`."""
    MAIN: ClassVar[str | None] = None
    """The key that a bare value stands for."""
    SHORT: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Further forms of a bare value, as JSON Schema, if `short_form` reads any."""
    NAMED: ClassVar[str | None] = None
    """The key with the name of an entry. A broken entry is kept with this name only."""
    BELOW: ClassVar[str | None] = None
    """The key below which keys that authors choose belong. Unknown ones were probably meant so."""
    SINGLE: ClassVar[bool] = False
    """Whether a single entry may replace a list of these."""
    RULES: ClassVar[tuple[Rule, ...]] = ()
    RULES_AS_SCHEMA: ClassVar[tuple[dict[str, Any], ...]] = ()
    """The rules of a model's own `problems`, as JSON Schema."""
    OPEN: ClassVar[bool] = False
    """Whether it takes keys that are not fields, which are in `_more`."""

    _loc: Loc = ()
    _more: Mapping[str, Any] = MappingProxyType({})
    """The keys that are not fields, with their values."""
    _unread: frozenset[Loc] = frozenset()
    """Of a file: the places whose content was left out because of errors."""
    _around_unread: frozenset[Loc] = frozenset()
    """Those places, and the places around them."""

    @property
    def loc(self) -> Loc:
        """Place of the part in its file, for `Source.position`."""
        return self._loc

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield each field with its value, which can be the default."""
        for name, _ in self.fields_by_key().values():
            yield name, getattr(self, name)

    def has(self, key: str) -> bool:
        """Return whether the file contains this key (by the field's name), even as `null`."""
        return key in self.__dict__

    def plain(self) -> dict[str, Any]:
        """Return the part as data in long form, with the keys that the file contains."""
        fields = self.fields_by_key().items()
        given = {key: getattr(self, name) for key, (name, _) in fields if self.has(name)}
        return {key: plain(value) for key, value in {**given, **self._more}.items()}

    def with_changes(self, **changes: Any) -> Self:
        """Return a copy with other values of some fields."""
        return type(self)(**{**self.__dict__, **changes})

    @classmethod
    def fields_by_key(cls) -> dict[str, tuple[str, FieldInfo]]:
        """Return each key of the file with the name and description of its field."""
        return _fields_by_key(cls)

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """Return the mapping that a bare value stands for, or the value if it stands for none."""
        return value if cls.MAIN is None or value is None else {cls.MAIN: value}

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Yield the errors in the combination of keys of a mapping."""
        for rule in cls.RULES:
            yield from rule.problems(cls, given)


@cache
def _fields_by_key(cls: type[Part]) -> dict[str, tuple[str, FieldInfo]]:
    hints = get_type_hints(cls, include_extras=True)
    models = [one for one in reversed(cls.__mro__) if isinstance(one, PartType)]
    own = {name: info for one in models for name, info in one.own.items()}
    return {
        info.key or name: (name, info._replace(annotation=hints[name]))
        for name, info in own.items()
    }


def plain(value: Any) -> Any:
    """Return a value with the parts in it as data in long form."""
    if isinstance(value, Part):
        return value.plain()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value

"""Base of all parts of a flow file: closed mappings with a place, a main key, and rules on keys."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, PrivateAttr
from pydantic.fields import FieldInfo

from flowengine.flow.source.diagnostics import Loc


class NotYet(NamedTuple):
    """A key that is refused, or some values of it."""

    what: str
    """The feature, for the message: `agents`."""
    refuses: Callable[[Any], bool] | None = None
    """Returns whether a value is refused. None means that all values are."""
    allowed: dict[str, Any] | None = None
    """The other values, as JSON Schema."""


def _is_fallback(value: Any) -> bool:
    return bool(value == "fallback")


NOT_YET: dict[tuple[str, str], NotYet] = {
    ("Budget", "then"): NotYet(
        "continuing with cheaper models, which comes with agents", _is_fallback
    ),
    ("Secret", "keyring"): NotYet("secrets from a keyring"),
    ("Secret", "vault"): NotYet("secrets from a vault"),
}
"""By the model's name and the key. `ParallelStep` is a `Step` here."""


def not_yet(model: str, key: str, value: Any) -> NotYet | None:
    """Return why a key with this value is refused, or None."""
    entry = refused_keys(model).get(key)
    if entry is None or (entry.refuses is not None and not entry.refuses(value)):
        return None
    return entry


@cache
def refused_keys(model: str) -> dict[str, NotYet]:
    """Return the keys of a model that are refused, always or with some values."""
    model = "Step" if model == "ParallelStep" else model
    return {key: entry for (owner, key), entry in NOT_YET.items() if owner == model}


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


class Part(BaseModel):
    """A mapping of the file, with its short forms expanded.

    A field has the name of its key in the file. If that is a Python keyword, an underscore is
    appended (`with_`).

    Validators are built on first use (`defer_build`): those of a whole file contain all others.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

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
    RULES: ClassVar[tuple[ExclusiveKeys, ...]] = ()
    RULES_AS_SCHEMA: ClassVar[tuple[dict[str, Any], ...]] = ()
    """The rules of a model's own `problems`, as JSON Schema."""

    _loc: Loc = PrivateAttr(default=())

    @property
    def loc(self) -> Loc:
        """Place of the part in its file, for `Source.position`."""
        private = self.__pydantic_private__  # the same as `self._loc`, which takes a longer search
        return private["_loc"] if private else ()

    def has(self, key: str) -> bool:
        """Return whether the file contains this key (by the field's name), even as `null`."""
        return key in self.model_fields_set

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
            yield from cls._broken(rule, given)

    @classmethod
    def _broken(cls, rule: ExclusiveKeys, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        keys = [key for key in given if key in rule.keys]
        if len(keys) == 1 or not (keys or rule.required):
            return
        refused = refused_keys(cls.__name__)
        names = listed(key for key in rule.keys if key not in refused)
        if not keys:
            yield MappingProblem(None, "E104", f"{cls.NOUN} needs {names}", f"add {names}")
        for extra in keys[1:]:
            message = f"{cls.NOUN} has {keys[0]!r} and {extra!r}, but only one is allowed"
            yield MappingProblem(extra, "E103", message, f"keep one of {names}")


@cache
def _fields_by_key(cls: type[Part]) -> dict[str, tuple[str, FieldInfo]]:
    if not cls.__pydantic_fields_complete__:  # it names a model that is defined after it
        cls.model_rebuild()
    return {info.alias or name: (name, info) for name, info in cls.model_fields.items()}

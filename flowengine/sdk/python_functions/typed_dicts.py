"""TypedDicts of `typing`, which pydantic refuses before Python 3.12."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

from flowengine.sdk.python_functions.plain_hints import known_hints


def explain_typed_dicts(hint: Any) -> None:
    """Make the TypedDicts that a type names, alone or in dataclasses, known to pydantic.

    Pydantic needs the bases of a class, which those of `typing` do not keep before Python 3.12. It
    is given an equal class of `typing_extensions` instead.
    """
    _explain(list(_typed_dicts(hint, [])))


def _typed_dicts(hint: Any, seen: list[Any]) -> Iterator[Any]:
    """Yield the TypedDicts that a type names, alone or in dataclasses."""
    parts = list(get_args(hint))
    if isinstance(hint, type) and hint not in seen:
        seen.append(hint)
        if is_typeddict(hint) or hasattr(hint, "__dataclass_fields__"):
            parts += known_hints(hint).values()
        if is_typeddict(hint):
            yield hint
    for part in parts:
        yield from _typed_dicts(part, seen)


def _explain(classes: Iterable[Any]) -> None:
    from typing_extensions import TypedDict

    same: dict[Any, Any] = {}
    for cls in classes:
        same[cls] = twin = TypedDict(cls.__name__, {})  # type: ignore[operator]
        for name in ("__module__", "__qualname__", "__doc__", "__pydantic_config__"):
            if hasattr(cls, name):
                setattr(twin, name, getattr(cls, name))
        twin.__required_keys__, twin.__optional_keys__ = (
            cls.__required_keys__,
            cls.__optional_keys__,
        )
        if type(cls).__module__ == "typing":
            known = classmethod(lambda _, source, handler, twin=twin: handler(twin))
            cls.__get_pydantic_core_schema__ = known
    for cls, twin in same.items():
        hints = known_hints(cls).items()
        twin.__annotations__ = {name: _exchanged(hint, same) for name, hint in hints}


def _exchanged(hint: Any, same: Mapping[Any, Any]) -> Any:
    """Return a type with TypedDicts in it exchanged."""
    parts = get_args(hint)
    if not parts or get_origin(hint) is Literal:
        return same.get(hint, hint) if isinstance(hint, Hashable) else hint
    changed = tuple(_exchanged(part, same) for part in parts)
    if changed == parts:
        return hint
    if isinstance(hint, UnionType):
        return Union[changed]  # noqa: UP007 - of any number
    return hint.copy_with(changed) if hasattr(hint, "copy_with") else get_origin(hint)[changed]

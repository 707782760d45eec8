"""Conversion of pydantic errors to faults: path, message, and the closest valid name.

Input is never quoted, except for field names and words of a fixed set, because it may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from flowengine.execution_environment.errors import Fault
from flowengine.sdk.near_words import did_you_mean
from flowengine.sdk.validation_messages import predicate


def faults_of(error: ValidationError, model: type[BaseModel], part: str = "") -> list[Fault]:
    """Return the faults, one entry per location.

    Args:
        error: Error of validating against `model`.
        model: The model.
        part: Path of the validated data in the spec.

    Returns:
        The faults, in the order of the fields.
    """
    faults: dict[str, Fault] = {}
    mistyped: set[str] = set()
    for each in error.errors(include_url=False):
        loc = [str(item) for item in each["loc"]]
        names = _names(loc, model)
        path = ".".join(filter(None, [part, *names]))
        # In a union, the error of the arm with the matching type is more useful.
        if path not in faults or (path in mistyped and not each["type"].endswith("_type")):
            faults[path] = Fault(path, _message(each, loc, model))
        if each["type"].endswith("_type"):
            mistyped.add(path)
    deeper = tuple(faults)
    return [
        fault
        for path, fault in faults.items()  # in a union, report only the best match
        if not any(other.startswith(f"{path}.") for other in deeper)
    ]


def nearest(word: object, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` or the known names, to be appended to a message."""
    names = sorted(known)
    if (near := did_you_mean(str(word), names)) is not None:
        return f"; {near}"
    return f"; known: {', '.join(names)}" if names else ""


def _message(error: Any, loc: Sequence[str], model: type[BaseModel]) -> str:
    kind = error["type"]
    field = _field(loc, model)
    if kind == "extra_forbidden":
        owner = _model_at(loc[:-1], model)
        return f"is unknown{nearest(loc[-1], owner.model_fields if owner else ())}"
    if kind == "missing":
        return "is missing"
    words = _words(field)
    if words and isinstance(error["input"], str) and len(error["input"]) <= 30:
        return f"is '{error['input']}'{nearest(error['input'], words)}"
    return predicate(error)


def _names(loc: Sequence[str], model: type[BaseModel]) -> list[str]:
    """Return the path without pydantic's components for the arms of unions."""
    names: list[str] = []
    now: Any = model
    for item in loc:
        if isinstance(now, type) and issubclass(now, BaseModel):
            names.append(item)
            info = now.model_fields.get(item)
            now = info.annotation if info else None
            continue
        inner = _parts(now)
        if any(_is_arm(item, part) for part in inner):
            now = next((part for part in inner if _is_arm(item, part)), None)
            continue
        if not item.startswith(("function-", "constrained-", "literal[", "list[", "dict[")):
            names.append(item)
        now = None
    return names


def _is_arm(item: str, part: Any) -> bool:
    name = getattr(part, "__name__", "")
    return item == name or item.startswith((f"{name}[", "constrained-", "literal[", "function-"))


def _parts(annotation: Any) -> list[Any]:
    if get_origin(annotation) in {Union, UnionType}:
        return list(get_args(annotation))
    return []


def _field(loc: Sequence[str], model: type[BaseModel]) -> Any:
    owner = _model_at(loc[:-1], model)
    if owner is not None and loc and loc[-1] in owner.model_fields:
        return owner.model_fields[loc[-1]].annotation
    info = model.model_fields.get(loc[0]) if loc else None
    return info.annotation if info else None


def _model_at(loc: Sequence[str], model: type[BaseModel]) -> type[BaseModel] | None:
    now: Any = model
    for item in loc:
        if not (isinstance(now, type) and issubclass(now, BaseModel)):
            return None
        info = now.model_fields.get(item)
        if info is None:
            return now  # the arm of a union
        now = next(_models(info.annotation), None)
    return now if isinstance(now, type) else None


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation: the arms of a union, the items of a list or map."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _words(annotation: Any) -> list[str]:
    """Return the words of a `Literal`, also within a union."""
    if get_origin(annotation) is Literal:
        return [word for word in get_args(annotation) if isinstance(word, str)]
    return [word for part in _parts(annotation) for word in _words(part)]

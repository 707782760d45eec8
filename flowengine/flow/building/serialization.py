"""Conversion of Python values, functions and classes to the data of a flow file."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, get_origin

from flowengine.errors import UsageError
from flowengine.flow.building.expressions import Expr
from flowengine.kernel.notation.times import format_duration
from flowengine.sdk.errors import ValidationError, public_name
from flowengine.sdk.python.argument_checks import in_words
from flowengine.sdk.python.imported_modules import MAIN, name_of_program
from flowengine.sdk.python.live_types import schema_of
from flowengine.sdk.python.schema_forms import ABSENT, Schema, needed
from flowengine.sdk.texts.json_values import plain as as_text
from flowengine.sdk.values.plain_values import to_plain

# Names of Python functions in flows: `module:function`, by which another process can find them.

DURABLE = "an execution may continue in another process, which has to find the function by its name"


def reference(function: Any) -> str:
    """Return the name of a function.

    Args:
        function: A function at the top level of a module.

    Returns:
        `package.module:function`.

    Raises:
        UsageError: Another process could not find it.
    """
    function = getattr(function, "function", None) or function
    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    code = getattr(function, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    if name is None or module is None:
        raise UsageError(
            f"{in_words(function)} has no name",
            hint=f"define a function that calls it, because {DURABLE}",
        )
    if "<lambda>" in name:
        raise UsageError(
            f"a lambda{where} cannot be a step",
            hint=f"write it as a function at the top level of a module, because {DURABLE}",
        )
    if "<locals>" in name:
        outer, _, inner = name.replace(".<locals>", "").rpartition(".")
        raise UsageError(
            f"'{inner}'{where} is defined inside '{outer}'",
            hint=f"move it to the top level of its module, because {DURABLE}",
        )
    if "." in name:
        raise UsageError(
            f"'{name}'{where} is a method",
            hint=f"define a function that calls it, because {DURABLE}",
        )
    return f"{module_name(module)}:{name}"


def module_name(module: str) -> str:
    """Return the name under which a module is imported.

    Args:
        module: As in `__name__`. `__main__` is the running program.

    Returns:
        The name. For a program in a file, it is that of the file. `__main__` remains if no other
        process can import the program. Where one has to, `check_importable` refuses it.
    """
    return public_name(module) if module != MAIN else name_of_program() or MAIN


def folder_of(module: str, file: str) -> str:
    """Return the directory from which a module is imported by its full name.

    Args:
        module: As in `__name__`.
        file: The module's file.

    Returns:
        For `shop.flows` the directory that contains `shop`. For code without a file, the current
        directory.
    """
    if not os.path.exists(file):
        return os.getcwd()
    spec = sys.modules["__main__"].__spec__ if module == "__main__" else None
    name = (
        "" if module == "__main__" and spec is None else public_name(spec.name if spec else module)
    )
    folder = os.path.dirname(os.path.abspath(file))
    levels = name.count(".") + (os.path.basename(file) == "__init__.py")
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder


# Fields of the classes that declare inputs or state: dataclasses, TypedDicts, models.


def fields_of(cls: Any) -> dict[str, tuple[Schema, Any]]:
    """Return the fields of a dataclass, a TypedDict or a pydantic model, for inputs or state.

    Args:
        cls: The class.

    Returns:
        Name → its schema, and its default or `ABSENT`.

    Raises:
        UsageError: The class is of another type.
    """
    whole = schema_of(cls)
    shared = whole.get("$defs", {})
    whole = shared.get(str(whole.get("$ref", "")).removeprefix("#/$defs/"), whole)
    if whole.get("type") != "object" or "properties" not in whole:
        raise UsageError(
            f"{cls!r} has no fields", hint="give a dataclass, a TypedDict or a pydantic model"
        )
    types: dict[str, tuple[Schema, Any]] = {}
    for name, field in whole["properties"].items():
        default = field.get("default", ABSENT)
        schema = {key: value for key, value in field.items() if key != "default"}
        definitions = needed(schema, shared)
        optional = name not in whole.get("required", []) and default is ABSENT
        types[name] = (
            {**schema, **({"$defs": definitions} if definitions else {})},
            _computed(cls, name) if optional else default,
        )
    return types


def _computed(cls: Any, name: str) -> Any:
    """Return the default of a field with a factory. For an optional key it is null."""
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.name == name and field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
    info = getattr(cls, "model_fields", {}).get(name)
    return None if info is None or info.default_factory is None else info.default_factory()


# Conversion of Python values to the data of a flow file: text, numbers, lists and maps.

_HINT = "give text, numbers, true and false, lists, maps, or expressions"


def plain(value: Any, named: Callable[[Any], str | None], what: str, *, typed: bool = False) -> Any:
    """Return a value in the form of a flow file.

    Args:
        value: Data that may contain expressions, steps, functions, types and durations anywhere.
        named: Returns the name of an object of the flow, such as a step or a tool, or None.
        what: Description of the value for messages: `'with' of step 'pay'`.
        typed: Whether it is for a function, whose hints restore durations and the keys of maps.

    Returns:
        Plain data.

    Raises:
        UsageError: A part of the value cannot be part of a flow.
    """
    if isinstance(value, Expr):
        return str(value)
    if value is None or isinstance(value, int | float | str):
        is_plain = value is None or type(value) in {bool, int, float, str}
        return value if is_plain else _kept(value, what)  # such as a member of an enumeration
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None and not typed:
            raise UsageError(f"{what}: the key {wrong!r} is not text")
        keys = list(value if wrong is None else _kept(dict.fromkeys(value), what))
        entries = zip(keys, value.values(), strict=True)
        return {key: plain(entry, named, what, typed=typed) for key, entry in entries}
    if isinstance(value, list | tuple):
        return [plain(item, named, what, typed=typed) for item in value]
    if isinstance(value, timedelta) and not typed:
        return format_duration(value // timedelta(milliseconds=1))
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UsageError(
                f"{what}: {value} has no time zone", hint="pass for example tzinfo=UTC"
            )
        return value.isoformat().replace("+00:00", "Z")
    name = named(value)
    if name is not None:
        return name
    if isinstance(value, type) or get_origin(value) is not None:
        return schema_of(value)
    if callable(value):
        return reference(value)
    if typed:
        return _kept(value, what)
    raise UsageError(f"{what}: {value!r} cannot be part of a flow", hint=_HINT)


def _kept(value: Any, what: str) -> Any:
    """Return a value without expressions in its plain form, with bytes as base64."""
    try:
        return json.loads(json.dumps(to_plain(value, number_keys=True), default=as_text))
    except ValidationError as error:
        raise UsageError(
            f"{what}: {value!r} cannot be part of a flow: {error.message}",
            hint=_HINT,
        ) from None

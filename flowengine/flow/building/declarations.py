"""Declarations at the top of a flow: inputs, outputs, state, secrets, signals, tools and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from flowengine.flow.building.expressions import Expr
from flowengine.flow.building.origins import DeclarationSite, here
from flowengine.flow.building.references import reference
from flowengine.flow.building.schemas import ABSENT, fields_of, schema_of
from flowengine.flow.building.step_keywords import Spec, Text
from flowengine.registry import has_kind, kind_class

_Function = TypeVar("_Function", bound=Callable[..., Any])
Declared = Mapping[str, Any] | type | None
"""Names with their types or JSON Schemas, or a class with annotated fields."""

OWN = frozenset({"inputs", "outputs", "state"})
"""The sections that a subflow declares itself. All others belong to the top of the file."""


class FlowDeclarations:
    """The top of a flow.

    Args:
        head: Declarations that it starts with.
    """

    def __init__(self, head: dict[str, Any]) -> None:
        self.head = head
        self.folder = ""
        """The sections at the top, except the steps."""
        self.places: dict[tuple[str | int, ...], DeclarationSite] = {}
        """The places of single declarations."""
        self._tools: dict[Any, str] = {}

        self.root: FlowDeclarations = self
        """The flow that contains this one if it is a subflow, else itself."""

    def changed(self) -> None:
        """Discard cached results after a change to the flow."""

    def input(self, name: str, type: Any = Any, *, default: Any = ABSENT, **schema: Any) -> Expr:
        """Declare an input.

        Args:
            name: Its name.
            type: A type, or a JSON Schema as a dict.
            default: Its default value. Without one the input is required.
            **schema: Further keywords of its JSON Schema: `exclusiveMinimum=0`.

        Returns:
            The input for use in expressions.
        """
        self._declare_value("inputs", name, schema_of(type) | schema, default)
        return Expr(f"inputs.{name}")

    def state(
        self,
        name: str,
        type: Any = Any,
        *,
        default: Any = ABSENT,
        reducer: str | Callable[..., Any] | None = None,
        **schema: Any,
    ) -> Expr:
        """Declare a value that steps write with `set`.

        Args:
            name: Its name.
            type: A type, or a JSON Schema as a dict.
            default: Its initial value.
            reducer: How a write combines with the old value: `append`, `add`, …, or a function of
                the old and the new value. Default: replace it.
            **schema: Further keywords of its JSON Schema.

        Returns:
            The value for use in expressions.
        """
        self._declare_value("state", name, schema_of(type) | schema, default)
        if reducer is not None:
            named = {"python": reference(reducer)} if callable(reducer) else reducer
            self.head["state"][name]["reducer"] = named
        return Expr(f"state.{name}")

    def output(self, name: str, value: Any, type: Any = None) -> None:
        """Declare a result of the flow.

        Args:
            name: Its name.
            value: An expression, or data with expressions.
            type: A type or JSON Schema that it is validated against.
        """
        spec = value if type is None else {"value": value, **schema_of(type)}
        self.declare("outputs", name, {"value": value} if isinstance(spec, Mapping) else spec)
        if type is not None:
            self.head["outputs"][name] = spec

    def secret(self, name: str, **source: str) -> Expr:
        """Declare a secret.

        Args:
            name: Its name.
            **source: The source of its value: `env="TOKEN"` or `file="/run/token"`.

        Returns:
            The secret for use in expressions.
        """
        self.declare("secrets", name, source)
        return Expr(f"secrets.{name}")

    def signal(self, name: str, data: Any = None, *, key: Text | None = None) -> str:
        """Declare a message that steps wait for.

        Args:
            name: Its name.
            data: The type or JSON Schema of the message.
            key: The key that selects this execution.

        Returns:
            The name.
        """
        spec = {} if key is None else {"key": key}
        self.declare("signals", name, spec if data is None else {**spec, "data": schema_of(data)})
        return name

    @overload
    def tool(self, what: _Function, /, **spec: Any) -> _Function: ...
    @overload
    def tool(self, what: str, /, **spec: Any) -> str: ...
    @overload
    def tool(self, /, **spec: Any) -> Callable[[_Function], _Function]: ...
    def tool(self, what: Any = None, /, **spec: Any) -> Any:
        """Declare a tool that steps can call. Can also be used as a decorator.

        Args:
            what: A function, which supplies the name of the tool, or a name for the declaration in
                `spec`.
            **spec: As in a flow file: `http={...}`, `effect="idempotent"`, `bind={...}`.

        Returns:
            The argument: the function itself, or the name.
        """
        if what is None:
            return lambda function: self.tool(function, **spec)
        if isinstance(what, str):
            self.declare("tools", what, spec)
            return what
        name = what.__name__
        self.declare("tools", name, {"python": reference(what), **spec})
        self.root._tools[what] = name
        return what

    def declare(self, section: str, name: str, spec: Any) -> str:
        """Add a declaration to a section of a flow file, such as `agents` or `environments`.

        Args:
            section: The section.
            name: The name of the declaration.
            spec: The declaration.

        Returns:
            The name.
        """
        owner = self if section in OWN else self.root
        if section == "tools" and isinstance(spec, Mapping):
            spec = self.in_words_of_files(spec)
        owner.head.setdefault(section, {})[name] = spec
        owner.places[section, name] = here()
        self.changed()
        return name

    def in_words_of_files(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the spec of a tool or step with objects of step kinds replaced by their names.

        Args:
            spec: As written in a program.
        """
        kinds = {key for key, value in spec.items() if not _is_plain(value) and has_kind(key)}
        return {
            key: kind_class(key).declared(value, self.root) if key in kinds else value
            for key, value in spec.items()
        }

    def reference(self, function: Any) -> str:
        """Return the name of a function: `module:function`.

        Args:
            function: A function at the top level of a module.

        Raises:
            UsageError: Another process could not find it.
        """
        return reference(function)

    def _declare_value(self, section: str, name: str, schema: Spec, default: Any) -> None:
        self.declare(
            section, name, {**schema, **({} if default is ABSENT else {"default": default})}
        )

    def declare_fields(self, section: str, declared: Declared) -> None:
        """Declare inputs or state from a map of types or from a class.

        Args:
            section: `inputs` or `state`.
            declared: Name → type or JSON Schema, or a dataclass, TypedDict or pydantic model.
        """
        for name, (schema, default) in _fields(declared).items():
            self._declare_value(section, name, schema, default)

    def tool_name(self, function: Any) -> str | None:
        """Return the name of the tool that a function was declared as, or None."""
        try:
            return self.root._tools.get(function)
        except TypeError:  # not hashable, so it is not a function
            return None


def _is_plain(value: Any) -> bool:
    """Return whether a value is plain data, except for functions and expressions in it."""
    if isinstance(value, Mapping):
        return _is_plain(value.get("name"))
    return value is None or isinstance(value, str | int | float | list) or callable(value)


def _fields(declared: Declared) -> dict[str, tuple[dict[str, Any], Any]]:
    """Return declared names with their schemas and defaults."""
    if declared is None:
        return {}
    if isinstance(declared, Mapping):
        return {name: (schema_of(type), ABSENT) for name, type in declared.items()}
    return fields_of(declared)

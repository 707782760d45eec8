"""The graph of a flow built in Python: its steps, in the order of their declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any, Self, TypeVar, Unpack, overload

from flowengine import flow as language
from flowengine.errors import UsageError
from flowengine.flow.building.expressions import Expr
from flowengine.flow.building.origins import DeclarationSite, InCode, here
from flowengine.flow.building.serialization import fields_of, folder_of, reference
from flowengine.flow.building.steps import (
    BranchOpening,
    Chain,
    FlowHandle,
    Modifiers,
    Scope,
    Spec,
    Step,
    Target,
    Text,
    Words,
)
from flowengine.flow.source.diagnostics import Diagnostic
from flowengine.registry import has_kind, kind_class
from flowengine.sdk.python.argument_checks import check_kind, check_kinds
from flowengine.sdk.python.live_types import schema_of
from flowengine.sdk.python.schema_forms import ABSENT

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
        signal: str | None = None,
        **schema: Any,
    ) -> Expr:
        """Declare a value that steps write with `set`.

        Args:
            name: Its name.
            type: A type, or a JSON Schema as a dict.
            default: Its initial value.
            reducer: How a write combines with the old value: `append`, `add`, …, or a function of
                the old and the new value. Default: replace it.
            signal: The signal whose messages are written to it as well.
            **schema: Further keywords of its JSON Schema.

        Returns:
            The value for use in expressions.
        """
        self._declare_value("state", name, schema_of(type) | schema, default)
        if reducer is not None:
            named = {"python": reference(reducer)} if callable(reducer) else reducer
            self.head["state"][name]["reducer"] = named
        if signal is not None:
            self.head["state"][name]["signal"] = signal
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
            **spec: As in a flow file: `http={...}`, `effect="idempotent"`, `with_={...}`.

        Returns:
            The argument: the function itself, or the name.
        """
        if what is None:
            return lambda function: self.tool(function, **spec)
        keys = {word.rstrip("_"): value for word, value in spec.items()}
        if isinstance(what, str):
            self.declare("tools", what, keys)
            return what
        name = what.__name__
        self.declare("tools", name, {"python": reference(what), **keys})
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


_Step = TypeVar("_Step", bound=Step)


class FlowGraph(FlowDeclarations, FlowHandle):
    """Steps and declarations of a flow, which `Flow` compiles and writes out."""

    def __init__(
        self,
        id: str,
        *,
        inputs: Declared = None,
        state: Declared = None,
        folder: str | PathLike[str] | None = None,
        **more: Any,
    ) -> None:
        check_kind("id", id, str)
        check_kinds(PathLike, folder=folder)
        place = here()
        super().__init__({"id": id, **more})
        self.place: DeclarationSite = place
        self.folder = fspath(folder) if folder else folder_of(_module_at(place), place.file)
        """The directory that is searched first for the modules of its functions. A YAML file of the
        flow belongs there."""
        self.steps: list[Step] = []
        self.cleanup: list[Step] = []
        """The steps of its `finally`."""
        self.subflows: dict[str, Self] = {}
        """The subflows that are declared in it."""
        self.starts: list[Step] = []
        """The first steps, if `to` sets them."""
        self.problems: list[Diagnostic] = []
        """Errors in the file that it was read from."""
        self._open = [self.steps]
        self._compiled: language.compile.Compiled | None = None
        self.loaded: Any = None
        """The form in which the engine runs it, until it is changed."""
        self.declare_fields("inputs", inputs)
        self.declare_fields("state", state)

    @property
    def id(self) -> str:
        """The flow's name."""
        return str(self.head.get("id"))

    def __repr__(self) -> str:
        return f"<flow {self.id}>"

    # Steps

    def __getitem__(self, id: str) -> Step:
        """Return a step by its id: `flow["fetch"].output`."""
        for step in self.every():
            if step.id == id:
                return step
        raise KeyError(f"flow {self.id!r} has no step {id!r}")

    @overload
    def step(
        self, what: str | Callable[..., Any], /, *, id: str | None = None, **words: Unpack[Words]
    ) -> Step: ...
    @overload
    def step(
        self, /, *, id: str | None = None, **words: Unpack[Words]
    ) -> Callable[[Callable[..., Any]], Step]: ...
    def step(self, what: Any = None, /, *, id: str | None = None, **words: Any) -> Any:
        """Declare a step. With a function, the step calls it. Can also be used as a decorator.

            fetch = flow.step(shop.fetch, retry=3)
            pause = flow.step("pause", wait=timedelta(days=3))

            @flow.step(with_={"text": fetch.output})
            def parse(text: str) -> list[str]: ...

        Parameters of the function that `with_` does not contain are bound by name: to the item of a
        `map`, then to inputs, state, or outputs of steps.

        Args:
            what: A function, or the id of a step with another action or none.
            id: The id of a step with a function. Default: the function's name.
            **words: Its action and modifiers, as in a flow file.

        Returns:
            The step.

        Raises:
            UsageError: Another process could not find the function.
        """
        if what is None:
            return lambda function: self._step(function, id, words)
        return self._step(what, id, words)

    def _step(self, what: Any, id: str | None, words: dict[str, Any]) -> Step:
        place = here()
        if isinstance(what, str):
            given = words.get("python")
            function = given if callable(given) else None
            spec = self.in_words_of_files(_spec(what, words))
            return self._add(
                Step(self, what, spec, place, getattr(function, "function", None) or function)
            )
        if isinstance(what, Chain):
            raise UsageError(f"{what!r} is already a step", hint="lead to it with 'to'")
        name = id or str(getattr(what, "__name__", ""))
        words = {"python": what, **getattr(what, "__flowengine_step__", {}), **words}
        reference(what)
        return self._add(Step(self, name, _spec(name, words), place, what))

    def group(self, id: str, /, **words: Unpack[Modifiers]) -> Scope:
        """Declare a group that contains the steps declared in its `with` block.

            with flow.group("buy", on_error="compensate") as buy:
                ...

        Args:
            id: Its name.
            **words: Modifiers, as in a flow file.

        Returns:
            The group.
        """
        return self._scope("group", id, words)

    def parallel(self, id: str, /, **words: Unpack[Modifiers]) -> Scope:
        """Declare steps that all start at once: those of its `with` block.

        Args:
            id: Its name.
            **words: Modifiers, as in a flow file.

        Returns:
            The step, whose output is a map by the ids of its steps.
        """
        return self._scope("parallel", id, words)

    @contextmanager
    def finally_(self) -> Iterator[None]:
        """Declare, in a `with` block, the steps that run when the flow ends, for every outcome."""
        with self.block(self.cleanup):
            yield

    def to(self, *targets: Target) -> Chain:
        """Set the first step, or several that start at the same time.

        Args:
            *targets: Steps, or functions that become steps.

        Returns:
            The beginning, to continue from: `flow.to(fetch).to(parse).end()`.

        Raises:
            UsageError: A target is not a step.
        """
        chains = [self.target(target) for target in targets]
        made = [chain for chain in chains if isinstance(chain, Chain)]
        if len(made) < len(chains) or not chains:
            raise UsageError("a flow starts with steps: give functions, or what step() returned")
        self.starts += [chain.entry for chain in made]
        self.changed()
        return Chain(self, made[0].entry, [end for chain in made for end in chain._ends])

    def when(self, signal: str | Sequence[str] | None = None, **trigger: Any) -> BranchOpening:
        """Begin a branch that a signal starts while the flow runs.

        Args:
            signal: Its name, or several names.
            **trigger: Further keys of a `trigger`: `match=…`, or in place of a signal `all=[…]`,
                `state="score"`.

        Returns:
            The beginning: `flow.when("page").to(store)`. If a second one leads to the same step, a
            message of either signal starts it.
        """
        spec: dict[str, Any] = ({} if signal is None else {"signal": signal}) | trigger
        return BranchOpening(self, spec)

    def target(self, target: Target) -> Chain | str:
        """Return the step or id of a target, declaring a step for a function that has none yet.

        Args:
            target: A step, a piece of a chain, a function, or an id.

        Returns:
            The piece of the graph. An id is returned unchanged unless its step is declared already.

        Raises:
            UsageError: The target belongs to another flow, or has another type.
        """
        if isinstance(target, Chain):
            if target._flow is not self:
                raise UsageError(f"{target!r} is a step of another flow")
            return target
        if isinstance(target, str):
            return next((step for step in self.every() if step.id == target), target)
        if callable(target):
            step = next((step for step in self.every() if step.function is target), None)
            return step or self.step(target)
        raise UsageError(f"{target!r} is not a target", hint="give a step, a function or an id")

    def every(self) -> Iterator[Step]:
        """Yield all steps, those inside groups after their group."""
        pending = [*self.steps, *self.cleanup]
        while pending:
            step = pending.pop(0)
            yield step
            pending = [inner for block in step.blocks.values() for inner in block] + pending

    def _scope(self, kind: str, id: str, words: Any) -> Scope:
        scope = Scope(self, id, _spec(id, words), here())
        scope.blocks[kind] = []
        return self._add(scope)

    def _add(self, step: _Step) -> _Step:
        self._open[-1].append(step)
        self.changed()
        return step

    # Scopes

    def enter(self, steps: list[Step]) -> None:
        """Add the steps that are declared from here on to a scope."""
        self._open.append(steps)

    def leave(self) -> None:
        """End the scope that `enter` began."""
        self._open.pop()

    @contextmanager
    def block(self, steps: list[Step]) -> Iterator[None]:
        """Add the steps declared in a `with` block to a scope."""
        self.enter(steps)
        try:
            yield
        finally:
            self.leave()

    def changed(self) -> None:
        """Discard cached results after a change to the flow."""
        self._compiled = self.loaded = None
        if self.root is not self:
            self.root.changed()


def _spec(id: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a step by their keys in a flow file."""
    spec: dict[str, Any] = {"id": id}
    for word, value in words.items():
        if word == "action":
            spec |= value
        else:
            spec[word.rstrip("_")] = value
    return spec


def _module_at(place: InCode) -> str:
    """Return the name of the module that contains a call."""
    import sys

    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code is not place.code:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "__main__"))

"""Conversion of a built flow to the data of a flow file, with the place of each part in Python."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Mapping
from typing import Any

from flowengine.errors import UsageError
from flowengine.flow.building.graph import FlowDeclarations, FlowGraph
from flowengine.flow.building.origins import DeclarationSite, shown
from flowengine.flow.building.serialization import plain
from flowengine.flow.building.steps import Chain, Step
from flowengine.flow.source.diagnostics import (
    Diagnostic,
    Loc,
    MovedSource,
    Position,
    SourceLines,
)
from flowengine.util.plain_data import with_leaves

TARGETS = frozenset({"next", "on_error", "cancel", "join"})
"""Keys of a step in which steps are named."""
OWN = frozenset({"next", "set", "emit", "loop", "compensate"})
"""Keys that see the result of the step itself as `output` and `outcome`, not by its id."""
ASIDE = ("runtime_resources",)
"""Parameters that the engine fills."""


class Built:
    """A built flow in the form for the checker: an `Origin`.

    Args:
        flow: The flow.
    """

    def __init__(self, flow: FlowGraph) -> None:
        self.flow = flow
        self.problems: list[Diagnostic] = list(flow.problems)
        self.places: dict[Loc, DeclarationSite] = {(): flow.place, **flow.places}
        self._ids = frozenset(step.id for step in flow.every())
        flow = self.flow
        data: dict[str, Any] = {} if isinstance(flow.place, MovedSource) else {"flowengine": 1}
        for key, value in flow.head.items():
            data[key] = plain(value, self._tool, f"{key!r} of flow {flow.id!r}")
        for name, inner in flow.subflows.items():
            data.setdefault("flows", {})[name] = self._subflow(name, inner)
        if flow.steps:
            data["steps"] = self._block(flow.steps, ("steps",), ())
            self._order(data["steps"])
        if flow.cleanup:
            data["finally"] = self._block(flow.cleanup, ("finally",), ())
        self.data = data

    readable = True

    @property
    def files(self) -> dict[str, SourceLines]:
        """The files that contain its declarations."""
        lines: dict[str, SourceLines] = {}
        for place in self.places.values():
            if isinstance(place, MovedSource):
                lines |= place.source.files
            else:
                file = getattr(place, "file", "")
                lines[shown(file)] = _Code(file)
        return lines

    def position(self, loc: Loc, *, key: bool = False) -> Position:
        """Return the place of a declaration."""
        place, path = self._place(loc)
        return place.position(path, key=key)

    def inside(self, loc: Loc, offset: int, length: int = 1) -> Position:
        """Return the place of a character in a text."""
        place, path = self._place(loc)
        return place.inside(path, offset, length)

    def _place(self, loc: Loc) -> tuple[DeclarationSite, Loc]:
        known = next(loc[:size] for size in range(len(loc), -1, -1) if loc[:size] in self.places)
        place = self.places[known]
        named = len(known) > 1 and isinstance(known[-1], str) and isinstance(known[-2], int)
        if isinstance(place, MovedSource) or named:
            return place, loc[len(known) - named :]
        return place, loc[len(known) :]

    def _subflow(self, name: str, flow: FlowGraph) -> dict[str, Any]:
        built = Built(flow)
        self.problems += built.problems
        self.places |= {("flows", name, *loc): place for loc, place in built.places.items()}
        return {key: value for key, value in built.data.items() if key not in {"flowengine", "id"}}

    def _block(self, steps: list[Step], loc: Loc, items: tuple[str, ...]) -> list[Any]:
        return [self._step(step, (*loc, index), items) for index, step in enumerate(steps)]

    def _step(self, step: Step, loc: Loc, items: tuple[str, ...]) -> dict[str, Any]:
        self.places[loc] = step.place
        for key, place in step.places.items():
            self.places[(*loc, key)] = place
        data: dict[str, Any] = {}
        for key, value in step.spec.items():
            if value is None and key != "output" and not isinstance(step.place, MovedSource):
                continue  # an omitted argument
            what = f"{key!r} of step {step.id!r}"
            named = self._named if key in TARGETS else self._tool
            data[key] = plain(value, named, what, typed=key == "with")
            if key in OWN and not isinstance(step.place, MovedSource):
                data[key] = _own(data[key], step.id)
        ways = data.get("next")
        if isinstance(ways, list) and not isinstance(step.place, MovedSource):
            data["next"] = ways[0] if len(ways) == 1 else {"all": ways}
        items = (*items, *_item(data))
        if step.function is not None:
            self._bind(step, data, items)
        for key, block in step.blocks.items():
            data[key] = self._block(block, (*loc, key), items)
        return data

    def _tool(self, value: Any) -> str | None:
        """Return the name of a tool or a flow. A step is refused, because it is not a value."""
        if isinstance(value, FlowDeclarations):
            if value.root is not self.flow.root:
                raise UsageError(
                    f"{value!r} is not part of {self.flow.root!r}",
                    hint="declare it with flow.subflow(id), or import its file",
                )
            return str(value.head["id"])
        if isinstance(value, Chain):
            name = value.last.id
            raise UsageError(
                f"{value.last!r} is given where data is expected",
                hint=f"write {name}.output for its result",
            )
        return self.flow.tool_name(value)

    def _named(self, value: Any) -> str | None:
        if isinstance(value, Chain):
            return value.entry.id
        known = next((step for step in self.flow.every() if step.function is value), None)
        return self.flow.tool_name(value) if known is None else known.id

    def _bind(self, step: Step, data: dict[str, Any], items: tuple[str, ...]) -> None:
        """Bind unbound parameters to the names in scope that they match."""
        given = data.get("with", {})
        if not isinstance(given, Mapping):
            return
        bound: dict[str, Any] = {}
        for name in _parameters(step.function):
            if name not in given:
                call = self._called(name, step, items)
                if len(call) > 1:
                    place = step.place.position(("with", name))
                    message = f"the parameter {name!r} of step {step.id!r} is {' and '.join(call)}"
                    hint = f"pass with_={{{name!r}: ...}} to choose one"
                    self.problems.append(Diagnostic("E402", message, place.file, *place[:3], hint))
                if call:
                    bound[name] = f"${{{{ {call[0]} }}}}"
        if bound:
            data["with"] = {**bound, **given}

    def _called(self, name: str, step: Step, items: tuple[str, ...]) -> list[str]:
        if name in items:
            return [name]
        inputs, state = self.flow.head.get("inputs", {}), self.flow.head.get("state", {})
        places = [f"inputs.{name}"] if name in inputs else []
        places += [f"state.{name}"] if name in state else []
        is_step = name in self._ids and name != step.id
        return places + ([f"steps.{name}.output"] if is_step else [])

    def _order(self, steps: list[Any]) -> None:
        """Put the first step of the flow first, and keep the steps declared in a row together."""
        starts = [step.id for step in self.flow.starts]
        alone = {step["id"] for step in steps if "trigger" in step} | set(starts)
        if isinstance(self.flow.place, MovedSource) or not alone:
            return
        ways: dict[int, str] = {}
        for index, (step, follower) in enumerate(zip(steps, [*steps[1:], None], strict=True)):
            into = None if follower is None or follower["id"] in alone else follower["id"]
            if _needs_next(step) and into is None and follower is not None:
                ways[index] = "end"
        if (starts and steps[0]["id"] not in starts[:1]) or len(starts) > 1:
            self._begin(steps, starts, ways)
        for index, target in ways.items():
            steps[index]["next"] = target

    def _begin(self, steps: list[Any], starts: list[str], ways: dict[int, str]) -> None:
        """Insert a step in front that leads to the beginnings of the flow."""
        if len(steps) not in ways and _needs_next(steps[-1]):
            ways[len(steps) - 1] = "end"
        taken = {step["id"] for step in steps} | self._ids
        name = next(
            name for name in ("begin", *(f"begin_{n}" for n in range(2, 99))) if name not in taken
        )
        way: Any = starts[0] if len(starts) == 1 else {"all": starts}
        moved = {
            key: place
            for key, place in self.places.items()
            if key[:1] == ("steps",) and len(key) > 1
        }
        for key in moved:
            del self.places[key]
        for key, place in moved.items():
            self.places["steps", int(key[1]) + 1, *key[2:]] = place
        self.places["steps", 0] = self.flow.starts[0].place
        steps.insert(0, {"id": name, "next": way})
        for index in sorted(ways, reverse=True):
            ways[index + 1] = ways.pop(index)


class _Code:
    """A Python file in the form that a report shows."""

    def __init__(self, file: str) -> None:
        self.file = file

    def line_text(self, number: int) -> str:
        return linecache.getline(self.file, number).rstrip("\n")


def assemble(flow: FlowGraph) -> Built:
    """Return the data of a flow, for the loader.

    Args:
        flow: The flow.

    Returns:
        Its data, and the places of all declarations.
    """
    return Built(flow)


def _own(value: Any, id: str) -> Any:
    """Replace a step's own output by the name under which the step sees it."""
    itself = re.compile(rf"{LITERAL}|(?<![\w.])steps\.{re.escape(id)}\.(output|outcome)\b")

    def seen(leaf: Any) -> Any:
        if not isinstance(leaf, str) or f"steps.{id}.out" not in leaf:
            return leaf
        return EXPRESSION.sub(lambda one: itself.sub(lambda two: two[1] or two[0], one[0]), leaf)

    return with_leaves(value, seen)


LITERAL = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
"""A text inside an expression."""
EXPRESSION = re.compile(r"\$\{\{.*?\}\}", re.DOTALL)


def _item(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the name of the item inside a step, if it has a map."""
    given = data.get("map")
    if given is None:
        return ()
    return (str(given.get("as", "item")) if isinstance(given, Mapping) else "item",)


def _needs_next(data: Mapping[str, Any]) -> bool:
    """Return whether a token may leave a step without declared targets."""
    cancel, handlers = data.get("cancel"), data.get("on_error")
    targets = cancel.get("steps") if isinstance(cancel, Mapping) else cancel
    may_go_on = "when" in data or handlers == "continue"
    if isinstance(handlers, list):
        may_go_on = may_go_on or any("output" in one for one in handlers)
    return "next" not in data and (may_go_on or ("fail" not in data and targets != "execution"))


def _parameters(function: Any) -> list[str]:
    """Return the names of the parameters that a flow passes."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
        and parameter.name not in ASIDE
        and not _is_context(parameter.annotation)
    ]


def _is_context(annotation: Any) -> bool:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.rpartition(".")[2] == "StepContext"

"""State in an environment that is lost while an execution waits (W416).

Names defined in a Python sandbox, or the directory and variables of a shell, end with its process.
With `on_wait: release`, that happens when the execution waits. Files are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from flowengine.flow.check import net as nets
from flowengine.flow.check.net import Step
from flowengine.kernel.graph.compiled import Value
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec


class Finding(NamedTuple):
    """An error or warning about a step. The caller knows the step's place."""

    code: str
    step: Step
    message: str
    hint: str | None = None
    where: tuple[str | int, ...] = ("id",)
    """Path from the step to the relevant part. The finding is about the key of its last part,
    except for `id`."""
    related: tuple[tuple[Step, str], ...] = ()
    """Other steps involved."""


WAITING = frozenset({"approval", "ask", "wait"})


class _Use(NamedTuple):
    """An environment that is released while the execution waits."""

    key: str
    scope: str


def check_released(flow: CompiledFlow, is_live: Callable[[str], bool]) -> Iterator[Finding]:
    """Yield the steps that continue in an environment which was released before.

    Args:
        is_live: Returns whether environments of a kind hold state outside of files.

    Yields:
        One warning for each environment of a scope.
    """
    used = {
        step: {use for value in _environments(spec) for use in _released(value, is_live)}
        for step, spec in enumerate(flow["steps"])
    }
    if not any(used.values()):
        return
    for body in flow["bodies"]:
        inside = {step: [step, *_within(flow, step)] for step in body["steps"]}
        uses = {step: set().union(*(used[s] for s in all_)) for step, all_ in inside.items()}
        waits = [
            step
            for step, all_ in inside.items()
            if any(flow["steps"][s].get("kind") in WAITING for s in all_)
        ]
        yield from _lost(flow, uses, waits)


def _lost(
    flow: CompiledFlow, uses: Mapping[Step, set[_Use]], waits: list[Step]
) -> Iterator[Finding]:
    reported: set[_Use] = set()
    after = {step: _after(flow, step) for step in {*waits, *(s for s, u in uses.items() if u)}}
    for waiting in waits:
        behind = [some for step, some in uses.items() if some and waiting in after[step]]
        before = set[_Use]().union(*behind)
        for step in sorted(after[waiting]):
            for use in sorted(uses.get(step, set()) & before - reported):
                reported.add(use)
                wait = flow["steps"][waiting]["id"]
                message = (
                    f"{use.key!r} is released while {wait!r} waits (on_wait: release). "
                    "Here its variables, names and directory are those of a new one, but "
                    "files are kept"
                )
                hint = "use 'on_wait: keep', set it up again here, or keep its state in files"
                yield Finding("W416", step, message, hint, ("id",))


def _after(flow: CompiledFlow, step: Step) -> set[Step]:
    """Return the steps that a token can reach from a step."""
    seen: set[Step] = set()
    pending = [step]
    while pending:
        for target in nets.targets(flow["steps"][pending.pop()]):
            if target >= 0 and target not in seen:
                seen.add(target)
                pending.append(target)
    return seen


def _within(flow: CompiledFlow, step: Step) -> Iterator[Step]:
    """Return the steps inside a group, at any depth."""
    spec = flow["steps"][step]
    if spec.get("action") == "flow" or spec.get("child", -1) < 0:
        return
    for inner in flow["bodies"][spec["child"]]["steps"]:
        yield inner
        yield from _within(flow, inner)


def _environments(spec: StepSpec) -> Iterator[Value]:
    """Yield the requests of a step to the manager of environments."""
    given: Any = spec.get("input")
    if spec.get("environments") and given[0] == "map":
        uses = given[1]["environments"]
        yield from uses[1].values() if uses[0] == "map" else ()


def _released(value: Any, is_live: Callable[[str], bool]) -> Iterator[_Use]:
    """Yield an environment if its live state ends while the execution waits."""
    if value[0] == "with":
        value = value[1][1]
    scope, spec = value[1]["scope"][1], value[1]["spec"]
    known = {
        key: spec[1].get(key) if spec[0] == "const" else spec[1].get(key, [None, None])[1]
        for key in ("kind", "resource_key", "on_wait")
    }
    if scope != "step" and known["on_wait"] == "release" and is_live(str(known["kind"])):
        yield _Use(str(known["resource_key"]), str(scope))

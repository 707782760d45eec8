"""Steps that disturb each other: they replace the same state keys, or lock in another order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from flowengine.flow.check import net as nets
from flowengine.flow.check.net import Step
from flowengine.flow.check.released_environments import Finding
from flowengine.kernel.graph import linked as reachability
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec

# Steps that replace the same state keys, possibly at the same time (W306).

Where = tuple[Step, tuple[str | int, ...]]
"""The step that writes, and the path inside it."""


def replaced_by(flow: CompiledFlow, step: Step) -> dict[str, Where]:
    """Return the state keys that a step replaces itself.

    Args:
        step: Number of the step.

    Returns:
        Key → place of the write.
    """
    state = flow.get("state", {})
    spec = flow["steps"][step]
    writes: dict[str, Where] = {}
    places: list[tuple[tuple[str | int, ...], list[list[Any]]]] = [(("set",), spec.get("set", []))]
    places += [
        (("on_error", n, "set"), handler.get("set", []))
        for n, handler in enumerate(spec.get("on_error", []))
    ]
    for where, pairs in places:
        for key, _ in pairs:
            if state.get(key, {}).get("reducer", "replace") == "replace":
                writes.setdefault(key, (step, (*where, key)))
    return writes


def writers(flow: CompiledFlow, body: int) -> dict[Step, dict[str, Where]]:
    """Return the steps of a body that replace state keys, themselves or inside.

    Args:
        body: Number of the body.

    Returns:
        Step → key → place of the write.
    """
    writes: dict[Step, dict[str, Where]] = {}
    for step in flow["bodies"][body]["steps"]:
        keys: dict[str, Where] = {}
        pending = [step]
        while pending:
            one = pending.pop()
            for key, where in replaced_by(flow, one).items():
                keys.setdefault(key, where)
            child = flow["steps"][one].get("child")
            if child is not None:
                pending.extend(reversed(flow["bodies"][child]["steps"]))
        if keys:
            writes[step] = keys
    return writes


def check_items(flow: CompiledFlow) -> Iterator[Finding]:
    """Yield the state keys that several items of a map replace.

    Yields:
        A warning for each key and map.
    """
    reported: set[Where] = set()
    for number, spec in enumerate(flow["steps"]):
        if spec.get("body", -1) < 0 or not replaced_by(flow, number):
            continue
        mapped = [s for s in (number, *nets.enclosing(flow, number)) if _is_map(flow, s)]
        if not mapped:
            continue
        name = flow["steps"][mapped[0]]["id"]
        for key, where in replaced_by(flow, number).items():
            outside = mapped == [number] and where[1][0] == "on_error"
            if outside or where in reported:
                continue
            reported.add(where)
            message = f"every item of the map {name!r} replaces state.{key}: StateConflict"
            yield Finding("W306", number, message, "give it a reducer, such as append", where[1])


def _is_map(flow: CompiledFlow, step: Step) -> bool:
    """Return whether a step is a map whose items may be at work at the same time."""
    spec = flow["steps"][step]
    if "map" not in spec or ("lock" in spec and "shared" not in spec["lock"]):
        return False
    return spec["map"].get("concurrency") != ["const", 1] or _may_wait(flow, step)


def _may_wait(flow: CompiledFlow, step: Step) -> bool:
    """Return whether an item of a map may wait, so that the next one begins in between."""
    pending = [step]
    while pending:
        spec = flow["steps"][pending.pop()]
        waits = spec.get("action") in {"wait", "approval", "flow"}
        if waits or spec.get("asks") or "approval" in spec:
            return True
        child = spec.get("child")
        if child is not None:
            pending.extend(flow["bodies"][child]["steps"])
    return False


# Locks with constant keys: acquired in one order (E409), with one number of permits (E103).
#
# Locks with computed keys are checked when they are acquired: `LockCycle`.

Orders = dict[str, dict[str, tuple[Step, Step]]]
"""Key → key acquired inside it → the step that holds the first, and the one that acquires the
other."""


def check_locks(flow: CompiledFlow) -> Iterator[Finding]:
    """Yield locks that can wait for each other, and locks with different numbers of permits.

    Yields:
        Findings, in file order.
    """
    yield from _permits(flow)
    orders = _orders(flow)
    keys = list(orders)
    place = {key: number for number, key in enumerate(keys)}
    graph = [[place[inner] for inner in orders[key] if inner in place] for key in keys]
    for component in reachability.components(graph):
        if len(component) > 1:
            yield _circle(flow, orders, [keys[number] for number in component])


def locks_over(flow: CompiledFlow, step: Step) -> set[str]:
    """Return the constant keys of locks of one permit that are held while a step writes.

    Args:
        step: Number of the step.

    Returns:
        Keys.
    """
    specs = (flow["steps"][outer] for outer in (step, *nets.enclosing(flow, step)))
    alone = (spec for spec in specs if "lock" in spec and excludes(spec))
    return {key for spec in alone if (key := _key(flow, spec))}


def excludes(spec: StepSpec) -> bool:
    """Return whether the lock of a step is never held by another step at the same time."""
    return spec["lock"]["permits"] == 1 and "shared" not in spec["lock"]


def _key(flow: CompiledFlow, spec: StepSpec) -> str | None:
    """Return the key of a step's lock if it is constant, with its scope if that differs."""
    lock = spec.get("lock", {})
    tag, value = lock.get("key", ("", None))
    if tag != "const":
        return None
    scope: str = lock.get("scope", "execution")
    if scope == "run":
        number = flow["bodies"][spec["body"]].get("flow", 0)
        scope = f"run of {(flow['flows'][number - 1] if number else flow)['id']}"
    return str(value) if scope == "execution" else f"{value} ({scope})"


def _permits(flow: CompiledFlow) -> Iterator[Finding]:
    first: dict[str, Step] = {}
    for number, spec in enumerate(flow["steps"]):
        key = _key(flow, spec)
        if key is None:
            continue
        other = flow["steps"][first.setdefault(key, number)]
        if other["lock"]["permits"] != spec["lock"]["permits"]:
            message = (
                f"the lock {key!r} has {spec['lock']['permits']} permits here and "
                f"{other['lock']['permits']} at {other['id']!r}"
            )
            yield Finding("E103", number, message, "give both the same", ("lock",))


def _orders(flow: CompiledFlow) -> Orders:
    orders: Orders = {}
    entered = _held_at_entry(flow)
    for number, spec in enumerate(flow["steps"]):
        key = _key(flow, spec)
        held = _held(flow, number, entered)
        if key is None or key in held:
            continue  # an enclosing lock is acquired again inside, which never waits
        for outer, holder in held.items():
            orders.setdefault(outer, {}).setdefault(key, (holder, number))
    return orders


def _held(flow: CompiledFlow, step: Step, entered: list[dict[str, Step]]) -> dict[str, Step]:
    """Return the keys that are held around a step, each with its holder."""
    around = [(_key(flow, flow["steps"][outer]), outer) for outer in nets.enclosing(flow, step)]
    held = {key: one for key, one in around if key is not None}
    body = flow["steps"][step].get("body", -1)
    of = flow["bodies"][body].get("flow", 0) if body >= 0 else 0
    return {**entered[of], **held}


def _held_at_entry(flow: CompiledFlow) -> list[dict[str, Step]]:
    """Return, by flow, the keys that may be held around the steps that run it."""
    entered: list[dict[str, Step]] = [{} for _ in range(len(flow.get("flows", [])) + 1)]
    calls = [n for n, spec in enumerate(flow["steps"]) if spec.get("action") == "flow"]
    changed = True
    while changed:
        changed = False
        for step in calls:
            spec = flow["steps"][step]
            inside = entered[flow["bodies"][spec["child"]].get("flow", 0)]
            own = _key(flow, spec)
            held = {**_held(flow, step, entered), **({} if own is None else {own: step})}
            for key in held.keys() - inside.keys():
                inside[key] = held[key]
                changed = True
    return entered


def _circle(flow: CompiledFlow, orders: Orders, keys: list[str]) -> Finding:
    """Report locks that are acquired inside each other, with one cycle as an example."""
    way = [min(keys, key=lambda key: min(orders[key].values()))]
    while way[-1] not in way[:-1]:
        way.append(next(key for key in orders[way[-1]] if key in keys))
    way = way[way.index(way[-1]) :]
    taken = [orders[outer][inner] for outer, inner in pairwise(way)]
    name = [flow["steps"][inner]["id"] for _, inner in taken]
    described = [
        f"{step!r} takes {inner!r} inside {outer!r}"
        for step, outer, inner in zip(name, way, way[1:], strict=False)
    ]
    last = max(inner for _, inner in taken)
    message = f"these locks can wait for each other forever: {', '.join(described)}"
    related = tuple((inner, "takes the other") for _, inner in taken if inner != last)
    return Finding("E409", last, message, "take them in the same order", ("lock",), related)

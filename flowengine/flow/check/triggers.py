"""Executions that triggers keep open, or fail to keep open (docs/language.md: trigger)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flowengine.flow.check import net as nets
from flowengine.flow.check.net import Step
from flowengine.flow.check.released_environments import Finding
from flowengine.kernel.graph.specs import CompiledFlow


def check_triggers(flow: CompiledFlow) -> Iterator[Finding]:
    """Yield errors and doubtful settings in the triggers of a flow.

    Yields:
        Findings.
    """
    triggered = flow.get("triggered", [])
    if not triggered:
        return
    starts = flow["bodies"][0]["start"]
    if not starts and "idle" not in flow["limits"]:
        message = "every execution ends at once: it starts without a branch, and is not kept open"
        hint = "set how long it waits for messages: 'limits: {idle: 1h}'"
        yield Finding("W414", triggered[0], message, hint, ("trigger",))
    first = [*starts, *nets.restarted(flow, 0)]
    begun = _reached(flow, first)
    for step in flow["bodies"][0]["steps"]:
        spec = flow["steps"][step]
        if spec.get("join", {}).get("kind") != "all" or len(spec["sources"]) < 2:
            continue
        possible = _possible(flow, first, step)
        lacking = [s for s in spec["sources"] if s >= 0 and s not in begun]
        never = [s for s in lacking if s not in possible]
        key = spec.get("trigger", {}).get("state")
        if never or (key is not None and not _is_written(flow, key, possible)):
            yield _never_met(flow, step, never)
        elif key is not None and not _all_write(flow, spec["sources"], key):
            yield _may_wait(flow, step, f"a write to state {key!r}, which might never come")
        elif lacking:
            source = flow["steps"][lacking[0]]["id"]
            by_state = any("state" in flow["steps"][s]["trigger"] for s in flow["triggered"])
            brings = "a message or a write to state" if by_state else "a message"
            yield _may_wait(flow, step, f"one from {source!r}, which only {brings} can bring")


def _may_wait(flow: CompiledFlow, step: Step, what: str) -> Finding:
    name = flow["steps"][step]["id"]
    message = f"a branch at {name!r} waits for {what}: until then the execution stays open"
    hint = "limit it with limits.duration, or use 'join: active'"
    return Finding("W412", step, message, hint, ("join",))


def _never_met(flow: CompiledFlow, step: Step, never: list[Step]) -> Finding:
    """Return the finding that a join waits for a write to state that no step makes.

    Args:
        step: The join.
        never: The steps that no token can leave. If empty, the join's own trigger is the cause.
    """
    spec = flow["steps"][step]
    name = spec["id"]
    source = flow["steps"][never[0]] if never else spec
    key = source.get("trigger", {}).get("state")
    write = "a write to state" if key is None else f"a write to state {key!r}"
    brings = f"a branch from {source['id']!r}, which only {write} can bring" if never else write
    message = (
        f"'join: all' of {name!r} waits forever for {brings}: no step that can run before {name!r} "
        "writes it"
    )
    hint = "use 'join: active', or write it in a step before"
    return Finding("E207", step, message, hint, ("join",))


def _possible(flow: CompiledFlow, first: Sequence[Step], without: Step) -> set[Step]:
    """Return the steps at the top of a flow that may run even if one of them never does."""
    triggers = {step: flow["steps"][step]["trigger"] for step in flow["triggered"]}
    begun = [*first, *(step for step, trigger in triggers.items() if "state" not in trigger)]
    while True:
        reached = _reached(flow, [step for step in begun if step != without], without)
        more = [
            step
            for step, trigger in triggers.items()
            if step not in begun
            and "state" in trigger
            and _is_written(flow, trigger["state"], reached)
        ]
        if not more:
            return reached
        begun += more


def _is_written(flow: CompiledFlow, key: str, steps: set[Step]) -> bool:
    """Return whether some of these steps, or steps inside them, write a state key."""
    writers: list[Any] = [*flow.get("on_error", ())]
    pending = list(steps)
    while pending:
        spec = flow["steps"][pending.pop()]
        writers += [spec, *spec.get("on_error", ())]
        if spec.get("action") == "group":
            body = flow["bodies"][spec["child"]]
            pending += [*body["steps"], *([body["final"]] if "final" in body else ())]
        if "compensate" in spec:
            pending.append(spec["compensate"])
    return any(name == key for writer in writers for name, _ in writer.get("set", ()))


def _all_write(flow: CompiledFlow, sources: Sequence[Step], key: str) -> bool:
    """Return whether each step before a join certainly writes a state key."""
    written = ({name for name, _ in flow["steps"][s].get("set", ())} for s in sources if s >= 0)
    return all(key in names for names in written)


def _reached(flow: CompiledFlow, starts: Sequence[Step], without: Step = -1) -> set[Step]:
    """Return the steps that a token can reach from others without entering one of them."""
    seen = set(starts)
    pending = list(seen)
    while pending:
        for target in nets.targets(flow["steps"][pending.pop()]):
            if target >= 0 and target not in seen and target != without:
                seen.add(target)
                pending.append(target)
    return seen

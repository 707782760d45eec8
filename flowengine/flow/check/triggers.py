"""What triggers leave open, or fail to keep open (docs/language.md: trigger)."""

from __future__ import annotations

from collections.abc import Iterator

from flowengine.flow.check import net as nets
from flowengine.flow.check.findings import Finding
from flowengine.flow.check.net import Step
from flowengine.kernel.graph.specs import CompiledFlow


def check_triggers(flow: CompiledFlow) -> Iterator[Finding]:
    """Yield what is doubtful about the triggers of a flow.

    Yields:
        Warnings.
    """
    triggered = flow.get("triggered", [])
    if not triggered:
        return
    starts = flow["bodies"][0]["start"]
    if not starts and "idle" not in flow["limits"]:
        message = "every execution ends at once: it starts without a token, and is not kept open"
        hint = "say how long it waits for messages: 'limits: {idle: 1h}'"
        yield Finding("W414", triggered[0], message, hint, ("trigger",))
    begun = _reached(flow, [*starts, *nets.restarted(flow, 0)])
    for step in flow["bodies"][0]["steps"]:
        spec = flow["steps"][step]
        if spec.get("join", {}).get("kind") != "all":
            continue
        lacking = [s for s in spec["sources"] if s >= 0 and s not in begun]
        if lacking and len(spec["sources"]) > 1:
            name, source = spec["id"], flow["steps"][lacking[0]]["id"]
            message = (
                f"a token at {name!r} waits for one from {source!r}, which only a message can "
                "bring: until then the execution stays open"
            )
            hint = "bound it with limits.duration, or say 'join: active'"
            yield Finding("W412", step, message, hint, ("join",))


def _reached(flow: CompiledFlow, starts: list[Step]) -> set[Step]:
    """Return the steps that a token can come to without a message."""
    seen = set(starts)
    pending = list(seen)
    while pending:
        for target in nets.targets(flow["steps"][pending.pop()]):
            if target >= 0 and target not in seen:
                seen.add(target)
                pending.append(target)
    return seen

"""Flows that run themselves on every way, and so never end (E406)."""

from __future__ import annotations

from collections.abc import Iterator

from flowengine.flow.check import net as nets
from flowengine.flow.check.findings import Finding
from flowengine.flow.check.net import Step
from flowengine.flow.check.termination import places_that_end
from flowengine.kernel.graph.specs import CompiledFlow

Body = int


def check_recursion(flow: CompiledFlow) -> Iterator[Finding]:
    """Yield the steps by which a flow runs itself repeatedly without a way out.

    A flow ends if a token can pass through it without running a flow that does not end. This is a
    least fixpoint over all flows.

    Args:
        flow: The compiled flow, with the flows that it runs.

    Yields:
        One finding for each flow that cannot end.
    """
    bodies = {0: flow["id"], **{each["body"]: each["id"] for each in flow.get("flows", [])}}
    if len(bodies) == 1 and not any(_is_call(flow, step) for step in range(len(flow["steps"]))):
        return
    ending: set[Body] = set()
    while True:
        new = {body for body in bodies if body not in ending and _ends(flow, body, ending)[0]}
        if not new:
            break
        ending |= new
    stuck = {body: _ends(flow, body, ending)[1] for body in bodies if body not in ending}
    for body, steps in stuck.items():
        for step in steps:
            if _leads_to(flow, stuck, flow["steps"][step]["child"], body):
                name = bodies[body]
                message = f"every path through {name!r} runs {name!r} again: it never ends"
                hint = "let a condition lead around this step: 'when', or 'next: {first: ...}'"
                yield Finding("E406", step, message, hint, ("flow",))
                break


def _is_call(flow: CompiledFlow, step: Step) -> bool:
    return flow["steps"][step].get("action") == "flow"


def _leads_to(flow: CompiledFlow, stuck: dict[Body, list[Step]], start: Body, wanted: Body) -> bool:
    """Return whether a flow that does not end runs another one, directly or through others."""
    seen: set[Body] = set()
    todo = [start]
    while todo:
        body = todo.pop()
        if body == wanted:
            return True
        if body not in seen:
            seen.add(body)
            todo += [flow["steps"][step]["child"] for step in stuck.get(body, ())]
    return False


def _ends(flow: CompiledFlow, body: Body, ending: set[Body]) -> tuple[bool, list[Step]]:
    """Return whether a token can pass through a body, and the calls at which it cannot."""
    blocked: set[Step] = set()
    calls: list[Step] = []
    for step in flow["bodies"][body]["steps"]:
        inside = _blocked_in(flow, step, ending)
        if inside is not None:
            blocked.add(step)
            calls += inside
    net = nets.build(flow, body, nets.cancellations(flow))
    can = places_that_end(net, blocked)
    ends = all(can[net.edges[edge].target] for edge in net.starts)
    return ends, calls


def _blocked_in(flow: CompiledFlow, step: Step, ending: set[Body]) -> list[Step] | None:
    """Return the calls at which a token stays in a step forever, or None if it passes."""
    spec = flow["steps"][step]
    child = spec.get("child", -1)
    passes = any(
        handler.get("do") in {"next", "output", "continue"} for handler in spec.get("on_error", [])
    )
    if child < 0 or "when" in spec or "map" in spec or "before" in spec.get("loop", {}) or passes:
        return None
    if spec["action"] == "flow":
        return None if child in ending else [step]
    ends, calls = _ends(flow, child, ending)
    return None if ends else calls

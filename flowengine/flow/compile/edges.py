"""The incoming edges of every step, from the outgoing ones."""

from __future__ import annotations

from flowengine.flow.check.net import targets
from flowengine.kernel.graph import START, TRIGGER, CompiledFlow


def link_sources(flow: CompiledFlow, triggered: frozenset[int] = frozenset()) -> None:
    """Write `sources` of every step.

    Args:
        flow: The compiled flow, with splits and handlers written.
        triggered: Steps with a trigger.
    """
    sources: list[dict[int, None]] = [{} for _ in flow["steps"]]
    for body in flow["bodies"]:
        for step in body.get("start", []):
            sources[step][START] = None
    for step in sorted(triggered):
        sources[step][TRIGGER] = None
    for number, spec in enumerate(flow["steps"]):
        for target in targets(spec):
            if target >= 0:
                sources[target][number] = None
    for spec, found in zip(flow["steps"], sources, strict=True):
        spec["sources"] = list(found)

"""Graphs in a short notation, for the tests of the graph checks."""

from __future__ import annotations

from typing import Any

from flowengine.flow.check import net
from flowengine.flow.compile.edges import link_sources
from flowengine.kernel.graph.compiled import END, END_ALL
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec

Drawn = dict[str, Any]
"""The notation of a graph: `{"a": (split, join), ...}`, with splits as in a flow file."""


def flow_of(drawn: Drawn, start: tuple[str, ...] = ()) -> CompiledFlow:
    """Compile a scope from splits and joins in short notation."""
    numbers = {name: number for number, name in enumerate(drawn)}
    numbers |= {"end": END, "end_all": END_ALL}
    steps: list[StepSpec] = []
    for name, (split, join) in drawn.items():
        spec: StepSpec = {"id": name, "body": 0, "action": "none"}
        if split is not None:
            spec["split"] = split_of(split, numbers)
        if join is not None:
            spec["join"] = join
        steps.append(spec)
    flow: CompiledFlow = {
        "steps": steps,
        "bodies": [
            {
                "owner": -1,
                "kind": "flow",
                "start": [numbers[name] for name in start or list(drawn)[:1]],
                "steps": list(range(len(steps))),
            }
        ],
    }
    link_sources(flow)
    return flow


def split_of(split: Any, numbers: dict[str, int]) -> Any:
    if isinstance(split, str):
        return {"kind": "one", "to": numbers[split]}
    kind, entries = split
    written: list[dict[str, Any]] = []
    for entry in entries:
        if entry.endswith("?"):
            written.append({"to": numbers[entry[:-1]], "when": 0})
        elif entry.endswith(":"):
            written.append({"to": numbers[entry[:-1]], "otherwise": True})
        else:
            written.append({"to": numbers[entry]})
    return {"kind": kind, "entries": written}


def net_of(drawn: Drawn, start: tuple[str, ...] = ()) -> net.Net:
    flow = flow_of(drawn, start)
    return net.build(flow, 0, net.cancellations(flow))


ALL: Any = {"kind": "all"}
ACTIVE: Any = {"kind": "active"}


def counting(need: int, late: str = "ignore") -> Any:
    return {"kind": "count", "need": ["const", need], "late": late}

"""Conversion of a flow file to a flow that Python can extend."""

from __future__ import annotations

from flowengine.flow.building.graph import FlowGraph
from flowengine.flow.building.steps import Scope, Step
from flowengine.flow.loading.load import load_source
from flowengine.flow.source.diagnostics import Diagnostics, Loc, MovedSource, Origin


def adopt(flow: FlowGraph, source: Origin) -> None:
    """Fill a flow with the content of a file. Errors in it are kept, for the checker to report.

    Args:
        flow: A new flow.
        source: The file.

    Raises:
        FlowFileError: The file is not YAML, or not a mapping.
    """
    data = source.data
    if not isinstance(data, dict):
        diagnostics = Diagnostics()
        load_source(source, diagnostics)
        diagnostics.refuse(source.files)
    flow.head = {key: value for key, value in data.items() if key not in {"steps", "finally"}}
    flow.place = MovedSource(source, {})
    flow.problems = list(source.problems)
    for key, block in (("steps", flow.steps), ("finally", flow.cleanup)):
        if key in data and not _adopt_steps(flow, data[key], block, source, (key,)):
            flow.head[key] = data[key]


def _adopt_steps(
    flow: FlowGraph, given: object, block: list[Step], source: Origin, loc: Loc
) -> bool:
    """Add the steps of a list in a file. Return False if it is not a list of mappings."""
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        return False
    for index, item in enumerate(given):
        place = (*loc, index)
        spec = dict(item)
        step = Scope(flow, str(spec.get("id")), spec, MovedSource(source, {(): place}))
        for key in ("group", "parallel", "finally"):
            inner: list[Step] = []
            if key in spec and _adopt_steps(flow, spec[key], inner, source, (*place, key)):
                step.blocks[key] = inner
                del spec[key]
        block.append(step)
    return True

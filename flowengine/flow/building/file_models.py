"""A flow that was built in Python, as the model of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flowengine.errors import FlowFileError
from flowengine.flow.building.assemble import assemble
from flowengine.flow.building.graph import FlowGraph
from flowengine.flow.loading.load import load_source
from flowengine.flow.models import FlowModel
from flowengine.flow.source.diagnostics import Diagnostics, render
from flowengine.sdk.python.imported_modules import check_importable


def loaded(flow: FlowGraph) -> FlowModel:
    """Return the model of a flow that can be written as a file.

    Args:
        flow: The flow.

    Returns:
        The model, which has no short forms.

    Raises:
        FlowFileError: It has errors.
        UsageError: No file can name one of its functions.
    """
    source, diagnostics = assemble(flow), Diagnostics()
    model = load_source(source, diagnostics)
    if model is None or diagnostics.errors:
        problems = list(diagnostics)
        raise FlowFileError(render(problems, source.files), problems)
    check_importable(_texts(model.plain()))
    return model


def _texts(data: Any) -> Iterator[str]:
    """Yield all texts in plain data."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping | list):
        for part in data.values() if isinstance(data, Mapping) else data:
            yield from _texts(part)

"""A flow that was built in Python, as the model of a file."""

from __future__ import annotations

from flowengine.flow.building.assemble import assemble
from flowengine.flow.building.graph import FlowGraph
from flowengine.flow.loading.load import load_source
from flowengine.flow.models import FlowModel
from flowengine.flow.source.diagnostics import Diagnostics
from flowengine.sdk.python.imported_modules import check_importable
from flowengine.util.plain_data import leaves


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
        diagnostics.refuse(source.files)
    check_importable(leaf for leaf in leaves(model.plain()) if isinstance(leaf, str))
    return model

"""What turns a flow into other forms, and a file into a flow, imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

if TYPE_CHECKING:
    from flowengine.flow.building.assemble import assemble
    from flowengine.flow.building.file_models import loaded
    from flowengine.flow.building.from_file import adopt
    from flowengine.flow.building.python_text import program
    from flowengine.flow.export.definition import expanded
    from flowengine.flow.source.yaml_source import Source, read, read_text

__all__ = [
    "Source",
    "adopt",
    "assemble",
    "expanded",
    "loaded",
    "program",
    "read",
    "read_text",
]

_HOMES = {
    **dict.fromkeys(("Source", "read", "read_text"), "flowengine.flow.source.yaml_source"),
    "assemble": "flowengine.flow.building.assemble",
    "loaded": "flowengine.flow.building.file_models",
    "adopt": "flowengine.flow.building.from_file",
    "expanded": "flowengine.flow.export.definition",
    "program": "flowengine.flow.building.python_text",
}

__getattr__, __dir__ = exports(__name__, __all__, _HOMES)

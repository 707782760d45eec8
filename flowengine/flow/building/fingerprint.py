"""The fingerprint of a built flow: everything that its compilation depends on."""

from __future__ import annotations

import os
from typing import NamedTuple

from flowengine.errors import UsageError
from flowengine.flow.building.assemble import assemble
from flowengine.flow.building.flow import Flow
from flowengine.flow.building.origins import InCode


class Fingerprint(NamedTuple):
    """Two flows with equal fingerprints, whose files are unchanged, compile to the same form."""

    place: str
    """The Python file that begins the flow, and the flow's id."""
    meaning: str
    """Its data, and the place of each declaration."""
    files: list[str]
    """The Python files with its declarations."""


def fingerprint(flow: Flow) -> Fingerprint | None:
    """Return the fingerprint of a flow.

    Args:
        flow: The flow.

    Returns:
        The fingerprint. None: the flow is a part of another one, parts of it have no Python file,
        or it has errors that only compiling reports.
    """
    if flow.root is not flow:
        return None
    try:
        built = assemble(flow)
    except UsageError:
        return None
    if built.problems:
        return None
    files: dict[str, None] = {}
    declared = []
    for loc, place in built.places.items():
        if not isinstance(place, InCode):
            return None
        file = os.path.abspath(place.file)
        files[file] = None
        declared.append((loc, file, place.line, place.instruction))
    if not all(map(os.path.isfile, files)):
        return None  # such as `<stdin>`
    # Reports name files relative to the current directory.
    meaning = repr([flow.folder, os.getcwd(), built.data, declared])
    return Fingerprint(f"{next(iter(files))}\n{flow.id}", meaning, list(files))

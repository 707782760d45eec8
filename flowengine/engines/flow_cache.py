"""Compiled flows in the user's state directory, so that an unchanged flow is compiled only once.

    STATE/flows/NAME     the flow that was last compiled from one place

The place is the path of a flow file, or the Python file and the id of a built flow. No project can
write there, so a flow from the cache is one that this user compiled. A file that cannot be read or
written, or is damaged, costs a compilation and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from flowengine.errors import FlowEngineError
from flowengine.flow.compiler import compiler
from flowengine.journal.encoding import checksum, pack, unpack
from flowengine.journal.shapes import Sound, unpack_flow
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.store_folder import FLOWS, fault_of, make_private, state_folder
from flowengine.util.files import digest_of, source_digest, write_whole

_CHECKSUM = 4
"""Bytes of the checksum in front of a file's content."""


class CachedFlow(NamedTuple):
    """A compiled flow from the cache."""

    compiled: CompiledFlow
    form: str
    warnings: list[dict[str, Any]]


def find(place: str, meaning: str = "") -> CachedFlow | None:
    """Return the compiled flow of a place, if its meaning and sources are unchanged.

    Args:
        place: Where the flow comes from.
        meaning: Everything else that its compiled form depends on, besides its sources.
    """
    folder = _folder()
    try:
        if fault_of(os.path.dirname(folder)) or fault_of(folder):
            return None
        with open(os.path.join(folder, _name(place)), "rb") as file:
            content = file.read()
    except OSError:
        return None
    packed = content[_CHECKSUM:]
    if content[:_CHECKSUM] != _checksum(packed):
        return None
    with suppress(FlowEngineError), Sound("a compiled flow"):
        of, form, sources, flow, warnings = unpack(packed)
        if of != _origin(place, meaning):
            return None
        if any(source_digest(source) != digest for source, digest in sources):
            return None
        return CachedFlow(unpack_flow(flow, form), form, warnings)
    return None


def keep(
    place: str, flow: CachedFlow, sources: Iterable[tuple[str, str]], meaning: str = ""
) -> None:
    """Keep a compiled flow, instead of the one that was kept for this place.

    Args:
        place: Where the flow comes from.
        flow: The flow.
        sources: The files that it was compiled from, with their digests.
        meaning: As for `find`.
    """
    named = [[os.path.abspath(source), digest] for source, digest in sources]
    packed = pack([
        _origin(place, meaning), flow.form, named, pack(flow.compiled), flow.warnings
    ])  # fmt: skip
    with suppress(OSError):
        folder = _folder()
        make_private(folder)
        content = _checksum(packed) + packed
        # A file that a power cut leaves incomplete is recognized by its checksum.
        write_whole(os.path.join(folder, _name(place)), content, synced=False)


def _origin(place: str, meaning: str) -> list[str]:
    return [place, compiler(), digest_of(meaning.encode("utf-8", "surrogatepass"))]


def _name(place: str) -> str:
    return digest_of(place.encode("utf-8", "surrogateescape"))


def _folder() -> str:
    return os.path.join(state_folder(), FLOWS)


def _checksum(packed: bytes) -> bytes:
    return checksum(packed).to_bytes(_CHECKSUM, "big")

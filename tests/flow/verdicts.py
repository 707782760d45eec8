"""Compilation of flows that may be rejected, without collecting all errors."""

from __future__ import annotations

from pathlib import Path

from flowengine.errors import FlowFileError
from flowengine.flow.compile import Compiled, compile_text
from flowengine.flow.source.diagnostics import Diagnostic, Diagnostics
from tests.replacing import patches_everywhere


class _Refused(Exception):
    """A flow has an error. Further errors do not matter."""


def compiled_if_accepted(text: str, folder: Path | None = None) -> Compiled | None:
    """Return a compiled flow, or None if it is rejected, without finding all of its errors."""
    add = Diagnostics.add

    def add_and_end(found: Diagnostics, diagnostic: Diagnostic) -> None:
        add(found, diagnostic)
        if not diagnostic.is_warning:
            raise _Refused

    with patches_everywhere() as patch:
        patch.setattr(Diagnostics, "add", add_and_end)
        try:
            return compile_text(text, folder=folder)
        except (FlowFileError, _Refused):
            return None

"""From a flow file to the compiled form that the kernel walks over, with everything checked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

from flowengine.errors import FlowFileError
from flowengine.flow.compile.flow import Compiler
from flowengine.flow.compile.report import Report
from flowengine.flow.diagnostics import Diagnostic, Diagnostics, Origin, render
from flowengine.flow.hash import structural_hash
from flowengine.flow.load import load_source
from flowengine.flow.source import read, read_text
from flowengine.kernel.graph import CompiledFlow

__all__ = ["Compiled", "compile_file", "compile_source", "compile_text"]


class Compiled(NamedTuple):
    """A flow that passed all checks."""

    flow: CompiledFlow
    hash: str
    """The structural hash."""
    diagnostics: list[Diagnostic]
    """Warnings, in file order."""
    sources: list[tuple[str, str]]
    """The files that were read, with their SHA-256: the flow file first."""


def compile_file(path: str | PathLike[str]) -> Compiled:
    """Read, check and compile a flow file.

    Args:
        path: The file.

    Returns:
        The compiled flow.

    Raises:
        FlowFileError: The file has errors; all of them are in it.
        NotFound: There is no such file.
    """
    source = read(fspath(path))
    folder = str(Path(path).resolve().parent)
    return compile_source(source, folder, [fspath(path)])


def compile_text(
    text: str, name: str = "flow.yaml", folder: str | PathLike[str] | None = None
) -> Compiled:
    """Check and compile a flow given as text.

    Args:
        text: What would be in the file.
        name: What the file is called in reports.
        folder: Where Python modules are looked for first; default: the current folder.

    Returns:
        The compiled flow; the text is not among its sources.

    Raises:
        FlowFileError: The text has errors; all of them are in it.
    """
    return compile_source(read_text(text, name), str(Path(folder or ".").resolve()))


def compile_source(source: Origin, folder: str, files: Sequence[str] = ()) -> Compiled:
    """Check and compile a flow, wherever it comes from.

    Args:
        source: The flow as data, with positions.
        folder: Where Python modules are looked for first.
        files: What was read for it.

    Returns:
        The compiled flow.

    Raises:
        FlowFileError: The flow has errors; all of them are in it.
    """
    diagnostics = Diagnostics()
    model = load_source(source, diagnostics)
    if model is None:
        raise FlowFileError(*_told(diagnostics, source))
    compiler = Compiler(model, folder, Report(source, diagnostics))
    flow = compiler.compile()
    if diagnostics.errors:
        raise FlowFileError(*_told(diagnostics, source))
    sources = [(path, _digest(path)) for path in (*files, *compiler.tools.read)]
    return Compiled(flow, structural_hash(flow), diagnostics.warnings, sources)


def _told(diagnostics: Diagnostics, source: Origin) -> tuple[str, list[Diagnostic]]:
    found = list(diagnostics)
    return render(found, source.files), found


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()

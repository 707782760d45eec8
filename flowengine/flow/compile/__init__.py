"""Compilation of a flow file, with all checks, into the compiled form for the kernel."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

from flowengine.flow.compile.compilation import Compilation
from flowengine.flow.loading.files import FlowFiles
from flowengine.flow.source.diagnostics import Diagnostic, Diagnostics, Origin, render
from flowengine.flow.source.yaml_source import read, read_text
from flowengine.flow.structural_hash import form_hash, structural_hash
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.util.files import source_digest

__all__ = [
    "CheckResult",
    "Compiled",
    "check_file",
    "compile_file",
    "compile_source",
    "compile_text",
]


class Compiled(NamedTuple):
    """A flow that passed all checks."""

    flow: CompiledFlow
    hash: str
    """The structural hash."""
    diagnostics: list[Diagnostic]
    """Warnings, in file order."""
    sources: list[tuple[str, str]]
    """The files that were read, with their SHA-256: the flow file first."""

    @property
    def form(self) -> str:
        """The id of the flow in a store. See `form_hash`."""
        return form_hash(self.flow, self.hash)


class CheckResult(NamedTuple):
    """The result of `check`."""

    flow: CompiledFlow | None
    """The compiled flow. None for a library, and for a file with errors."""
    diagnostics: list[Diagnostic]
    """Errors and warnings, in file order."""
    report: str
    """The same as a readable report, empty if there are none."""


def compile_file(path: str | PathLike[str]) -> Compiled:
    """Read, check and compile a flow file.

    Returns:
        The compiled flow.

    Raises:
        FlowFileError: The file has errors. The exception contains all of them.
        NotFound: The file does not exist.
    """
    source = read(fspath(path))
    folder = str(Path(path).resolve().parent)
    return compile_source(source, folder, fspath(path))


def compile_text(
    text: str, name: str = "flow.yaml", folder: str | PathLike[str] | None = None
) -> Compiled:
    """Check and compile a flow given as text.

    Args:
        text: The content of the file.
        name: The name of the file in reports.
        folder: The directory that is searched first for Python modules. Default: the current
            directory.

    Returns:
        The compiled flow, without the text among its sources.

    Raises:
        FlowFileError: The text has errors. The exception contains all of them.
    """
    return compile_source(read_text(text, name), str(Path(folder or ".").resolve()))


def check_file(path: str | PathLike[str]) -> CheckResult:
    """Check a flow file or a library, which cannot be compiled by itself.

    Returns:
        The result.

    Raises:
        NotFound: The file does not exist.
    """
    compilation, files = _checked(
        read(fspath(path)), str(Path(path).resolve().parent), fspath(path)
    )
    problems = list(files.diagnostics)
    report = render(problems, files.sources)
    runs = (
        compilation is not None
        and not files.diagnostics.errors
        and not compilation.first.is_library
    )
    return CheckResult(
        compilation.link() if compilation is not None and runs else None, problems, report
    )


def compile_source(source: Origin, folder: str, path: str | None = None) -> Compiled:
    """Check and compile a flow from any source.

    Args:
        source: The flow as data, with positions.
        folder: The directory that is searched first for Python modules and other flow files.
        path: The path, if the source is a file.

    Returns:
        The compiled flow.

    Raises:
        FlowFileError: The flow has errors. The exception contains all of them.
    """
    compilation, files = _checked(source, folder, path)
    if compilation is not None and compilation.first.is_library and not files.diagnostics.errors:
        hint = "it can be imported. Add 'steps' to run it"
        compilation.first.report.at("E104", "this file is a library, without 'steps'", (), hint)
    if compilation is None or files.diagnostics.errors:
        files.diagnostics.refuse(files.sources)
    flow = compilation.link()
    paths = dict.fromkeys([*files.paths, *compilation.read])
    sources = [(path, source_digest(path) or "") for path in paths]
    return Compiled(flow, structural_hash(flow), list(files.diagnostics), sources)


def _checked(source: Origin, folder: str, path: str | None) -> tuple[Compilation | None, FlowFiles]:
    """Return a checked file with all its references, or None if nothing is left to check."""
    files = FlowFiles(Diagnostics())
    first = files.first(source, folder, path)
    compilation = None if first is None else Compilation(files, first)
    if compilation is not None and first is not None:
        try:
            compilation.check()
        except RecursionError:
            message = "the flows of this file run one another too deeply to be checked"
            hint = "let fewer flows run one inside another"
            first.report.at("E103", message, ("flows",), hint, key=True)
    return compilation, files

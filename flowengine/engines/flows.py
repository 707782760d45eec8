"""Flows as the engine takes them: compiled, named by their structural hash."""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from flowengine.flow.diagnostics import Diagnostic
    from flowengine.kernel.graph import CompiledFlow


class Flow(NamedTuple):
    """A checked and compiled flow, ready to run; holds plain data only."""

    compiled: CompiledFlow
    hash: str
    """Structural hash: the same for files that mean the same."""
    warnings: list[str] = []  # noqa: RUF012 - never mutated
    """What `check` warns of, rendered one by one."""

    @property
    def id(self) -> str:
        """Return the flow's `id`."""
        return self.compiled["id"]

    @property
    def version(self) -> str:
        """Return the flow's `version`."""
        return self.compiled.get("version", "")

    @property
    def inputs(self) -> dict[str, Any]:
        """Return the declared inputs: name → JSON Schema; required are those without `default`."""
        return self.compiled.get("inputs", {})

    @property
    def host_steps(self) -> list[str]:
        """Return the ids of the steps whose commands run on this host, as the user."""
        return [
            step["id"]
            for step in self.compiled["steps"]
            if (step.get("task") or {}).get("in") == "host"
        ]


def load(path: str | PathLike[str]) -> Flow:
    """Read, check and compile a flow file.

    Args:
        path: The file.

    Returns:
        The flow. A file with errors is a `FlowFileError` that holds all of them.
    """
    from flowengine.flow.compile import compile_file

    compiled = compile_file(fspath(path))
    warnings = [str(diagnostic) for diagnostic in compiled.diagnostics]
    return Flow(compiled.flow, compiled.hash, warnings)


def check(path: str | PathLike[str]) -> list[Diagnostic]:
    """Check a flow file without running anything.

    Args:
        path: The file.

    Returns:
        All errors and warnings, in file order; empty for a file without fault.
    """
    from flowengine.errors import FlowFileError
    from flowengine.flow.compile import compile_file

    try:
        return list(compile_file(fspath(path)).diagnostics)
    except FlowFileError as error:
        return error.diagnostics

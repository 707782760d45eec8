"""Attempts whose outputs are computed from replies in the case, and their parts of an engine."""

from __future__ import annotations

from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from flowengine import registry
from flowengine.agents.tool_answers import value_of
from flowengine.sdk.read_only import ReadOnlyDict
from flowengine.sdk.untrusted import all_unmarked
from flowengine.testing.scripts import without_secrets

if TYPE_CHECKING:
    from flowengine.kernel.commands import Run
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.specs import CompiledFlow
    from flowengine.sdk import StepContext
    from flowengine.sdk.rehearsals import Rehearsal


def rehearsal_of(flow: CompiledFlow, run: Run, folder: str) -> Rehearsal | None:
    """Return the rehearsal of an attempt. None: the case contains its output.

    Args:
        flow: The flow.
        run: The kernel's command.
        folder: Directory for relative paths.

    Raises:
        StepError: The attempt fails before it needs a reply.
    """
    step = flow["steps"][run.step]
    if not registry.has_kind(step["kind"]):
        return None
    given = without_secrets(run.input)
    input = cast("dict[str, Plain]", given) if isinstance(given, dict) else {}
    kind = registry.kind(step["kind"])
    return kind.rehearse(_context(run, folder), step.get("task", {}), input)


def adapted(flow: CompiledFlow, run: Run, value: Any) -> Any:
    """Return the result of a call, in the form of its step's output.

    Args:
        flow: The flow.
        run: The kernel's command.
        value: The value in the case: the result, or the converted output.
    """
    step = flow["steps"][run.step]
    adapter = step.get("adapter")
    if adapter is None or (isinstance(value, dict) and "envelope" in value):
        return value
    given = without_secrets(run.input)
    input = cast("dict[str, Plain]", given) if isinstance(given, dict) else {}
    called = (step["kind"], step.get("task", {}), input)
    return registry.adapted(adapter, _context(run, "."), called, value)


def unadapted(flow: CompiledFlow, run: Run, value: Any) -> Any:
    """Return the result of a call that leads to a step's output, for a case.

    Args:
        flow: The flow.
        run: The kernel's command.
        value: The output, whose text for the model has a mark that is new each time.
    """
    step = flow["steps"][run.step]
    if "adapter" not in step or not isinstance(value, dict) or "envelope" not in value:
        return value
    result = value_of(value)
    same = all_unmarked(adapted(flow, run, result)) == all_unmarked(value)
    return result if same else value


def _context(run: Run, folder: str) -> StepContext:
    execution = SimpleNamespace(id="case", workdir=folder, artifacts=_Digests())
    context = SimpleNamespace(
        execution=execution,
        address=run.address,
        attempt=run.attempt,
        state=ReadOnlyDict(run.state or {}),
        fallback=run.fallback,
        followed=False,
        approval=run.approved,
        mask=lambda value: value,  # secrets have no values in a case
    )
    return cast("StepContext", context)


class _Digests:
    """Computes the digests of files without keeping them."""

    def put(self, source: bytes, name: str) -> dict[str, Any]:
        digest = sha256(source).hexdigest()
        return {"path": name, "name": name, "size": len(source), "sha256": digest}

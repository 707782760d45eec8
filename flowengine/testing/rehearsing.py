"""Attempts whose outputs are made from replies in the case: what they need of an engine."""

from __future__ import annotations

import json
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from flowengine import registry
from flowengine.sdk.read_only import ReadOnlyDict
from flowengine.testing.scripts import without_secrets

if TYPE_CHECKING:
    from flowengine.kernel.commands import Run
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.specs import CompiledFlow
    from flowengine.sdk import StepContext
    from flowengine.sdk.rehearsals import Rehearsal


def rehearsal_of(flow: CompiledFlow, run: Run, folder: str) -> Rehearsal | None:
    """Return how an attempt goes in a case; None: the case has its output.

    Args:
        flow: The flow.
        run: The kernel's command.
        folder: Where paths are looked for.

    Raises:
        StepError: The attempt fails before anything is asked.
    """
    step = flow["steps"][run.step]
    if not registry.has_kind(step["kind"]):
        return None
    given = without_secrets(run.input)
    input = cast("dict[str, Plain]", given) if isinstance(given, dict) else {}
    kind = registry.kind(step["kind"])
    return kind.rehearse(_context(run, folder), step.get("task", {}), input)


def adapted(flow: CompiledFlow, run: Run, value: Any) -> Any:
    """Return what a call gives, as its step has it.

    Args:
        flow: The flow.
        run: The kernel's command.
        value: What the case says: the result, or what was made of it already.
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
    """Return the shortest result from which a step's output came, for a case.

    Args:
        flow: The flow.
        run: The kernel's command.
        value: The output.
    """
    if "adapter" not in flow["steps"][run.step] or not isinstance(value, dict):
        return value
    short = value.get("envelope", {}).get("content")
    for one in (short, _data(short)):
        if adapted(flow, run, one) == value:
            return one
    return value


def _data(text: Any) -> Any:
    """Return the data that a text is as JSON; the text, if it is none."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


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
    """Keeps nothing; files are known by their digests."""

    def put(self, source: bytes, name: str) -> dict[str, Any]:
        digest = sha256(source).hexdigest()
        return {"path": name, "name": name, "size": len(source), "sha256": digest}

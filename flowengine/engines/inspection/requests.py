"""The request of an attempt to a model, which is not stored, but made again from the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, cast

from flowengine import registry
from flowengine.engines.executions.moments import Moment
from flowengine.engines.snapshots import unit_at
from flowengine.kernel.commands import Observation
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.view import View
from flowengine.sdk.steps.context import StepContext
from flowengine.sdk.steps.step_kind import StepKind
from flowengine.sdk.values.read_only import ReadOnlyDict


class RequestLog:
    """The values that the last attempt of a step began with.

    Args:
        execution: Full id.
        address: Of the step.
    """

    def __init__(self, execution: str, address: str) -> None:
        self._execution = execution
        self._address = address
        self._begun: tuple[Mapping[str, Any], Observation, dict[str, Any]] | None = None

    def record(self, moment: Moment, seen: Iterable[Observation]) -> None:
        """Note the values of an attempt that an event has begun."""
        for one in seen:
            if one.status == "running" and one.address == self._address:
                spec = moment.graph.flow["steps"][one.step]
                self._begun = spec, one, _received(moment, self._address, spec.get("reads", ()))

    def request(self, output: Plain) -> Mapping[str, Plain] | None:
        """Return the request of the attempt, or None if it sent none.

        Args:
            output: Its output. None: it has none.
        """
        if self._begun is None:
            return None
        spec, seen, received = self._begun
        kind: StepKind = registry.kind(str(spec["kind"]))
        context = attempt_context(self._execution, ".", seen.address, **received)
        input: Any = seen.input or {}  # without secrets
        return kind.request(context, spec.get("task", {}), input, output)


def asks_models(kind: str) -> bool:
    """Return whether the attempts of steps of a kind send requests to models."""
    return registry.has_kind(kind) and registry.kind_class(kind).request is not StepKind.request


def _received(moment: Moment, address: str, keys: Iterable[str]) -> dict[str, Any]:
    """Return the state that an attempt read, and the answers that it received.

    A list is copied, because it grows.
    """
    view = View(moment.graph, moment.state)
    number = unit_at(moment.graph, moment.state, address)
    if number is None:
        return {"state": {}}
    unit = moment.state["units"][number]
    cells = view.vars_of(view.frame_of(view.act_of(unit)))
    values: dict[str, Any] = {key: cells[key][0] for key in keys if key in cells}
    state = {key: [*one] if isinstance(one, list) else one for key, one in values.items()}
    return {"state": state, "answers": unit.get("answers"), "caught": unit.get("caught")}


def attempt_context(
    execution: str, folder: str, address: str, state: Mapping[str, Any], **more: Any
) -> StepContext:
    """Return the context of an attempt that is not carried out.

    Args:
        execution: Id of the execution.
        folder: Directory for relative paths.
        address: Address of the step.
        state: The state that it reads.
        **more: Further attributes.
    """
    around = SimpleNamespace(id=execution, workdir=folder, artifacts=_Digests())
    context = SimpleNamespace(
        execution=around,
        address=address,
        state=ReadOnlyDict(state),
        resources={},
        followed=False,
        mask=lambda value: value,  # secrets have no values here
        **{
            "attempt": 1, "fallback": False, "approval": None, "inputs": {},
            "answers": None, "caught": None, **more,
        },
    )  # fmt: skip
    return cast("StepContext", context)


class _Digests:
    """Computes the digests of files without keeping them."""

    def put(self, source: bytes, name: str) -> dict[str, Any]:
        digest = sha256(source).hexdigest()
        return {"path": name, "name": name, "size": len(source), "sha256": digest}

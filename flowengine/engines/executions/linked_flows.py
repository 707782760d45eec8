"""Compiled flows, linked with their evaluator of expressions and their runner of steps."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from flowengine.journal.shapes import Sound, unpack_flow
from flowengine.kernel import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set

    from flowengine.engines.attempts.runner import TaskRunner
    from flowengine.journal.ports.flows import FlowPort
    from flowengine.kernel.graph.specs import CompiledFlow, StepSpec
    from flowengine.validation import Validator


class LinkedFlow:
    """A compiled flow, ready to run. One instance serves all executions in a process.

    Args:
        compiled: The flow in plain form.
        hash: The hash by which a store identifies it.
        in_memory: Whether nothing of its executions outlives this process.
    """

    def __init__(self, compiled: CompiledFlow, hash: str, *, in_memory: bool = False) -> None:
        from flowengine.flow.expressions import CelEvaluator

        self.compiled = compiled
        self.hash = hash
        self._in_memory = in_memory
        evaluator = CelEvaluator(compiled["expressions"], compiled["id"])
        self.graph = Graph(compiled, evaluator, why_not, reducer)

    @cached_property
    def runner(self) -> TaskRunner:
        """Return the runner of its steps."""
        from flowengine.engines.attempts.runner import TaskRunner

        return TaskRunner(self.compiled, in_memory=self._in_memory)

    @cached_property
    def ruled(self) -> frozenset[int]:
        """Return the steps that name no tool. Their rules are checked right before they run."""
        steps = enumerate(self.compiled["steps"])
        return frozenset(n for n, step in steps if "policies" in step and "approval" not in step)

    @cached_property
    def grows(self) -> bool:
        """Return whether its state has append-only lists."""
        from flowengine.engines.executions.growing_lists import grows

        return grows(self.graph)

    @cached_property
    def indexed(self) -> bool:
        """Return whether an index of its steps is kept. See `step_index`."""
        return self.grows and any("teller" in step for step in self.compiled["steps"])

    def look_ahead(self, labels: Mapping[str, str], bodies: Set[int] | None = None) -> None:
        """Let step kinds preload the requirements of steps, on a separate thread.

        Args:
            labels: Labels of the execution.
            bodies: Only for steps in these bodies. None: for all.
        """
        steps = self._ahead
        if bodies is not None:
            steps = [step for step in steps if step.get("body", 0) in bodies]
        if steps:
            from flowengine.engines.attempts.loading_ahead import load_ahead

            load_ahead(steps, labels)

    @cached_property
    def _ahead(self) -> list[StepSpec]:
        return [step for step in self.compiled["steps"] if "ahead" in step]


class LinkedFlows:
    """Linked flows by hash, from the store, which keeps them with the executions.

    Args:
        store: Contains the compiled flows.
        in_memory: Whether nothing in it outlives this process.
    """

    def __init__(self, store: FlowPort, *, in_memory: bool = False) -> None:
        self._store = store
        self._in_memory = in_memory
        self._flows: dict[str, LinkedFlow] = {}

    def by_hash(self, hash: str) -> LinkedFlow:
        """Return the flow of an existing execution."""
        linked = self._flows.get(hash)
        if linked is None:
            compiled = unpack_flow(self._store.get_flow(hash), hash)
            with Sound(f"flow {hash}"):
                linked = LinkedFlow(compiled, hash, in_memory=self._in_memory)
            self._flows[hash] = linked
        return linked

    def of(self, compiled: CompiledFlow, hash: str) -> LinkedFlow:
        """Link a flow that is about to run, and save it in the store."""
        from flowengine.journal.encoding import pack

        linked = self._flows.get(hash)
        if linked is None:
            packed = pack(compiled)
            if not self._in_memory and b"__main__:" in packed:
                from flowengine.engines.flows import LoadedFlow
                from flowengine.python_modules import check_importable

                check_importable(LoadedFlow(compiled, hash).functions)
            self._store.put_flow(hash, packed)
            linked = LinkedFlow(compiled, hash, in_memory=self._in_memory)
            self._flows[hash] = linked
        return linked

    def forget(self) -> None:
        """Forget all flows, because the store may have deleted some."""
        self._flows.clear()


_FOUND: dict[int, tuple[Any, Validator]] = {}
"""By the identity of a schema: the schema, which keeps it alive, and its validator."""
_MOST_FOUND = 1024


def why_not(schema: Any, value: Any) -> str | None:
    """Return why a value does not fit a schema of a compiled flow, or None if it fits."""
    if schema is True or schema == {}:
        return None
    identity = id(schema)
    linked = _FOUND.get(identity)
    if linked is None:
        from flowengine.validation import shared

        if len(_FOUND) >= _MOST_FOUND:
            _FOUND.clear()
        linked = _FOUND[identity] = schema, shared(schema)
    validator = linked[1]
    if validator.proof is not None and validator.proof(value):
        return None
    from flowengine.errors import InputError

    try:
        validator.check(value, "it")
    except InputError as error:
        return error.message
    return None


def reducer(given: dict[str, str]) -> Callable[[Any, Any], Any]:
    """Return the function that a flow names as the reducer of a state key.

    It receives copies and returns plain data. All its exceptions become a `ValueError`.

    Args:
        given: `python`: `module:name`. `folder`: the directory to search first for modules.
    """
    from flowengine.engines.attempts.serialization import copy
    from flowengine.python_modules import import_function
    from flowengine.sdk.plain_values import to_plain

    def reduce(old: Any, new: Any) -> Any:
        try:
            function = import_function(given["python"], given["folder"])
            return to_plain(function(copy(old), copy(new)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            from flowengine.sdk.exception_text import describe

            raise ValueError(describe(error)) from error

    return reduce

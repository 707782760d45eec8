"""The spans of an execution, read from its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.telemetry.spans import ExecutionTracer, Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flowengine.telemetry.source import ExecutionSource


def recorded_spans(
    engine: ExecutionSource, execution: str, *, content: bool = False
) -> Iterator[Span]:
    """Yield the spans of an execution that have ended, the innermost first.

    Args:
        engine: An engine over the store.
        execution: Id of the execution, or an unambiguous prefix of it.
        content: Whether spans include messages, arguments, results and error messages.

    Yields:
        The spans. That of the execution comes last, if it has ended.

    Raises:
        NotFound: The store has no such execution.
    """
    record = engine.store.execution(engine.find(execution))
    tracer = ExecutionTracer(record, content=content)
    for update, flow in engine.past_updates(record.id):
        yield from tracer.take(update, flow["steps"])
    if record.ended_at is not None:
        yield tracer.end(record)

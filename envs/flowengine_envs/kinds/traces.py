"""What several sandboxes of one environment, or one sandbox of several, may leave over."""

from __future__ import annotations

from typing import Any

from flowengine.sdk.environments import Tracer


class Traces:
    """Notes facts for all environments that use something: those of several sandboxes together.

    Args:
        first: Of the environment that comes first.
    """

    def __init__(self, first: Tracer) -> None:
        self._facts: dict[str, list[Any]] = {}
        self._tracers = [first]

    def __call__(self, **facts: Any) -> None:
        """Add facts: each becomes a list with all that was noted under its name."""
        for name, value in facts.items():
            known = self._facts.setdefault(name, [])
            values = value if isinstance(value, list) else [value]
            known += [each for each in values if each not in known]
        for tracer in self._tracers:
            tracer(**{name: self._facts[name] for name in facts})

    def add(self, tracer: Tracer) -> None:
        """Note everything for one more environment."""
        if tracer not in self._tracers:
            tracer(**self._facts)
            self._tracers.append(tracer)

    def remove(self, tracer: Tracer) -> None:
        """Note no more for an environment."""
        if tracer in self._tracers:
            self._tracers.remove(tracer)

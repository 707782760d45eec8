"""Resources that several sandboxes of one environment, or one sandbox of several, may leave."""

from __future__ import annotations

from typing import Any

from flowengine.sdk.environments import Tracer


class Traces:
    """Records facts in every environment that uses a resource, combined over several sandboxes.

    Args:
        first: Tracer of the first environment.
    """

    def __init__(self, first: Tracer) -> None:
        self._facts: dict[str, list[Any]] = {}
        self._tracers = [first]

    def __call__(self, **facts: Any) -> None:
        """Add facts. Each becomes a list of all values recorded under its name."""
        for name, value in facts.items():
            known = self._facts.setdefault(name, [])
            values = value if isinstance(value, list) else [value]
            known += [each for each in values if each not in known]
        for tracer in self._tracers:
            tracer(**{name: self._facts[name] for name in facts})

    def add(self, tracer: Tracer) -> None:
        """Record everything for one more environment."""
        if tracer not in self._tracers:
            tracer(**self._facts)
            self._tracers.append(tracer)

    def remove(self, tracer: Tracer) -> None:
        """Stop recording for an environment."""
        if tracer in self._tracers:
            self._tracers.remove(tracer)

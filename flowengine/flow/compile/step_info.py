"""A step during the compilation of its flow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flowengine.flow.loading.files import Definition
from flowengine.flow.models import Loc, Step
from flowengine.kernel.graph.specs import StepSpec


@dataclass(slots=True, eq=False)
class Info:
    """A step during compilation."""

    number: int
    model: Step
    spec: StepSpec
    parent: int
    """The enclosing group, or -1 at top level."""
    action: str
    """The action's key, or `none`."""
    given: Any
    """The value of that key."""
    children: list[int] = field(default_factory=list)
    """The steps of a group, without those of its `finally`."""
    flow: Definition | None = None
    """The flow that it runs, if it runs one and waits for it."""
    effect: str = "once"

    @property
    def id(self) -> str:
        """The step's id."""
        return self.model.id

    @property
    def each(self) -> bool:
        """Whether it has a map whose items continue with separate tokens."""
        given = self.model.map
        return given is not None and given.join is not None and given.join.need == "none"

    @property
    def loc(self) -> Loc:
        """Its place."""
        return self.model.loc

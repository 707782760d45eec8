"""A step while its flow is compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flowengine.flow.loading.files import Definition
from flowengine.flow.models import Loc, Step
from flowengine.kernel.graph.specs import StepSpec


@dataclass(slots=True, eq=False)
class Info:
    """A step while it is compiled."""

    number: int
    model: Step
    spec: StepSpec
    parent: int
    """The group around it; -1 at top level."""
    action: str
    """The action's key; `none`."""
    given: Any
    """What stands behind that key."""
    children: list[int] = field(default_factory=list)
    """Its steps, of a group; those of its `finally` are not among them."""
    flow: Definition | None = None
    """The flow that it runs, if it runs one and waits for it."""
    effect: str = "once"

    @property
    def id(self) -> str:
        """The step's id."""
        return self.model.id

    @property
    def each(self) -> bool:
        """Whether it has a map whose items go on as tokens of their own."""
        given = self.model.map
        return given is not None and given.join is not None and given.join.need == "none"

    @property
    def loc(self) -> Loc:
        """Where it stands."""
        return self.model.loc

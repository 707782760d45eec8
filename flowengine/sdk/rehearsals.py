"""Attempts in test cases of flows: nothing outside is asked, its answers stand in the case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flowengine.kernel.graph.compiled import Plain


@dataclass(frozen=True)
class Rehearsal:
    """One attempt of a kind that makes its output from what somebody outside replies.

    A case has the replies below `agents`, by the id of the step.
    """

    output: Callable[[Mapping[str, Plain]], Plain]
    """Makes the output from a reply, as the case has it."""
    asked: Mapping[str, Plain] | None = None
    """What would be asked, for cases that say it. None: nobody is asked, and there is no reply."""
    reply: Callable[[Plain], Mapping[str, Plain]] | None = None
    """Makes from an output the reply that it came from, as far as that is known."""
    names_tools: bool = False
    """Whether the reply has `tools` besides: the names of the tools that the case answers for."""
    error_data: Mapping[str, Plain] = field(default_factory=dict)
    """Type of an error → its `data`, where the case gives none."""

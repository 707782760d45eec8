"""Attempts in test cases of flows, where replies from outside are part of the case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from flowengine.kernel.graph.compiled import Plain


class Rehearsal(NamedTuple):
    """An attempt of a kind whose output is made from a reply from outside.

    A case contains the replies below `agents`, by the id of the step.
    """

    output: Callable[[Mapping[str, Plain]], Plain]
    """Makes the output from a reply, as written in the case."""
    asked: Mapping[str, Plain] | None = None
    """The request, for cases that check it. None if nothing is requested, so that there is no
    reply."""
    reply: Callable[[Plain], Mapping[str, Plain]] | None = None
    """Makes from an output the reply that it came from, as far as that is known."""
    names_tools: bool = False
    """Whether the reply also has `tools`: the names of the tools whose results are in the case."""
    error_data: Mapping[str, Plain] = {}
    """Type of an error → its `data`, if the case has none."""

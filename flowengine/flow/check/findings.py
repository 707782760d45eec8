"""What a check finds: a code, a step, words."""

from __future__ import annotations

from typing import NamedTuple

from flowengine.flow.check.net import Step


class Finding(NamedTuple):
    """Something wrong with a step; the caller knows where the step stands."""

    code: str
    step: Step
    message: str
    hint: str | None = None
    where: tuple[str | int, ...] = ("id",)
    """Path from the step to what is meant; the key of its last part, but for `id`."""
    related: tuple[tuple[Step, str], ...] = ()
    """Other steps that belong to it."""

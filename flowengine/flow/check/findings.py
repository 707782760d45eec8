"""The finding of a check: a code, a step, a message."""

from __future__ import annotations

from typing import NamedTuple

from flowengine.flow.check.net import Step


class Finding(NamedTuple):
    """An error or warning about a step. The caller knows the step's place."""

    code: str
    step: Step
    message: str
    hint: str | None = None
    where: tuple[str | int, ...] = ("id",)
    """Path from the step to the relevant part. The finding is about the key of its last part,
    except for `id`."""
    related: tuple[tuple[Step, str], ...] = ()
    """Other steps involved."""

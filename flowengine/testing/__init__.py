"""Test doubles and simulators for users and for this project's tests. See docs/testing.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

if TYPE_CHECKING:
    from flowengine.testing.explorer import (
        Explored,
        ScheduleFailed,
        anything,
        deciding,
        explore,
        sending,
    )
    from flowengine.testing.model_replies import call, scripted
    from flowengine.testing.simulator import Asks, Fails, Measures, OneOf, Simulator

__all__ = [
    "Asks",
    "Explored",
    "Fails",
    "Measures",
    "OneOf",
    "ScheduleFailed",
    "Simulator",
    "anything",
    "call",
    "deciding",
    "explore",
    "scripted",
    "sending",
]

_HOMES = {
    **dict.fromkeys(
        ("Explored", "ScheduleFailed", "anything", "deciding", "explore", "sending"), ".explorer"
    ),
    **dict.fromkeys(("call", "scripted"), ".model_replies"),
    **dict.fromkeys(("Asks", "Fails", "Measures", "OneOf", "Simulator"), ".simulator"),
}

__getattr__, __dir__ = exports(__name__, __all__, _HOMES)

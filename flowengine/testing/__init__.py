"""Test doubles and simulators for users and for this project's tests. See docs/testing.md."""

from flowengine.testing.explorer import (
    Explored,
    ScheduleFailed,
    anything,
    deciding,
    explore,
    sending,
)
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
    "deciding",
    "explore",
    "sending",
]

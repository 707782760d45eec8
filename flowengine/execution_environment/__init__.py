"""Managed environments: live resources that are opened, shared, checked and released.

    from flowengine.execution_environment import manager

    spec = {"kind": "python", "scope": "session", "owner_id": "ana"}
    with manager().use(spec) as sandbox:
        sandbox.run("print(1)")

Flows, tools and agents use this package internally. Authors of providers and other programs use it
directly. Everything is imported and started when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

if TYPE_CHECKING:
    from flowengine.execution_environment.bookkeeping.books import Capacity
    from flowengine.execution_environment.bookkeeping.instances import Handle
    from flowengine.execution_environment.clock import SystemTimerClock, TimerClock
    from flowengine.execution_environment.environment_manager import (
        EnvironmentManager,
        manager,
        release_on_termination,
    )
    from flowengine.execution_environment.errors import Fault, SpecInvalid, UnknownEnvironment
    from flowengine.execution_environment.lifecycle.scope_release import ReleaseReport
    from flowengine.execution_environment.observation import Event
    from flowengine.execution_environment.resources.opening import TimeBounds
    from flowengine.execution_environment.specs.providers import (
        register_provider,
        register_sandbox,
        unregister_provider,
        unregister_sandbox,
    )

_HOMES = {
    "TimeBounds": ".resources.opening",
    "Capacity": ".bookkeeping.books",
    "TimerClock": ".clock",
    "EnvironmentManager": ".environment_manager",
    "Event": ".observation",
    "Fault": ".errors",
    "Handle": ".bookkeeping.instances",
    "ReleaseReport": ".lifecycle.scope_release",
    "SpecInvalid": ".errors",
    "SystemTimerClock": ".clock",
    "UnknownEnvironment": ".errors",
    "manager": ".environment_manager",
    "register_provider": ".specs.providers",
    "register_sandbox": ".specs.providers",
    "release_on_termination": ".environment_manager",
    "unregister_provider": ".specs.providers",
    "unregister_sandbox": ".specs.providers",
}

__all__ = [
    "Capacity",
    "EnvironmentManager",
    "Event",
    "Fault",
    "Handle",
    "ReleaseReport",
    "SpecInvalid",
    "SystemTimerClock",
    "TimeBounds",
    "TimerClock",
    "UnknownEnvironment",
    "manager",
    "register_provider",
    "register_sandbox",
    "release_on_termination",
    "unregister_provider",
    "unregister_sandbox",
]

__getattr__, __dir__ = exports(__name__, __all__, _HOMES)

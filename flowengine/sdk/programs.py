"""Base classes for kinds of environments that run programs in a sandbox.

`SupervisedProvider` opens a sandbox and starts a supervisor in it, which runs programs within the
limits of the spec, ends all their descendants, and moves files in and out. `Supervised` is the base
of the resource, and `Programs` that of the model of `config:`. `StepFiles` copies files of other
steps in, and keeps those that a step names.

The classes belong to the built-in environments and are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

if TYPE_CHECKING:
    from flowengine_envs.kinds.configurations import Programs
    from flowengine_envs.kinds.results import CommandResult
    from flowengine_envs.kinds.supervised import Supervised, SupervisedProvider
    from flowengine_envs.kinds.workspace import StepFiles

__all__ = ["CommandResult", "Programs", "StepFiles", "Supervised", "SupervisedProvider"]

_HOMES = {
    "CommandResult": "flowengine_envs.kinds.results",
    "Programs": "flowengine_envs.kinds.configurations",
    "StepFiles": "flowengine_envs.kinds.workspace",
    "Supervised": "flowengine_envs.kinds.supervised",
    "SupervisedProvider": "flowengine_envs.kinds.supervised",
}

__getattr__, __dir__ = exports(__name__, __all__, _HOMES)

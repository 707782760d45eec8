"""Base classes for kinds of environments that run programs in a sandbox.

`SupervisedProvider` opens a sandbox and starts a supervisor in it, which runs programs within the
limits of the spec, ends all their descendants, and moves files in and out. `Supervised` is the base
of the resource, and `Programs` that of the model of `config:`. `StepFiles` copies files of other
steps in, and keeps those that a step names.
"""

from __future__ import annotations

from flowengine_envs.kinds.configurations import Programs
from flowengine_envs.kinds.results import CommandResult
from flowengine_envs.kinds.supervised import Supervised, SupervisedProvider
from flowengine_envs.kinds.workspace import StepFiles

__all__ = ["CommandResult", "Programs", "StepFiles", "Supervised", "SupervisedProvider"]

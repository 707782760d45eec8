"""Loads what steps will need while others are still at work."""

from __future__ import annotations

import threading
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING

from flowengine import registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flowengine.kernel.graph.specs import StepSpec


def load_ahead(steps: Sequence[StepSpec], labels: Mapping[str, str]) -> None:
    """Let the kinds of steps load what the steps will need, on a thread.

    Args:
        steps: Those that are marked.
        labels: Of the execution.
    """

    def load() -> None:
        for step in steps:
            with suppress(Exception):  # what is wrong is told when the step runs
                registry.kind_class(step["kind"]).ahead(step.get("task", {}), labels)

    run = copy_context().run  # what a program has set for this run counts there too
    threading.Thread(target=run, args=(load,), name="flowengine-ahead", daemon=True).start()

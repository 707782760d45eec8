"""Preloading for steps while earlier steps are still running."""

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
    """Let step kinds preload the requirements of steps, on a separate thread.

    Args:
        steps: The steps marked for preloading.
        labels: Labels of the execution.
    """

    def load() -> None:
        for step in steps:
            with suppress(Exception):  # errors are reported when the step runs
                registry.kind_class(step["kind"]).ahead(step.get("task", {}), labels)

    run = copy_context().run  # context variables set by the program apply there too
    threading.Thread(target=run, args=(load,), name="flowengine-ahead", daemon=True).start()

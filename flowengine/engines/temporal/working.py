"""The door for workers, which a mere caller of a store does not load."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection

from flowengine.engines.infos import ScheduledStart
from flowengine.engines.rule_files import RuleFiles
from flowengine.engines.temporal import worker
from flowengine.engines.temporal.connection import read_address
from flowengine.engines.temporal.objects import VARIABLE
from flowengine.engines.temporal.requests import MOST_BYTES, MOST_OFFERED
from flowengine.engines.temporal.room import LARGEST_HISTORY
from flowengine.errors import UsageError
from flowengine.sdk.python.argument_checks import offered
from flowengine.sdk.texts.sizes import size_text
from flowengine.settings_files import load_settings
from flowengine.store_folder import project_folder
from flowengine.telemetry.worker_log import Format
from flowengine.util.files import MACHINE_FOLDER, user_folder


async def work(
    address: str,
    *,
    drain: float,
    heartbeat: float,
    deployment: str | None,
    log_format: Format,
    stopping: asyncio.Event,
    offers: Collection[str] = (),
    concurrency: int | None = None,
    on_ready: Callable[[], None],
    on_attempt: Callable[[str, str, str], None],
    on_start: Callable[[ScheduledStart], None],
) -> None:
    """Run a worker for a store until stopped. See `flowengine.engines.temporal.worker.work`.

    Raises:
        UsageError: As for `open_remote`.
        FlowFileError: The rules of this host have errors.
    """
    named = read_address(address)
    rules = RuleFiles([MACHINE_FOLDER, user_folder()], None, project_folder())
    rules.check()
    worker.forward_logs()
    await worker.work(
        named,
        drain=drain,
        heartbeat=heartbeat,
        deployment=deployment,
        offers=_few(offered(offers)),
        concurrency=concurrency,
        log_format=log_format,
        strict=load_settings(project_folder()).strict,
        rules=rules,
        stopping=stopping,
        on_ready=on_ready,
        on_attempt=on_attempt,
        on_start=on_start,
    )


def _few(labels: Collection[str]) -> Collection[str]:
    """Return the labels of a worker, if it can have a task queue for each set of them."""
    if len(labels) > MOST_OFFERED:
        raise UsageError(
            f"offers: {len(labels)} labels are given, at most {MOST_OFFERED} are possible here",
            hint="in Temporal, start a worker for the others",
        )
    return labels


def without_objects() -> str | None:
    """Return what needs the object store, if there is none."""
    if os.environ.get(VARIABLE):
        return None
    return (
        f"${VARIABLE} is not set: values of more than {size_text(MOST_BYTES)}, executions whose "
        f"values fill a history of {size_text(LARGEST_HISTORY)}, files of steps, and files of "
        "environments of executions that are moved need it"
    )

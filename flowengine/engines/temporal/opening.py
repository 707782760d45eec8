"""Access to stores in Temporal. Loads Temporal's package only when such a store is used."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection

from flowengine.engines.policy_files import PolicyFiles
from flowengine.engines.results import ScheduledStart
from flowengine.engines.temporal.connection import read_address
from flowengine.engines.temporal.objects import VARIABLE
from flowengine.engines.temporal.requests import MOST_BYTES, MOST_OFFERED
from flowengine.engines.temporal.room import LARGEST_HISTORY
from flowengine.engines.temporal.store import TemporalStore
from flowengine.errors import UsageError
from flowengine.sdk.argument_checks import offered
from flowengine.sdk.extras import install_command
from flowengine.sdk.sizes import size_text
from flowengine.settings_files import load_settings
from flowengine.store_folder import project_folder
from flowengine.telemetry.worker_log import Format
from flowengine.util.files import MACHINE_FOLDER, user_folder


def open_remote(address: str) -> TemporalStore:
    """Return the store at an address.

    Raises:
        UsageError: The address is not valid, or Temporal's package is not installed.
    """
    named = read_address(address)
    _check_installed(address)

    return TemporalStore(named)


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
        FlowFileError: The policies of this host have errors.
    """
    named = read_address(address)
    _check_installed(address)
    policies = PolicyFiles([MACHINE_FOLDER, user_folder()], None, project_folder())
    policies.check()
    from flowengine.engines.temporal.worker import forward_logs, work

    forward_logs()
    await work(
        named,
        drain=drain,
        heartbeat=heartbeat,
        deployment=deployment,
        offers=_few(offered(offers)),
        concurrency=concurrency,
        log_format=log_format,
        strict=load_settings(project_folder()).strict,
        policies=policies,
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


def _check_installed(address: str) -> None:
    try:
        import temporalio  # noqa: F401
    except ModuleNotFoundError:
        raise UsageError(
            f"the store {address} needs the package temporalio",
            hint=f"install it: {install_command('temporal')}",
        ) from None

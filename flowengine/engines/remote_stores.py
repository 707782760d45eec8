"""The door to stores in Temporal. Nothing else imports their package."""

from __future__ import annotations

from typing import Any

from flowengine.engines import temporal as stores
from flowengine.sdk.python.extras import missing_package


def temporal() -> Any:
    """Return `flowengine.engines.temporal.opening`, which is loaded once such a store is used.

    Raises:
        UsageError: Temporal's package is not installed.
    """
    try:
        return stores.opening
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from None

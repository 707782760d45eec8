"""Changes in the audit record: there before they take effect, with their end afterwards."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowengine.errors import FlowEngineError
from flowengine.server.problems import RequestRefused, status_of

if TYPE_CHECKING:
    from flowengine.server.records import ServerRecords

_log = logging.getLogger("flowengine.server")


@dataclass
class Act:
    """How a change ended."""

    status: int = 200
    why: str | None = None


@contextmanager
def recorded(
    records: ServerRecords, method: str, path: str, user: str, token: str | None, address: str
) -> Iterator[Act]:
    """Record a change before it takes effect, and afterwards how it ended.

    Args:
        records: Contains the audit record.
        method: Of the request, or the protocol.
        path: Of the object that is changed.
        user: Who changes it.
        token: Name of the credential.
        address: The address of the client.

    Yields:
        How it ends. An error in the block is its end, too. Until then, the entry has the status 0,
        and also if the block is cancelled, which does not stop what is under way.

    Raises:
        RequestRefused: It cannot be recorded, so it must not take effect.
    """
    now, act = int(time.time() * 1000), Act()
    try:
        number = records.audit(now, method, path, 0, user=user, token=token, address=address)
    except (sqlite3.Error, OSError) as error:
        _log.error("the audit record in %s cannot be written: %s", records.folder, error)
        raise RequestRefused(503, "the audit record cannot be written") from None
    try:
        yield act
    except FlowEngineError as error:
        act.status, act.why = status_of(error), error.message
        raise
    except Exception:
        act.status, act.why = 500, "the server failed"
        raise
    except BaseException:
        act.status, act.why = 0, "it was cancelled, and may have taken effect"
        raise
    finally:
        try:
            records.end_act(number, act.status, act.why)
        except (sqlite3.Error, OSError) as error:  # the entry is there, without its end
            _log.error("the audit record in %s cannot be written: %s", records.folder, error)

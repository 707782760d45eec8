"""Files that users upload, to be named in inputs, forms, signals and decisions.

A file is kept in the store for a week, and longer once an execution refers to it. Requests name it
by its digest, and only those of the user who has uploaded it: knowing a digest gives no access, and
no request names a path of this machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import TYPE_CHECKING, Any

from starlette.routing import Route as PathRoute

from flowengine.durable_files import make_folder
from flowengine.errors import NotAllowed
from flowengine.sdk.file_names import clean_name
from flowengine.sdk.threads import on_thread
from flowengine.server.records import ServerRecords, StoredUpload
from flowengine.server.rights import Principal, Right
from flowengine.server_settings import UploadRules

if TYPE_CHECKING:
    from flowengine.server.calls import ApiCall

_PIECE = 1024 * 1024
_ABANDONED_SECONDS = 24 * 3600
_RIGHTS = (Right.START, Right.DECIDE, Right.OPERATE)


class TakesFiles(PathRoute):
    """A path whose forms have files, and are therefore as large as an upload."""


async def received(records: ServerRecords, parts: AsyncIterator[bytes]) -> Path:
    """Write a body to a temporary file, whose size the guard in front has bounded.

    Args:
        records: Whose directory it is written to.
        parts: The body.

    Returns:
        The file, which the caller removes.
    """
    file = await on_thread(lambda: NamedTemporaryFile(dir=_incoming(records), delete=False))  # noqa: SIM115
    try:
        with file:
            piece = bytearray()
            async for part in parts:
                piece += part
                if len(piece) >= _PIECE:
                    full, piece = bytes(piece), bytearray()
                    await on_thread(lambda full=full: file.write(full))  # type: ignore[misc]
            await on_thread(lambda: file.write(piece))
    except BaseException:
        os.unlink(file.name)
        raise
    return Path(file.name)


def _incoming(records: ServerRecords) -> str:
    """Return the directory of files that are being received, without those of dead servers."""
    folder = os.path.join(records.folder, "incoming")
    make_folder(folder, synced=False)
    oldest = time.time() - _ABANDONED_SECONDS
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # it is received now
            if entry.stat().st_mtime < oldest:
                os.unlink(entry.path)
    return folder


def check_may_upload(principal: Principal) -> None:
    """Check that a user may use files in any request.

    Raises:
        NotAllowed: The user may not.
    """
    if not any(principal.may_somewhere(right) for right in _RIGHTS):
        raise NotAllowed(
            f"{principal.user} lacks the right to start, decide or operate anything",
            hint="rights come from 'access' in the host's settings.yaml and the token's scope",
        )


def upload(call: ApiCall) -> Any:
    """Keep a file, to be named in later requests of the same user. The body is its content."""
    name, path = clean_name(call.query.name), call.body
    rules = call.engine.settings.uploads or UploadRules()
    now, user = int(time.time() * 1000), call.principal.user
    with path.open("rb") as file:
        rules.check(name, file.read(8))
    call.records.check_uploads(user, path.stat().st_size, now)
    kept = StoredUpload(*call.engine.store.hold_artifact(path, name))
    call.records.end_upload(user, kept, now)
    return kept._asdict()


@contextmanager
def attached(call: ApiCall, digests: Sequence[str]) -> Iterator[list[str]]:
    """Return paths of uploaded files with their names, in the block only.

    Raises:
        NotFound: The user has not uploaded one of them.
    """
    files = [call.records.upload(call.principal.user, digest) for digest in digests]
    with TemporaryDirectory(dir=call.records.folder) as folder:
        paths = []
        for number, file in enumerate(files):
            place = Path(folder, str(number))
            place.mkdir()
            (place / file.name).symlink_to(call.engine.store.fetch_artifact(file.sha256))
            paths.append(str(place / file.name))
        yield paths

"""Creates stores on a disk with varying free space. PLACE is a small file system.

    python -m tests.attacks.full_disk PLACE

For each number of free pages, from zero to more than a store needs, it prints the error on the full
disk, and the error of a second try with enough space.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from flowengine.engines.stores import open_store
from flowengine.errors import StoreError

MOST = 130
"""More free pages than a store needs."""


def main(place: Path) -> None:
    """Try each number of free pages, and print the errors."""
    told = []
    for pages in range(MOST):
        project = place / f"project{pages}"
        project.mkdir()
        os.chdir(project)
        os.environ["XDG_STATE_HOME"] = str(project / "state")
        fill(place, pages)
        told.append(opened())
        (place / "filling").unlink()
        told[-1] += opened()  # with free space again
        shutil.rmtree(project)
    sys.stdout.write(json.dumps(told))


def fill(place: Path, pages: int) -> None:
    """Leave that many pages free."""
    room = os.statvfs(place)
    free = room.f_bfree - pages - 2  # a folder and a file may occupy one each
    with (place / "filling").open("wb", buffering=0) as file:
        file.write(b"x" * free * room.f_bsize)
        while os.statvfs(place).f_bfree > pages:
            file.write(b"x" * room.f_bsize)


def opened() -> list[str]:
    """Open the store of the current folder, and return its error, if any."""
    try:
        open_store("", "power").close()
    except StoreError as error:
        return [str(error)]
    return []


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Temporary folders on a disk, for modules that import this fixture.

Tests usually write to memory if there is room. Files that a container writes there count against
its memory limit, so a test of the disk limit would hit the wrong limit.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.TempPathFactory]:
    on_disk = copy.copy(tmp_path_factory)
    # pytest takes the base folder from an option, which is that of the whole run.
    on_disk._basetemp = Path(tempfile.mkdtemp(prefix="flowengine-tests-", dir="/tmp"))
    yield on_disk
    shutil.rmtree(on_disk._basetemp, ignore_errors=True)

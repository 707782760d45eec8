"""Temporary folders on a disk, for a module that imports this.

Tests write in memory where there is room. What a container writes there counts against its limit of
memory, so a test of the limit of disk space would meet the wrong one.
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
    on_disk._basetemp = Path(tempfile.mkdtemp(prefix="flowengine-tests-", dir="/tmp"))
    yield on_disk
    shutil.rmtree(on_disk._basetemp, ignore_errors=True)

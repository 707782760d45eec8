from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agents.models.wire import Wire, serving


@pytest.fixture
def wire() -> Iterator[Wire]:
    with serving() as one:
        yield one

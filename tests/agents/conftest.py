"""What tests of agents share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agents.models.wire import Wire, serving


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """Return a server that answers as the provider of `openai/` models."""
    with serving() as one:
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        monkeypatch.setenv("OPENAI_API_BASE", f"{one.url}/v1")
        yield one

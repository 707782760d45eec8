from __future__ import annotations

import pytest

from flowengine import registry


@pytest.fixture(autouse=True)
def caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the step kind of this directory."""
    point = registry._BuiltIn("caller", "tests.exchanges.caller:Caller")  # as an entry point does
    monkeypatch.setitem(registry._built_in[registry.NODES], "caller", point)

"""Runs of agents whose process dies at a write, and which another process resumes."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import Engine
from tests.agents.flows import Case
from tests.testing.faulty_store import Fault, FaultyStore, ProcessDied


def crashed(case: Case, write: int, fault: Fault) -> FaultyStore:
    """Run a flow in a process that dies at a write, and return the data on disk."""
    store = FaultyStore(faults={write: fault})
    with pytest.raises(ProcessDied), Engine(store, workdir=case.folder) as engine:
        engine.run(case.path, id="it")
    store.restart()
    store.faults.clear()
    return store


def gone_on(case: Case, store: FaultyStore) -> Any:
    """Resume in another process."""
    with Engine(store, workdir=case.folder) as engine:
        result = engine.run(case.path, id="it")
        return engine.resume("it") if result.status == "running" else result

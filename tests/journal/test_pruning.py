"""Removing executions lets other processes write in between."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.journal.sqlite import pruning
from tests.replacing import Limits


@pytest.mark.endurance
def test_others_write_while_many_executions_are_removed(tmp_path: Path, limits: Limits) -> None:
    limits(pruning, _BATCH=10)
    flow = tmp_path / "flow.yaml"
    flow.write_text("flowengine: 1\nid: it\nsteps: [{id: a, output: 1}]\n")
    begun, ended, written = threading.Event(), threading.Event(), []

    def write() -> None:
        with Engine(tmp_path / "store", durability="process") as other:
            begun.set()
            while not ended.is_set():
                written.append(other.start(flow))

    with Engine(tmp_path / "store", durability="process") as engine:
        for _ in range(1000):
            engine.run(flow)
        thread = threading.Thread(target=write)
        thread.start()
        begun.wait()
        before = len(written)
        removed = engine.executions.prune(status=["succeeded"])
        during = len(written) - before
        ended.set()
        thread.join()
    assert removed.executions == 1000
    assert during >= 40  # of 100 batches. Without a pause after each, it is a tenth of that

# Shows G13
"""The agent that refunds late orders with one program, which waits for approvals (G13)."""

from __future__ import annotations

import shutil

from flowengine import Engine
from tests.examples.conftest import EXAMPLES, Shell


def test_a_program_refunds_late_orders_and_waits_for_approvals(flowengine: Shell) -> None:
    shutil.copytree(EXAMPLES / "late_orders", flowengine.folder, dirs_exist_ok=True)
    path = flowengine.folder / "late_orders.yaml"
    asked = []
    with Engine(flowengine.folder / "store.db", workdir=flowengine.folder) as engine:
        result = engine.run(path)
    while result.waits:
        [wait] = result.waits
        asked.append(wait["subject"])
        with Engine(flowengine.folder / "store.db", workdir=flowengine.folder) as engine:
            decided = engine.approvals.reject if len(asked) == 2 else engine.approvals.approve
            made = decided(wait["id"]).result
        assert made is not None
        result = made

    assert asked == [{"number": 150, "amount": 150}, {"number": 200, "amount": 200}]
    assert result.outputs == {"answer": "The late orders have been handled."}

"""`start`: a message goes to the open execution with its key, or else starts one (F93)."""

from __future__ import annotations

from pathlib import Path

from flowengine.engines.engine import Engine
from tests.engines import child, world

TIMES = 200
ORDER = """
inputs:
  order: {type: string}
  customer: {type: string}
start:
  - signal: placed
    with: {order: "${{ signal.key }}", customer: "${{ signal.data.customer }}"}
signals:
  placed:
    key: ${{ inputs.order }}
    data: {type: object, properties: {customer: {type: string}}, required: [customer]}
  paid: {key: "${{ inputs.order }}"}
state: {again: {type: array, default: [], reducer: append}}
steps:
  - {id: pay, wait: {signal: paid}, next: end_all}
  - {id: more, trigger: placed, set: {again: "${{ signal.data.customer }}"}}
outputs: {customer: "${{ inputs.customer }}", again: "${{ state.again }}"}
"""


# Shows F93
def test_two_first_messages_at_once_begin_one_execution(tmp_path: Path) -> None:
    """From two processes, many times: the second message goes to the first one's execution."""
    store = tmp_path / "store"
    with Engine(store) as engine:
        engine.flows.deploy(world.make(tmp_path, ORDER))
    barrier = child.CONTEXT.Barrier(2)
    both = [
        child.start(child.send_at_once, str(store), barrier, who, TIMES) for who in ("ada", "bob")
    ]
    for process in both:
        process.join(60)
        assert process.exitcode == 0
    with Engine(store) as engine:
        page = engine.executions.list(limit=2 * TIMES)
        assert len(page.items) == TIMES
        firsts = set()
        for one in page.items[::10]:
            key = engine.resume(one["execution"]).waits[0]["signals"][0]["key"]
            ended = engine.signal("paid", key=key).result
            assert ended is not None
            assert ended.outputs is not None
            [second] = ended.outputs["again"]
            assert {ended.outputs["customer"], second} == {"ada", "bob"}
            firsts.add(second)
        assert all(len(engine.store.inbox(one["execution"])) in (0, 2) for one in page.items)

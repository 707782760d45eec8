"""`retry` after a reducer that failed."""

from __future__ import annotations

from pathlib import Path

from flowengine.engines.engine import Engine
from tests.engines import world
from tests.engines.test_reducers import forget_modules


def calls(folder: Path) -> list[str]:
    return [address for address, _, _ in world.effects(folder)]


REDUCED = """
state:
  log: {type: array, items: {type: integer}, default: [], reducer: append}
  sum: {type: integer, default: 0, reducer: {python: "ledger:book"}}
steps:
  - {id: one, python: "effects:act", effect: once, set: {log: 1, sum: 1}}
  - id: m
    map: {over: 3, concurrency: 1, on_item_error: wait}
    group:
      - {id: pay, python: "effects:act", effect: once, set: {log: "${{ index + 10 }}"}}
      - {id: check, python: "effects:fail_until_file", with: {item: "${{ index }}"}, set: {log: "${{ index + 20 }}"}}
  - {id: two, python: "effects:act", effect: once, set: {sum: "${{ output + 1 }}"}}
outputs: {log: "${{ state.log }}", sum: "${{ state.sum }}"}
"""  # noqa: E501
BOOK = "def book(old, new): return old + new\n"
BROKEN = "def book(old, new):\n    assert new < 2, 'too much'\n    return old + new\n"


def test_a_reducer_that_failed_is_called_again_and_its_step_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "refused").write_text("")
    (tmp_path / "ledger.py").write_text(BROKEN)
    engine = Engine(tmp_path / "store", durability="process")
    engine.run(world.make(tmp_path, REDUCED), id="it")
    done = calls(tmp_path)
    assert done[-1] == "two"
    assert engine.executions.retry("it").status == "failed"
    (tmp_path / "ledger.py").write_text(BOOK)
    forget_modules()
    again = engine.executions.retry("it")
    assert (again.status, again.error) == ("succeeded", None)
    assert (again.outputs or {})["sum"] == 3
    assert calls(tmp_path) == done
    engine.close()

"""Many concurrent decisions from several processes (F22, F41)."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.host import SystemClock
from flowengine.engines.memory.store import MemoryStore
from flowengine.errors import Conflict, NotFound
from flowengine.journal.records import Append
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.notation.times import parse_time
from tests.engines import child, world

FIFTY = """
steps:
  - id: each
    map: {over: 50, concurrency: 4}
    group:
      - id: sign
        approval: {title: "Item ${{ index }}"}
        next: {outcome: {approve: took, reject: left}}
      - {id: took, output: "${{ index }}", next: end}
      - {id: left, output: -1}
    output: ${{ steps.took.output }}
outputs:
  taken: ${{ steps.each.output.filter(n, n != null) }}
"""
PROCESSES = 4


def answer_some(folder: Path, share: int) -> None:
    """Decide on every fourth wait, in random order. Each decision tries to resume the execution."""
    with Engine(folder / "store", durability="process", user=f"user:{share}") as engine:
        waits = engine.approvals.list(limit=100).items
        mine = [w for w in waits if int(w["title"].split()[1]) % PROCESSES == share]
        random.Random(share).shuffle(mine)
        for wait in mine:
            choice = "approve" if int(wait["title"].split()[1]) % 3 else "reject"
            engine.approvals.decide(wait["id"], choice)


# Shows F22
def test_fifty_items_answered_in_any_order_by_several_processes(tmp_path: Path) -> None:
    with Engine(tmp_path / "store", durability="process") as engine:
        result = engine.run(world.make(tmp_path, FIFTY), id="it")
        assert len(result.waits) == 50  # waiting items do not count toward `concurrency`
        one = result.waits[17]
        moved = engine.approvals.approve(one["id"]).result
        assert moved is not None
        assert {w["id"] for w in moved.waits} == {w["id"] for w in result.waits} - {one["id"]}
    children = [child.start(answer_some, tmp_path, share) for share in range(PROCESSES)]
    for process in children:
        process.join()
        assert process.exitcode == 0
    with Engine(tmp_path / "store", durability="process") as engine:
        result = engine.resume("it")
        assert result.status == "succeeded"
        assert result.outputs == {"taken": [n for n in range(50) if n % 3 or n == 17]}


def decide_all(folder: Path, me: str) -> None:
    """Decide on every wait in the listed order, and record the decisions that stand."""
    lines = []
    with Engine(folder / "store", durability="none", user=f"user:{me}") as engine:
        page = engine.approvals.list(status="all", limit=1000)
        for wait in page.items:
            choice = "approve" if me == "a" else "reject"
            try:
                decision = engine.approvals.decide(wait["id"], choice, resume=False)
                lines.append(f"{wait['id']} {decision.by} {decision.first}")
            except Conflict as error:
                lines.append(f"{wait['id']} {error.standing['by']} lost")
    (folder / f"said-{me}").write_text("\n".join(lines))


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
# Shows F41
def test_of_two_answers_at_once_one_stands(tmp_path: Path, block: int) -> None:
    """A hundred times per block, each time from two processes."""
    text = "steps:\n  - {id: each, map: 100, approval: Sure?, on_error: continue}\n"
    with Engine(tmp_path / "store", durability="none") as engine:
        assert len(engine.run(world.make(tmp_path, text), id="it").waits) == 100
    children = [child.start(decide_all, tmp_path, me) for me in "ab"]
    for process in children:
        process.join()
    said: dict[str, list[tuple[str, str, str]]] = {}
    for me in "ab":
        for line in (tmp_path / f"said-{me}").read_text().splitlines():
            wait, stands, how = line.split()
            said.setdefault(wait, []).append((me, stands, how))
    assert len(said) == 100
    for answers in said.values():
        (_, by_a, how_a), (_, by_b, how_b) = answers
        assert by_a == by_b
        assert sorted([how_a, how_b]) == ["True", "lost"]
        assert (how_a == "True") == (by_a == "user:a")


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_expiry_and_a_decision_at_the_same_time_agree_on_one(tmp_path: Path, block: int) -> None:
    text = """
steps:
  - id: sign
    approval: {title: Sure?, expires: SPANms}
    next: {outcome: {approve: good, reject: end, expired: late}}
  - {id: good, output: good, next: end}
  - {id: late, output: late}
outputs: {good: "${{ steps.good.output }}", late: "${{ steps.late.output }}"}
"""
    stood: set[bool] = set()
    for number in range(20):
        if number > 2 and stood == {True, False}:
            break
        # If one side always won because the machine is busy, the other gets a head start.
        late = min(10 * 2**number, 10_000) * (len(stood) == 1)
        file = world.make(tmp_path, text.replace("SPAN", f"{100 + 2 * late}"))
        owner = child.start(run, file, f"it{number}")
        drift = late / 1000 * (1 if True in stood else -1)
        stands = decide_at_expiry(
            tmp_path, f"it{number}", ((block + 10 * number) % 20 - 10) * 0.004 + drift
        )
        owner.join()
        with Engine(tmp_path / "store", durability="process") as engine:
            outputs = engine.resume(f"it{number}").outputs
        expected = {"good": "good", "late": None} if stands else {"good": None, "late": "late"}
        assert outputs == expected
        stood.add(stands)
    assert stood == {True, False}


def run(file: Path, id: str) -> None:
    with Engine(file.parent / "store", durability="process") as engine:
        engine.run(file, id=id)


def decide_at_expiry(folder: Path, id: str, later: float) -> bool:
    """Decide that many seconds after the wait expires, and return whether the decision stands."""
    with Engine(folder / "store", durability="process") as engine:
        while True:
            try:
                (wait,) = engine.approvals.list(execution=id, status="all").items
                break
            except (NotFound, ValueError):
                time.sleep(0.001)
        about = parse_time(wait["due"]) / 1000 + later
        time.sleep(max(0, about - time.time()))
        try:
            return engine.approvals.approve(wait["id"]).first
        except Conflict:
            return False


class EarlierClock(SystemClock):
    """The clock of a process that read it a second ago."""

    def now(self) -> int:
        return super().now() - 1000


class LateStore(MemoryStore):
    """A store where a timely decision arrives just before an expiry is committed."""

    decided = 0

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        for append in appends:
            for closed in append.closed:
                if closed.how == "expired" and not self.decided:
                    self.decided += 1
                    with Engine(self, user="user:late", clock=EarlierClock()) as other:
                        wait = wait_id(append.execution, closed.number)
                        other.approvals.approve(wait, resume=False)
        return super().commit(appends)

    def close(self) -> None:
        """Stay open, because several engines use the store."""


def test_decision_recorded_just_before_an_expiry_is_committed_wins_and_loses_no_result(
    tmp_path: Path,
) -> None:
    text = """
steps:
  - id: both
    parallel:
      - id: sign
        approval: {title: Sure?, expires: 40ms}
      - {id: nap, python: "effects:nap", effect: once, with: {seconds: 0.04}}
outputs: {by: "${{ steps.both.output.sign.by }}", nap: "${{ steps.both.output.nap }}"}
"""
    store = LateStore()
    with Engine(store) as engine:
        result = engine.run(world.make(tmp_path, text))
    assert store.decided == 1
    assert result.outputs == {"by": "user:late", "nap": "rested"}
    assert len(world.effects(tmp_path)) == 1

"""No function of a user ends a worker or holds it up, wherever it is called."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.memory.store import MemoryStore
from flowengine.errors import StoreError
from flowengine.sdk.python import user_code
from flowengine.server.running import Serving, serve
from flowengine.util.blocking import run_on_new_loop
from tests.engines import world
from tests.replacing import Limits
from tests.worker.test_taking import Stage, statuses

MODULE = """
import asyncio, sys, time
from flowengine.sdk import quick

class Panic(BaseException): pass

def exits(): sys.exit(0)
def interrupts(): raise KeyboardInterrupt
def panics(): raise Panic("no")
def stays(): time.sleep(3)

fails = IT if IT is not stays else lambda: None
def plain(): IT()
async def coroutine(): fails()
@quick
def at_once(): fails()
async def tasks():
    made = asyncio.ensure_future(coroutine())
    asyncio.get_running_loop().stop()
    asyncio.get_running_loop().call_soon(at_once)
    await asyncio.wait([made])
    return "went on"
def reduce(old, new): IT()
def judge(answer: str): IT()
def look(prompt: str): IT()
def fine(): return 1
"""
AGENT = """
defaults: {model: scripted/script.json}
tools: {NAME: {python: "users:NAME", effect: pure}}
agents: {desk: {instructions: Write., checks: [{WHEN: NAME, parallel: true, then: end}]}}
steps: [{id: it, agent: desk, with: {prompt: Write.}}]
"""
FLOWS = {
    **{
        name: f'steps: [{{id: it, python: "users:{name}"}}]'
        for name in ("plain", "coroutine", "at_once", "tasks")
    },
    "reduce": """
state: {sum: {type: integer, default: 0, reducer: {python: "users:reduce"}}}
steps: [{id: it, python: "users:fine", set: {sum: "${{ 1 }}"}}]
""",
    "judge": AGENT.replace("NAME", "judge").replace("WHEN", "after"),
    "look": AGENT.replace("NAME", "look").replace("WHEN", "before"),
}
OVER = {"succeeded", "failed"}


@pytest.mark.parametrize(
    ("it", "error"),
    [
        ("exits", "SystemExit"),
        ("interrupts", "KeyboardInterrupt"),
        ("panics", "Panic"),
        ("stays", "did not return within 0.5 s"),
    ],
)
def test_whatever_a_function_does_its_execution_fails_and_others_go_on(
    folder: Path, limits: Limits, it: str, error: str
) -> None:
    limits(user_code, FUNCTION_SECONDS=0.5)
    Path("users.py").write_text(MODULE.replace("IT", it))
    Path("script.json").write_text(json.dumps([{"text": "words " * 80}] * 3))
    ended: dict[str, Any] = {}

    async def main() -> None:
        async with Engine(folder / "store", linger=0) as engine:
            for name, flow in FLOWS.items():
                file = folder / f"{name}.yaml"
                file.write_text(f"flowengine: 1\nid: {name}\n{flow}")
                engine.start(file, id=name)
            await Stage(engine).until(lambda: {*statuses(engine).values()} <= OVER)
            ended.update({name: engine.executions.result(name) for name in FLOWS})

    run_on_new_loop(main())
    failed = {name for name, one in ended.items() if error in json.dumps(one.error)}
    assert failed == ({"reduce"} if it == "stays" else FLOWS.keys() - {"tasks"})
    assert ended["tasks"].status == "succeeded"


class FullStore(MemoryStore):
    """A store that takes no writes of executions and leases while its disk is full."""

    is_full = False

    def commit(self, *given: Any) -> Any:
        self._check()
        return super().commit(*given)

    def release(self, *given: Any) -> None:
        self._check()
        super().release(*given)

    def outbox(self) -> Any:
        self._check()
        return super().outbox()

    def _check(self) -> None:
        if self.is_full:
            raise StoreError("the disk is full")


def test_after_a_full_disk_the_same_worker_goes_on(tmp_path: Path) -> None:
    (tmp_path / "users.py").write_text(
        "from pathlib import Path\nimport time\n"
        "def nap(n: int) -> int:\n"
        "    while not Path(__file__).with_name('go').exists(): time.sleep(0.01)\n"
        "    return n\n"
    )
    file = tmp_path / "nap.yaml"
    file.write_text(
        "flowengine: 1\nid: nap\nsteps:\n"
        '  - {id: a, python: "users:nap", effect: idempotent, with: {n: 1}}\n'
    )
    store = FullStore()

    async def main() -> None:
        async with Engine(store, linger=0, ttl=0.6) as engine:
            for id in "abc":
                engine.start(file, id=id)
            stage = Stage(engine)

            def all_over() -> bool:
                if len(stage.told) == 3 and not store.is_full:  # all have been taken
                    store.is_full = True
                    (tmp_path / "go").touch()
                if sum(one.error is not None for one in stage.told) == 3:
                    store.is_full = False
                return {*statuses(engine).values()} == {"succeeded"}

            await stage.until(all_over)

    run_on_new_loop(main())


@pytest.mark.parametrize("ends", ["at once", "later"])
def test_a_server_ends_with_the_worker_beside_it(tmp_path: Path, ends: str) -> None:
    worker: Future[int] = Future()
    if ends == "at once":
        worker.set_result(10)
    with Engine(tmp_path / "store") as engine:
        serve(engine, Serving(port=0), lambda _: worker.set_result(10), beside=worker)
    assert worker.result() == 10


def test_a_reducer_at_work_holds_up_no_other_execution_and_is_called_once_per_write(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    (tmp_path / "ledger.py").write_text(
        "import time\nfrom pathlib import Path\nHERE = Path(__file__).parent\n"
        "def note(old, new):\n"
        "    (HERE / f'noted-{len(old)}-{new}').touch(exist_ok=False)\n"
        "    while not (HERE / 'go').exists():\n        time.sleep(0.01)\n"
        "    time.sleep(0.1)\n    return [*old, new]\n"
        "def latest(old, new):\n    (HERE / 'begun').touch()\n"
        "    while not (HERE / 'turned').exists():\n        time.sleep(0.01)\n    return new\n"
    )
    noting = world.make(
        tmp_path,
        """
signals: {word: {}}
state: {notes: {type: array, default: [], reducer: {python: "ledger:note"}}}
steps:
  - {id: first, set: {notes: a}}
  - {id: each, output: "${{ item }}", map: {over: [b, c]}, set: {notes: "${{ output }}"}}
  - {id: told, wait: {signal: word}, set: {notes: "${{ output.data }}"}}
outputs: {notes: "${{ state.notes }}"}
""",
    )
    other = tmp_path / "other.yaml"
    other.write_text(
        "flowengine: 1\nid: other\n"
        'state: {n: {type: integer, default: 0, reducer: {python: "ledger:latest"}}}\n'
        "steps: [{id: it, output: 1, set: {n: '${{ output }}'}}, {id: nap, wait: 50ms}]\n"
    )

    async def play() -> list[str]:
        async with Engine(store) as engine:
            engine.start(noting, id="noting")
            running = asyncio.ensure_future(engine.resume_async("noting"))
            await asyncio.to_thread(world.until, (tmp_path / "noted-0-a").exists)
            await engine.signal_async("word", "d", execution="noting")
            new = asyncio.ensure_future(engine.run_async(other))
            await asyncio.to_thread(world.until, (tmp_path / "begun").exists)
            (tmp_path / "turned").touch()
            assert (await new).status == "succeeded"
            assert not running.done()
            (tmp_path / "go").touch()
            return (await running).outputs["notes"]  # type: ignore[index, no-any-return]

    assert asyncio.run(play()) == ["a", "b", "c", "d"]
    with Engine(store) as engine:
        assert engine.executions.result("noting").outputs == {"notes": ["a", "b", "c", "d"]}
    assert len([*tmp_path.glob("noted-*")]) == 4

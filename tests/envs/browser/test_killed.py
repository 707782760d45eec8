# Shows E86, W15
"""The engine is killed while it has browsers open (E86, W15): nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk.environments import VARIABLE
from flowengine.sdk.processes import marked
from tests.envs.browser.web import Web

CODE = """
import faulthandler
import sys
faulthandler.dump_traceback_later(40)  # on standard error, which a failed test shows
from concurrent.futures import ThreadPoolExecutor
from flowengine.execution_environment import EnvironmentManager, release_on_termination
release_on_termination()
store, place, until = sys.argv[1:]
manager = EnvironmentManager(store)
specs = [{"kind": "browser", "scope": "execution", "owner_id": "e1", "resource_key": key,
          "policy": {"network": [place]}} for key in ("one", "two")]
print("starting", flush=True)
with ThreadPoolExecutor(2) as pool:
    handles = list(pool.map(manager.ensure, specs))
seen = handles[0].resource.navigate(f"http://{place}/fine")
print("ready", seen.error, flush=True)
if until == "releasing":
    manager.release(handles[0])
    print("releasing", flush=True)
    manager.release(handles[1])
sys.stdin.read()
"""
_BOUND = 60.0


def until(holds: Callable[[], object]) -> None:
    bound = time.monotonic() + _BOUND
    while not holds() and time.monotonic() < bound:
        time.sleep(0.02)
    assert holds()


def marks(engine: int) -> list[int]:
    """Return the processes that this engine has started for its environments."""
    return [pid for pid, mark in marked(VARIABLE).items() if f"@{engine}." in mark]


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("state", "number"),
    [
        ("starting", signal.SIGKILL),
        ("ready", signal.SIGKILL),
        ("releasing", signal.SIGKILL),
        ("starting", signal.SIGTERM),
        ("ready", signal.SIGTERM),
    ],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_wherever_it_ends_nothing_is_left(
    web: Web, tmp_path: Path, temporary: Path, state: str, number: signal.Signals
) -> None:
    web.page("/fine", "<p>fine</p>")
    store = tmp_path / "environments"
    argv = [sys.executable, "-c", CODE, str(store), web.place, state]
    engine = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert engine.stdout is not None
        while (said := engine.stdout.readline()) and not said.startswith(state):
            pass
        assert said.split() == [state]
        if state != "releasing":
            until(lambda: marks(engine.pid))
    finally:
        engine.send_signal(number)
        engine.wait(_BOUND)
        engine.communicate()
    if number == signal.SIGKILL:
        with EnvironmentManager(store) as manager:
            manager.reap()
    until(lambda: not marks(engine.pid))
    assert [*temporary.iterdir()] == []
    assert [*(store / "entries").iterdir()] == []

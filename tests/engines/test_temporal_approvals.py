# Shows D1
"""Rules of a host, grants and approvals of calls in Temporal, the same as with a store in a folder.

The worker has rules, and no object store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.engines.temporal.connection import connect, read_address
from flowengine.engines.temporal.objects import VARIABLE
from flowengine.errors import Conflict
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.engines.test_temporal import shown, wait_until
from tests.replacing import patches_everywhere

pytestmark = pytest.mark.endurance

ACTS = """
def act(n: int = 0) -> int:
    with open("ACTED", "a") as file:
        file.write(f"{n} ")
    return n
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration directory of the worker and of engines."""
    return tmp_path_factory.mktemp("config")


@pytest.fixture(scope="module")
def store(server: StoreNamed, config: Path) -> Iterator[str]:
    address = server("approvals")
    with patches_everywhere() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(config))
        patch.delenv(VARIABLE)
        with RunningWorker(address):
            yield address


@pytest.fixture(autouse=True)
def folder(
    store: str, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    Path("acts.py").write_text(ACTS.replace("ACTED", str(tmp_path / "acted.txt")))
    yield
    rules(config)


def rules(config: Path, *given: str) -> Path:
    """Write the rules of the host."""
    path = config / "flowengine" / "rules.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(["rules:\n", *(f"  - {rule}\n" for rule in given)]))
    if not given:
        path.unlink()
    return path


def acted() -> list[str]:
    """Return what the calls since the last look have written."""
    file = Path("acted.txt")
    said = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return said


def write(steps: str, id: str) -> Path:
    tools = """\
tools:
  get: {python: "acts:act"}
  fee: {python: "acts:act", approval: ask}
  put: {python: "acts:act"}
"""
    path = Path(f"{id}.yaml")
    path.write_text(f"flowengine: 1\nid: {id}\n{tools}{steps}")
    return path


RULED = """\
steps:
  - {id: a, call: get, with: {n: 1}}
  - {id: b, call: fee, with: {n: 2}}
  - {id: c, call: put, with: {n: 3}, on_error: [{output: "${{ error.message }}"}]}
  - {id: d, run: "true"}
outputs: {c: "${{ steps.c.output }}"}
"""


def test_the_rules_of_the_workers_host_hold(store: str, config: Path) -> None:
    """They ask, allow and deny, and a changed rule takes effect at the next call."""
    flow, told = write(RULED, "ruled"), []
    for place in (store, "store"):
        rules(config, "{ask: get}", "{allow: fee}", "{deny: 'put', when: '${{ args.n > 2 }}'}")
        with Engine(place, user="user:ana", durability="power") as engine:
            [wait] = engine.run(flow, id="ruled").waits
            assert acted() == []
            result = engine.approvals.approve(wait["id"]).result
            assert result is not None
            assert result.outputs is not None
            assert "(deny: put) refuses it" in result.outputs["c"]
            assert acted() == ["1", "2"]
            told.append(shown(engine, "ruled"))
    assert told[0] == told[1]
    with Engine(store) as engine:
        [wait] = engine.run(flow, id="broken").waits
        rules(config, "{deny: [}")
        refused = engine.approvals.approve(wait["id"]).result
        assert refused is not None
        assert "the rules of this host cannot be read" in str(refused.error)
    assert acted() == []


@pytest.mark.parametrize("end", ["terminate", "cancel"])
def test_a_workflow_that_was_ended_in_temporal_leaves_nothing_open(store: str, end: str) -> None:
    file = write("steps: [{id: ask, approval: Sure?}]\n", end)
    with Engine(store) as engine:
        [asked] = engine.run(file, id=end).waits
        asyncio.run(end_workflow(store, end))
        wait_until(lambda: engine.executions.result(end).status == "failed")
        [reason] = engine.executions.why(end)
        assert "ended in Temporal" in reason["what"]
        assert "fork" in reason["command"]
        assert engine.approvals.list(execution=end).items == []
        with pytest.raises(Conflict, match="was withdrawn at"):
            engine.approvals.approve(asked["id"])
        [*_, last] = engine.executions.events(end)
        assert last["type"] == "halted"


async def end_workflow(store: str, how: str) -> None:
    client = await connect(read_address(store))
    await getattr(client.get_workflow_handle(how), how)()

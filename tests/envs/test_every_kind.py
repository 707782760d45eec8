# Shows E12b, E112
"""Every kind of environment, in the same flows and under the same manager (E112)."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from flowengine import Engine
from flowengine.engines.results import ExecutionResult
from flowengine.execution_environment import EnvironmentManager, Handle
from flowengine.execution_environment.observation import Event
from flowengine_envs.sandboxes.processes import has
from tests.alive import alive
from tests.envs.containers import skip_without_docker
from tests.envs.mcp.http_server import HttpServer
from tests.execution_environment.toy import until
from tests.own_environments import environments_in


class Kind(NamedTuple):
    """A kind, and code that functions run on its resource, `box`."""

    spec: dict[str, Any]
    keep: str
    """Stores something in the workspace, if there is one."""
    find: str
    """Finds it, or does something that needs no workspace."""
    found: str = "kept"


KINDS = {
    "python": Kind(
        {"kind": "python"},
        "box.run(\"open('note', 'w').write('kept'); x = 41\")",
        "box.run(\"open('note').read()\").value",
    ),
    "bash": Kind(
        {"kind": "bash"}, "box.run('echo kept > note')", "box.run('cat note').stdout.strip()"
    ),
    "node": Kind(
        {"kind": "node"},
        "box.run(\"require('node:fs').writeFileSync('note', 'kept')\")",
        "box.run(\"return require('node:fs').readFileSync('note', 'utf8')\").value",
    ),
    "shell": Kind(
        {"kind": "shell"}, "box.run('echo kept > note')", "box.run('cat note').output.strip()"
    ),
    "sqlite": Kind(
        {"kind": "sqlite", "config": {"path": "words.db", "mode": "rwc"}},
        "(box.execute('create table if not exists words as select \"kept\" as word'),)",
        "box.query('select word from words')[0]['word']",
    ),
    "files": Kind({"kind": "files"}, "box.write('note', 'kept')", "box.read('note').decode()"),
    "documents": Kind(
        {"kind": "documents"}, "box.put('note', b'kept')", "box.read('note').markdown"
    ),
    "mcp": Kind(
        {"kind": "mcp", "config": {"url": "URL"}},
        "box.call_tool('count', {})",
        "box.call_tool('count', {}).text and 'counted'",
        "counted",
    ),
    "http": Kind(
        {"kind": "http", "policy": {"network": "any"}},
        "box.send('URL')",
        "box.send('URL').status and 'answered'",
        "answered",
    ),
    "docker": Kind(
        {"kind": "docker"},
        "box.run(['sh', '-c', 'echo kept > note'])",
        "box.run(['cat', 'note']).stdout.strip()",
    ),
}
NEEDS = {"node": "node", "shell": "tmux"}
FUNCTIONS = """
import asyncio
from flowengine.sdk import StepContext

def keep(box, context: StepContext):
    KEEP
    return find(box, context)

def find(box, context: StepContext):
    had = context.environment("box")
    return [had.generation, had.fresh, FIND]

def fail(box):
    raise ValueError("no")

async def hang(box):
    await asyncio.Event().wait()
"""
KEEP: dict[str, Any] = {"id": "keep", "python": "acts:keep", "environments": ["box"]}
FIND: dict[str, Any] = {"id": "find", "python": "acts:find", "environments": ["box"]}


class Stage:
    """Runs flows with one kind of environment, in one engine at a time."""

    def __init__(self, name: str, kind: Kind, url: str) -> None:
        self.kind = kind
        self.spec = yaml.safe_load(yaml.safe_dump(kind.spec).replace("URL", url))
        acts = FUNCTIONS.replace("KEEP", kind.keep).replace("FIND", kind.find)
        Path("acts.py").write_text(acts.replace("URL", url))
        self.name = name
        self.ready: list[Event] = []
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """The current engine, created on first use, which records `ready` events."""
        if self._engine is None:
            self._engine = Engine("store", workdir=".")
            self._engine.environments.subscribe(self._hear)
        return self._engine

    def _hear(self, event: Event) -> None:
        if event.event == "execution_environment.ready":
            self.ready.append(event)

    def leave(self) -> None:
        """Close the engine, as at the end of its process."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def opened(self) -> int:
        """Return the number of environments opened since the last call."""
        self.engine.environments.flush_events(60)
        count = len(self.ready)
        self.ready.clear()
        return count

    def open(self) -> list[Any]:
        """Return all open environments, and those recorded on disk."""
        manager = self.engine.environments
        return [*manager.list(state="ready"), *manager.written()]

    def run(
        self, *steps: dict[str, Any], outputs: Iterable[str] = (), **words: Any
    ) -> ExecutionResult:
        """Run steps in an environment declared with additional settings."""
        named = [step["id"] for step in steps if step.get("python") in {"acts:keep", "acts:find"}]
        flow = {
            "flowengine": 1,
            "id": "it",
            "environments": {"box": {**self.spec, **words}},
            "steps": list(steps),
            "outputs": {id: f"${{{{ steps.{id}.output }}}}" for id in [*named, *outputs]},
        }
        Path("it.yaml").write_text(yaml.safe_dump(flow, sort_keys=False))
        return self.engine.run("it.yaml")

    def approve(self) -> dict[str, Any]:
        [wait] = self.engine.approvals.list().items
        result = self.engine.approvals.approve(wait["id"]).result
        assert result is not None
        assert result.error is None, result.error
        assert result.outputs is not None
        return result.outputs


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, folder: Path) -> Iterator[Stage]:
    name: str = request.param
    if name in NEEDS and not has(NEEDS[name]):
        pytest.skip(f"no {NEEDS[name]}")
    if name == "docker":
        skip_without_docker()
    with HttpServer() as server:
        stage = Stage(name, KINDS[name], server.url)
        yield stage
        stage.leave()


@pytest.mark.endurance
def test_what_is_given_back_for_a_wait_is_there_again_with_its_workspace(stage: Stage) -> None:
    """E96 to E98: in another process, and opened once for two branches."""
    # A shell has a single prompt, so functions that share it must take turns.
    branches = {**FIND, "map": 2 if stage.name != "shell" else {"over": 2, "concurrency": 1}}
    waiting = stage.run(KEEP, {"id": "ask", "approval": "Go on?"}, branches, on_wait="release")

    assert waiting.status == "waiting"
    assert (stage.opened(), stage.open()) == (1, [])
    stage.leave()
    found = stage.approve()

    assert found["keep"] == [1, False, stage.kind.found]
    assert [one[0::2] for one in found["find"]] == [[2, stage.kind.found]] * 2
    assert sorted(one[1] for one in found["find"]) == [False, True]
    assert (stage.opened(), stage.open()) == (1, [])
    assert not list(environments_in(Path("store")).rglob("workspaces/**/note"))


SAYS = {
    "python": "print(inputs['N'])",
    "bash": "echo $N",
    "node": "console.log(inputs.N)",
    "shell": "sleep 0.01; echo $N",
    "docker": "echo $N",
}


@pytest.mark.endurance
@pytest.mark.parametrize("stage", SAYS, indirect=True)
# Shows S56
def test_steps_that_share_it_are_served_without_mixing(stage: Stage) -> None:
    """S57, through a flow."""
    count = 3 if stage.name == "docker" else 8
    step = {
        "id": "each",
        "map": {"over": count, "as": "n"},
        "run": {"script": SAYS[stage.name], "env": {"N": "${{ n }}"}},
        "in": "box",
        "output": "${{ result.stdout }}",
    }
    ended = stage.run(step, outputs=("each",))

    assert ended.error is None, ended.error
    assert ended.outputs is not None, ended.waits
    assert [text.strip() for text in ended.outputs["each"]] == [str(n) for n in range(count)]
    assert stage.opened() == 1


@pytest.mark.endurance
@pytest.mark.parametrize("stage", SAYS, indirect=True)
# Shows E96b, S56
def test_the_first_result_says_that_what_was_set_is_gone(stage: Stage) -> None:
    """S56, E98: for kinds that have state to lose."""
    run = {"run": {"script": "1" if stage.name in {"python", "node"} else "true"}, "in": "box"}
    told = {"output": "${{ result.stderr }}"}
    stage.run(
        {**run, **told, "id": "a"},
        {"id": "ask", "approval": "Go on?"},
        {**run, **told, "id": "b"},
        {**run, **told, "id": "c"},
        outputs="abc",
        on_wait="release",
    )
    stage.leave()

    told = stage.approve()

    assert told["b"].startswith("(reopened: ") is (stage.name in {"python", "node", "shell"})
    assert (told["a"], told["c"]) == ("", "")


ENDS: dict[str, Callable[[EnvironmentManager, Handle], object]] = {
    **dict.fromkeys(
        ("python", "bash", "node", "shell"),
        lambda manager, handle: _kill(manager.written_one(handle.id)["traces"]["pids"]),
    ),
    "files": lambda manager, handle: shutil.rmtree(handle.resource.path),
}
"""Ways to end the resource under its holders.

`mcp/test_sessions.py` kills a server, and `test_docker_daemon.py` stops the daemon of `docker`. A
database has no process to kill.
"""


def _kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(alive, pids)))


@pytest.mark.parametrize("stage", ENDS, indirect=True)
def test_it_is_checked_before_it_is_had_again_and_replaced_if_it_is_not_healthy(
    stage: Stage, tmp_path: Path
) -> None:
    """E12, E13."""
    spec = {**stage.spec, "scope": "session", "owner_id": "s", "folder": str(tmp_path)}
    with EnvironmentManager(tmp_path / "environments") as manager:
        first, second = manager.ensure(spec, holder="me"), manager.ensure(spec, holder="me")
        assert first.resource is second.resource
        [found] = manager.list(state="ready")
        assert (found["holds"], found["generation"]) == (2, 1)
        assert found["checked"] is not None
        ENDS[stage.name](manager, first)

        until(lambda: manager.ensure(spec, holder="me").generation == 2)

"""Detached flows: separate executions, started once, that outlive the step that starts them."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from flowengine import Engine, load
from flowengine.cli.program import main
from flowengine.engines.running import recovery
from tests.testing.faulty_store import FaultyStore, ProcessDied

FLOW = """\
flowengine: 1
id: parent
inputs: {{n: {{type: integer, default: 2}}}}
signals: {{go: {{}}}}
flows:
  child:
    inputs: {{n: {{type: integer, maximum: 5}}, more: {{type: integer, default: "${{{{ inputs.n * 10 }}}}"}}}}
    outputs: {{sum: "${{{{ steps.inner.output.n + inputs.more }}}}"}}
    steps:
      {wait}
      - {{id: inner, flow: leaf, with: {{n: "${{{{ inputs.n }}}}"}}}}
  leaf:
    inputs: {{n: {{type: integer}}}}
    outputs: {{n: {{value: "${{{{ inputs.n + 1 }}}}", type: integer}}}}
    steps: [{{id: a, output: 1}}]
steps:
  - id: begin
    map: "${{{{ inputs.n }}}}"
    flow: child
    detach: true
    with: {{n: "${{{{ item }}}}"}}
  - {{id: after, run: "true"}}
outputs: {{ids: "${{{{ steps.begin.output.map(one, one.execution_id) }}}}"}}
"""  # noqa: E501


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(wait: str = "") -> str:
    Path("parent.yaml").write_text(FLOW.format(wait=wait))
    return "parent.yaml"


def test_it_works_where_its_parent_does(tmp_path: Path) -> None:
    """The child works in the parent's folder, even if an engine elsewhere resumes the parent."""
    flow = """
flowengine: 1
id: parent
flows:
  child: {steps: [{id: write, call: std.write_file, with: {path: it.txt, text: written}}]}
steps:
  - {id: ask, approval: Begin it?}
  - {id: begin, flow: child, detach: true}
"""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    Path("flow.yaml").write_text(flow)
    with Engine("store", workdir=here) as engine:
        engine.run("flow.yaml")
    with Engine("store", workdir=there) as engine:
        engine.approve(engine.waits().items[0]["id"])

    assert (here / "it.txt").read_text() == "written"
    assert not (there / "it.txt").exists()


def test_the_step_goes_on_with_the_id_of_an_execution_that_runs_after_it() -> None:
    with Engine("store") as engine:
        result = engine.run(write(), id="it")
        assert result.outputs is not None
        children = [engine.show(id) for id in result.outputs["ids"]]

    assert [(one["flow"], one["status"], one["outputs"]) for one in children] == [
        ("child", "succeeded", {"sum": 1}),
        ("child", "succeeded", {"sum": 12}),
    ]


def test_so_it_does_on_an_event_loop() -> None:
    async def run() -> None:
        async with Engine(None) as engine:
            result = await engine.run_async(write())
            assert result.outputs is not None
            for id in result.outputs["ids"]:
                assert engine.result(id).status == "succeeded"

    asyncio.run(run())


TELLS = """\
flowengine: 1
id: asks
signals: {done: {data: {type: integer}}}
flows:
  child:
    inputs: {n: {type: integer}}
    steps: [{id: tell, emit: {signal: done, data: "${{ inputs.n * 10 }}", to: parent}}]
steps:
  - {id: begin, map: 2, flow: child, detach: true, with: {n: "${{ item + 1 }}"}}
  - {id: both, wait: {signal: done, count: 2}, timeout: 1h}
outputs: {sum: "${{ sum(steps.both.output) }}"}
"""


def test_it_tells_its_parent_once_whatever_crashes() -> None:
    Path("asks.yaml").write_text(TELLS)
    for crash in range(80):
        store = FaultyStore(faults={crash: "die after" if crash % 2 else "die before"})
        with suppress(ProcessDied), Engine(store, linger=0) as engine:
            engine.run("asks.yaml", id="it")
        writes, store.faults = store.writes, {}
        store.restart()
        with Engine(store, linger=0) as engine:
            engine.run("asks.yaml", id="it")
            for one in engine.executions(flow="child").items:
                assert engine.resume(one["execution"]).status == "succeeded"
            result = engine.resume("it")
            assert (result.status, result.outputs) == ("succeeded", {"sum": 30}), crash
            assert sum(event["type"] == "message" for event in engine.events("it")) == 2
        if writes <= crash:
            return
    raise AssertionError("it never came through")


def test_what_does_not_fit_its_inputs_fails_the_step_and_begins_nothing() -> None:
    with Engine("store") as engine:
        result = engine.run(write(), {"n": 7})

        assert result.error is not None
        assert result.error["type"] == "MapFailed"
        assert "'n'" in result.error["message"]
        assert len(engine.executions(flow="child").items) == 6


def test_it_is_begun_once_however_often_the_process_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "succeeded", die)
        for _ in range(3):
            engine = Engine("store")
            with pytest.raises(Died):
                engine.run(write(), id="it")
            engine.close()

    with Engine("store") as engine:
        result = engine.resume("it")
        assert result.outputs is not None
        ids = result.outputs["ids"]
        assert {one["execution"] for one in engine.executions(flow="child").items} == set(ids)
        assert [engine.result(id).status for id in ids] == ["succeeded"] * 2


def test_cancelling_who_began_it_does_not_cancel_it() -> None:
    with Engine("store") as engine:
        text = Path(write("- {id: w, wait: {signal: go}}"))
        text.write_text(text.read_text().replace('run: "true"', "wait: {signal: go}"))
        engine.run(text, id="it")
        engine.cancel("it")

        assert engine.result("it").status == "cancelled"
        open_ = engine.executions(flow="child").items
        assert [one["status"] for one in open_] == ["waiting"] * 2
        for one in open_:
            engine.signal("go", execution=one["execution"])
            assert engine.result(one["execution"]).status == "succeeded"


def test_it_is_an_execution_of_a_flow_like_any_other() -> None:
    with Engine("store") as engine:
        result = engine.run(write())
        assert result.outputs is not None
        hashes = {engine.store.execution(id).hash for id in result.outputs["ids"]}
        assert len(hashes) == 1
        assert hashes != {load("parent.yaml").hash}
        assert engine.result(result.outputs["ids"][1]).outputs == {"sum": 12}


def test_the_command_line_runs_it_too_and_tells_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", write()]) == 0
    told = capsys.readouterr()
    ids = told.out.split()[-2:]
    assert told.err.count(" child") == 2

    assert main(["--json", "list", "--flow", "child"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    text = json.dumps(shown)
    assert text.count("succeeded") == 2
    assert all(id.strip("-[], ") in text for id in ids)

"""Environments in flows: assignment, scopes, and release."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, Flow, Update
from flowengine.errors import FlowFileError, UsageError
from flowengine.execution_environment import register_provider, unregister_provider
from flowengine.sdk import Command, StepContext
from flowengine.sdk.environments import Request, background
from tests.execution_environment.toy import Thing, Toy, until
from tests.stored_data import stored_in

FUNCTIONS = """
from flowengine.sdk import StepContext

def use(toy, text="x"):
    return toy.echo(text)

def names(runtime_resources):
    return sorted(runtime_resources)

async def told(box, context: StepContext):
    had = context.environment("box")
    return [had.generation, had.fresh, await box.async_echo("hi")]

def fail(toy):
    raise ValueError("no")

def keep(toy):
    return {"it": toy}

def keep_handle(toy, context: StepContext):
    return {"it": context.environment("toy")}

def spoil(toy):
    toy.healthy = False

async def wait_long(toy, context: StepContext):
    import asyncio
    began.set()
    await asyncio.Event().wait()

import threading
began = threading.Event()
"""


def run(flow: str, inputs: dict[str, Any] | None = None) -> Any:
    """Run a flow in a new engine."""
    Path("flow.yaml").write_text(f"flowengine: 1\nid: it\n{flow}")
    with Engine("store") as engine:
        result = engine.run("flow.yaml", inputs, id="it")
        return result


ONE = "environments: {toy: {kind: toy}}\n"


def test_a_step_gets_it_by_the_name_of_a_parameter_and_it_is_closed_in_the_end(toy: Toy) -> None:
    result = run(
        ONE
        + """
steps:
  - {id: a, python: "things:use", with: {text: one}, environments: [toy]}
  - {id: b, python: "things:use", environments: [toy]}
outputs: {a: "${{ steps.a.output }}", b: "${{ steps.b.output }}"}
"""
    )

    assert result.outputs == {"a": "one", "b": "x"}
    assert (toy.opens, toy.releases) == (1, 1)


def test_a_function_may_take_all_of_them_under_names_of_its_own(toy: Toy) -> None:
    result = run(
        """
environments: {toy: {kind: toy}, other: {kind: toy}}
steps: [{id: a, python: "things:names", environments: {first: toy, second: other}}]
outputs: {a: "${{ steps.a.output }}"}
"""
    )

    assert result.outputs == {"a": ["first", "second"]}
    assert (toy.opens, toy.releases) == (2, 2)


def test_nothing_is_opened_that_no_step_uses(toy: Toy) -> None:
    run(
        ONE
        + """
steps:
  - {id: a, next: {first: [{when: "${{ 1 > 2 }}", to: b}, {else: end}]}}
  - {id: b, python: "things:use", environments: [toy]}
"""
    )

    assert toy.opens == 0


def test_what_only_tools_name_belongs_to_one_call(toy: Toy) -> None:
    run(
        ONE
        + """
tools: {use: {python: "things:use", environments: [toy]}}
steps: [{id: a, call: use}, {id: b, call: use}]
"""
    )

    # The second call starts after the result of the first has been delivered.
    assert toy.log == ["open toy", "release toy"] * 2
    assert [one.request.spec.scope for one in toy.things] == ["action_call"] * 2


def test_a_step_and_a_tool_share_what_says_its_scope(toy: Toy) -> None:
    run(
        """
environments: {toy: {kind: toy, scope: execution}}
tools: {use: {python: "things:use", environments: [toy]}}
steps: [{id: a, call: use}, {id: b, python: "things:use", environments: [toy]}]
"""
    )

    assert toy.opens == 1


def test_a_region_is_the_item_of_a_map_and_is_closed_with_it(toy: Toy) -> None:
    run(
        """
environments: {toy: {kind: toy, scope: region}}
steps:
  - id: each
    map: {over: 10, concurrency: 1}
    group:
      - {id: a, python: "things:use", environments: [toy]}
      - {id: b, python: "things:use", environments: [toy]}
      - {id: c, python: "things:use", environments: [toy]}
"""
    )

    assert toy.log == ["open toy", "release toy"] * 10  # each is closed before the next item starts
    assert len({one.request.spec.owner_id for one in toy.things}) == 10


def test_what_a_region_had_is_closed_before_it_is_opened_for_another(toy: Toy) -> None:
    """Even if closing is slow: a sequential map has one open at a time."""
    log: list[str] = []
    opened = asyncio.Event()

    async def open_(request: Request) -> Thing:
        log.append("open")
        opened.set()
        return Thing(request)

    async def close(thing: Thing) -> None:
        opened.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(opened.wait(), 0.05)
        log.append("close")

    toy.open, toy.close = open_, close
    run(
        """
environments: {toy: {kind: toy, scope: region}}
steps:
  - id: each
    map: {over: 3, concurrency: 1}
    group:
      - {id: a, python: "things:use", environments: [toy]}
      - {id: b, python: "things:use", environments: [toy]}
  - {id: after, python: "things:use", environments: [toy]}
"""
    )

    assert log == ["open", "close"] * 4


def test_the_rounds_of_a_loop_share_their_region(toy: Toy) -> None:
    run(
        """
environments: {toy: {kind: toy, scope: region}}
steps:
  - id: again
    loop: {until: "${{ round.number == 5 }}", max: 5}
    group: [{id: a, python: "things:use", environments: [toy]}]
  - {id: outside, python: "things:use", environments: [toy]}
"""
    )

    assert (toy.opens, toy.releases) == (2, 2)


def test_what_an_outer_region_has_is_used_inside(toy: Toy) -> None:
    run(
        """
environments: {toy: {kind: toy, scope: region}}
steps:
  - id: outer
    group:
      - {id: a, python: "things:use", environments: [toy]}
      - {id: each, map: 3, python: "things:use", environments: [toy]}
"""
    )

    assert toy.opens == 1


def test_a_subflow_shares_the_executions_own(toy: Toy) -> None:
    result = run(
        ONE
        + """
flows:
  inner:
    steps: [{id: c, python: "things:use", environments: [toy]}]
    outputs: {text: "${{ steps.c.output }}"}
steps:
  - {id: a, python: "things:use", environments: [toy]}
  - {id: b, flow: inner}
outputs: {b: "${{ steps.b.output.text }}"}
"""
    )

    assert result.outputs == {"b": "x"}
    assert (toy.opens, toy.releases) == (1, 1)


def test_what_an_import_declares_is_shared_by_all_who_name_it(toy: Toy) -> None:
    Path("lib.yaml").write_text("flowengine: 1\nid: lib\nenvironments: {toy: {kind: toy}}\n")
    run(
        """
imports: {lib: ./lib.yaml}
flows: {inner: {steps: [{id: c, python: "things:use", environments: [lib.toy]}]}}
steps:
  - {id: a, python: "things:use", environments: [lib.toy]}
  - {id: b, flow: inner}
"""
    )

    assert toy.opens == 1


def test_arguments_choose_the_instance(toy: Toy) -> None:
    run(
        """
environments:
  toy:
    kind: toy
    args: {type: object, properties: {size: {type: integer}}, required: [size]}
    config: {size: "${{ args.size }}", image: "of ${{ args.size }}"}
steps:
  - id: each
    map: {over: [1, 2, 3], as: n}
    group:
      - {id: a, python: "things:use", environments: {toy: {toy: {size: "${{ n }}"}}}}
      - {id: b, python: "things:use", environments: {toy: {toy: {size: "${{ n }}"}}}}
"""
    )

    assert sorted(one.request.config.image for one in toy.things) == ["of 1", "of 2", "of 3"]
    assert toy.releases == 3


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param('- {id: b, python: "things:use", environments: [toy]}', id="succeeded"),
        pytest.param("- {id: b, fail: done}", id="failed"),
        pytest.param("- {id: b, cancel: execution}", id="cancelled"),
        pytest.param('- {id: b, python: "things:fail", environments: [toy]}', id="in use"),
        pytest.param(
            '- {id: b, python: "things:wait_long", environments: [toy], timeout: 10ms}',
            id="timeout",
        ),
    ],
)
def test_it_is_given_back_on_every_way_out(toy: Toy, ways: str) -> None:
    Path("flow.yaml").write_text(
        f"""\
flowengine: 1
id: it
{ONE}
steps:
  - {{id: a, python: "things:use", environments: [toy]}}
  {ways}
"""
    )
    seen: list[str] = []

    def updated(update: Update) -> None:
        if update.step is not None:
            seen.append(f"{update.step.address} {update.step.status}, {toy.opens} {toy.releases}")

    with Engine("store") as engine:
        engine.subscribe(updated)
        engine.run("flow.yaml", id="it")

    assert (toy.opens, toy.releases) == (1, 1)
    assert toy.things[0].closed
    assert "a succeeded, 1 0" in seen  # opened before one step, released after another
    assert not [each for each in seen if each.endswith((" 0 1", " 1 1"))]


def test_an_engine_has_one_manager_whichever_thread_asks_first() -> None:
    """No engine would close a second one."""
    for _ in range(20):
        at_once = threading.Barrier(4)
        with Engine(None) as engine, ThreadPoolExecutor(4) as pool:

            def ask(engine: Engine = engine, at_once: threading.Barrier = at_once) -> str:
                at_once.wait(60)
                return engine.environments.id

            asked = [pool.submit(ask) for _ in range(4)]
            assert len({each.result(60) for each in asked}) == 1


def test_two_executions_at_once_have_one_each(toy: Toy) -> None:
    """Both are open at the same time, and each returns its own data."""
    Path("things.py").write_text(
        FUNCTIONS
        + """
both = threading.Barrier(2)

def meet(toy):
    both.wait(60)
    return toy.request.spec.owner_id
"""
    )
    sys.modules.pop("things", None)
    step = '{id: a, python: "things:meet", environments: [toy]}'
    told = "outputs: {a: '${{ steps.a.output }}'}"
    Path("flow.yaml").write_text(f"flowengine: 1\nid: it\n{ONE}steps: [{step}]\n{told}\n")
    with Engine("store") as engine, ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(engine.run, "flow.yaml", id=id) for id in ("one", "two")]
        outputs = [run.result(60).outputs for run in runs]

    assert outputs == [{"a": "one"}, {"a": "two"}]
    assert (toy.opens, toy.releases) == (2, 2)
    assert toy.things[0] is not toy.things[1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{size: x}", "toy.size must be a whole number"),
        ("{colour: red}", "takes no argument 'colour'"),
        ("{}", "needs 'size'"),
    ],
)
def test_a_wrong_argument_is_found_before_anything_opens(toy: Toy, given: str, told: str) -> None:
    with pytest.raises(FlowFileError, match=told):
        run(
            f"""
environments:
  toy:
    kind: toy
    args: {{type: object, properties: {{size: {{type: integer}}}}, required: [size]}}
    config: {{size: "${{{{ args.size }}}}"}}
steps:
  - {{id: a, python: "things:use", environments: {{toy: {{toy: {given}}}}}}}
"""
        )

    assert toy.opens == 0


def test_they_are_closed_in_reverse_order(toy: Toy) -> None:
    run(
        """
environments: {one: {kind: toy}, two: {kind: toy}, three: {kind: toy}}
steps: [{id: a, python: "things:names", environments: [one, two, three]}]
"""
    )

    opened = [line.partition(" ")[2] for line in toy.log if line.startswith("open")]
    assert opened == ["one", "two", "three"]
    assert [one.request.spec.resource_key for one in toy.released] == ["three", "two", "one"]


def test_what_cannot_start_fails_the_step_which_may_handle_it(toy: Toy) -> None:
    async def refuse(_: Any) -> Any:
        from flowengine.sdk import EnvironmentStartFailed

        raise EnvironmentStartFailed("no power", retryable=False)

    toy.open = refuse
    result = run(
        ONE
        + """
steps:
  - id: a
    python: "things:use"
    environments: [toy]
    on_error: [{type: EnvironmentStartFailed, output: "${{ error.message }}"}]
outputs: {a: "${{ steps.a.output }}"}
"""
    )

    assert result.outputs == {"a": "no power"}


def test_one_that_is_ill_is_replaced_before_it_is_used_again(toy: Toy) -> None:
    run(
        ONE
        + """
steps:
  - {id: a, python: "things:spoil", environments: [toy]}
  - {id: b, python: "things:told", environments: {box: toy}}
  - {id: c, python: "things:told", environments: {box: toy}}
outputs: {b: "${{ steps.b.output }}", c: "${{ steps.c.output }}"}
"""
    )

    assert (toy.opens, toy.releases) == (2, 2)


@pytest.mark.parametrize(
    ("function", "more", "type_"),
    [
        ("keep", "", "toy.Thing"),
        ("keep", 'output: {v: "${{ result }}"}', "toy.Thing"),
        ("keep", 'output: "it is ${{ result.it }}"', "toy.Thing"),
        ("keep_handle", "", "environments.Opened"),
    ],
    ids=["returned", "stored", "interpolated", "what it hangs on"],
)
def test_a_resource_is_no_output(toy: Toy, function: str, more: str, type_: str) -> None:
    """E81: the step that returns it fails with its key and type, and the state is unchanged."""
    result = run(
        f"""{ONE}
state: {{n: {{type: integer, default: 1}}}}
steps:
  - {{id: first, set: {{n: 2}}}}
  - id: a
    python: "things:{function}"
    environments: [toy]
    on_error: [{{type: ValidationError, output: "${{{{ error.message }}}}"}}]
    {more}
outputs: {{n: "${{{{ state.n }}}}", told: "${{{{ steps.a.output }}}}"}}
"""
    )

    assert result.outputs is not None, result.error
    assert result.outputs["n"] == 2
    assert re.search(rf"result\.it: a value of type \S*{type_} cannot", result.outputs["told"])
    stored = b"".join(stored_in("store").values())
    assert b"object at 0x" not in stored


WAITS = """
environments: {{toy: {{kind: toy, on_wait: {on_wait}}}}}
steps:
  - {{id: a, python: "things:told", environments: {{box: toy}}}}
  - {{id: ask, approval: Go on?}}
  - {{id: b, python: "things:told", environments: {{box: toy}}}}
outputs: {{a: "${{{{ steps.a.output }}}}", b: "${{{{ steps.b.output }}}}"}}
"""


def test_while_it_waits_nothing_is_open_and_then_it_is_there_again(toy: Toy) -> None:
    waiting = run(WAITS.format(on_wait="release"))
    assert waiting.status == "waiting"
    assert (toy.opens, len(toy.suspended), toy.releases) == (1, 1, 1)

    with Engine("store") as engine:
        [wait] = engine.waits().items
        ended = engine.approve(wait["id"])

    assert ended.result is not None
    assert ended.result.outputs == {"a": [1, False, "hi"], "b": [2, True, "hi"]}
    assert toy.opens == 2


@pytest.mark.parametrize(
    ("on_wait", "live", "told"),
    [
        ("release", True, "closed while the execution waits (on_wait: release)"),
        ("release", False, None),
        ("keep", True, "closed because this process ends (on_wait: keep cannot outlast it)"),
        ("keep", False, None),
    ],
)
def test_it_is_told_when_what_lives_in_an_environment_is_lost(
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    on_wait: str,
    live: bool,
    told: str | None,
) -> None:
    monkeypatch.setattr(type(toy), "live", live)
    Path("flow.yaml").write_text(f"flowengine: 1\nid: it\n{WAITS.format(on_wait=on_wait)}")
    seen: list[Any] = []
    with Engine("store") as engine:
        engine.subscribe(seen.append)
        assert engine.run("flow.yaml", id="it").status == "waiting"
        before = [update for update in seen if update.kind == "warning"]

    warnings = [update.data for update in seen if update.kind == "warning"]
    text = f"{told}: its variables and current directory are lost, its files are kept"
    expected = [] if told is None else [{"environment": "toy", "text": f"toy: {text}"}]
    assert warnings == expected
    assert caplog.messages == ([] if told is None else [f"it toy: {text}"])
    assert len(before) == (told is not None and on_wait == "release")


def test_what_is_kept_over_a_wait_and_used_again_is_not_told_of(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(toy), "live", True)
    Path("flow.yaml").write_text(f"flowengine: 1\nid: it\n{WAITS.format(on_wait='keep')}")
    seen: list[Any] = []
    with Engine("store") as engine:
        engine.subscribe(seen.append)
        [wait] = engine.run("flow.yaml").waits
        ended = engine.approve(wait["id"])
        assert ended.result is not None
        assert ended.result.status == "succeeded"

    assert toy.opens == 1
    assert [update for update in seen if update.kind == "warning"] == []


@pytest.mark.endurance
def test_executions_that_wait_hold_nothing_open(toy: Toy) -> None:
    """E96. Tests of the manager cover a thousand of them."""
    Path("flow.yaml").write_text(f"flowengine: 1\nid: it\n{WAITS.format(on_wait='release')}")

    async def run() -> None:
        async with Engine("store", durability="none") as engine:
            flow = engine.load("flow.yaml")
            waiting = await asyncio.gather(*(engine.run_async(flow) for _ in range(100)))
            assert {result.status for result in waiting} == {"waiting"}
            assert engine.environments.list(state="ready") == []
            assert (toy.opens, toy.releases) == (100, 100)
            decided = await engine.approve_async(waiting[50].waits[0]["id"])
            assert decided.result is not None
            assert decided.result.status == "succeeded"

    asyncio.run(run())
    assert (toy.opens, toy.releases) == (101, 101)


def test_what_is_kept_too_long_is_given_back_and_told(toy: Toy) -> None:
    """E96: `keep_for` expires, and the execution continues with a new environment."""
    Path("flow.yaml").write_text(
        f"flowengine: 1\nid: it\n{WAITS.format(on_wait='keep, keep_for: 10ms')}"
    )
    told: list[str] = []
    with Engine("store") as engine:
        engine.environments.subscribe(lambda event: told.append(event.event))
        assert engine.run("flow.yaml", id="it").status == "waiting"
        until(lambda: engine.environments.flush_events(60) and RELEASED in told)
        [wait] = engine.waits().items
        ended = engine.approve(wait["id"]).result

    assert ended is not None
    assert ended.outputs == {"a": [1, False, "hi"], "b": [2, True, "hi"]}
    assert len(toy.suspended) == 1


RELEASED = "execution_environment.released"


def test_what_is_to_be_kept_is_the_same_after_the_wait_in_the_same_process(toy: Toy) -> None:
    Path("flow.yaml").write_text(f"flowengine: 1\nid: it\n{WAITS.format(on_wait='keep')}")
    with Engine("store") as engine:
        assert engine.run("flow.yaml").status == "waiting"
        assert (toy.opens, toy.releases) == (1, 0)
        [wait] = engine.waits().items
        ended = engine.approve(wait["id"])
        assert toy.releases == 1

    assert ended.result is not None
    assert ended.result.outputs == {"a": [1, False, "hi"], "b": [1, False, "hi"]}
    assert toy.opens == 1


def test_the_workspace_comes_along(toy: Toy) -> None:
    Path("things.py").write_text(
        FUNCTIONS
        + """
def write(toy):
    (toy.request.workspace / "note").write_text("kept")

def read(toy):
    return (toy.request.workspace / "note").read_text()
"""
    )
    run(
        ONE
        + """
steps:
  - {id: a, python: "things:write", environments: [toy]}
  - {id: ask, approval: Go on?}
  - {id: b, python: "things:read", environments: [toy]}
outputs: {b: "${{ steps.b.output }}"}
"""
    )
    sys.modules.pop("things", None)
    with Engine("store") as engine:
        [wait] = engine.waits().items
        ended = engine.approve(wait["id"])

    assert ended.result is not None
    assert ended.result.outputs == {"b": "kept"}
    assert not toy.things[-1].request.workspace.exists()


def test_an_execution_that_ends_without_using_it_again_leaves_no_workspace(toy: Toy) -> None:
    run(WAITS.format(on_wait="release"))
    with Engine("store") as engine:
        engine.cancel("it")

    assert not toy.things[0].request.workspace.exists()


def test_what_an_earlier_process_had_outside_of_all_groups_leaves_nothing(toy: Toy) -> None:
    run(WAITS.format(on_wait="release, scope: region"))
    with Engine("store") as engine:
        engine.cancel("it")

    assert not toy.things[0].request.workspace.exists()


@pytest.mark.endurance
def test_a_step_is_told_that_its_sandbox_is_new(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    waiting = run(
        """
environments: {py: {kind: python}}
steps:
  - {id: a, run: "x = 41; open('note', 'w').write('kept')", in: py}
  - {id: ask, approval: Go on?}
  - {id: b, run: "'x' in globals(), open('note').read()", in: py}
  - {id: c, run: "1", in: py}
outputs: {b: "${{ steps.b.output }}", c: "${{ steps.c.output.stderr }}"}
"""
    )
    assert waiting.status == "waiting"
    with Engine("store") as engine:
        [wait] = engine.waits().items
        ended = engine.approve(wait["id"]).result

    assert ended is not None
    assert ended.outputs is not None
    assert ended.outputs["b"]["value"] == [False, "kept"]
    assert ended.outputs["b"]["stderr"].startswith("(reopened: ")
    assert ended.outputs["c"] == ""


def test_nothing_live_is_stored(toy: Toy) -> None:
    run(ONE + 'steps: [{id: a, python: "things:use", environments: [toy]}, {id: q, approval: Go?}]')

    stored = b"".join(stored_in("store").values())
    assert b"Thing" not in stored
    assert toy.things[0].request.id.encode() not in stored


def test_an_engine_in_memory_leaves_nothing_in_the_working_folder(toy: Toy) -> None:
    Path("flow.yaml").write_text(
        f"flowengine: 1\nid: it\n{ONE}"
        'steps: [{id: a, python: "things:use", environments: [toy]}]\n'
    )
    with Engine(None) as engine:
        assert engine.run("flow.yaml").status == "succeeded"

    assert sorted(path.name for path in Path().iterdir() if path.suffix) == [
        "flow.yaml",
        "things.py",
    ]
    assert not Path("environments").exists()


def test_a_session_lives_over_executions_of_one_key(toy: Toy) -> None:
    Path("flow.yaml").write_text("""
flowengine: 1
id: it
inputs: {who: {type: string}}
environments: {toy: {kind: toy, scope: session, key: "${{ inputs.who }}"}}
steps: [{id: a, python: "things:use", environments: [toy]}]
""")
    with Engine("store") as engine:
        for who in ("ana", "ben", "ana", "ana"):
            engine.run("flow.yaml", {"who": who})
        assert (toy.opens, toy.releases) == (2, 0)

    assert toy.releases == 2


def test_data_that_looks_like_a_reference_is_no_secret(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "SEKRET")
    run(
        """
inputs: {image: {type: string}}
environments: {toy: {kind: toy, config: {image: "${{ inputs.image }}"}}}
steps: [{id: a, python: "things:use", environments: [toy]}]
""",
        {"image": "secret:API_KEY"},
    )

    assert toy.things[0].request.config.image == "secret:API_KEY"


def test_a_secret_reaches_what_is_opened_and_nothing_else(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "SEKRET")
    run(
        """
secrets: {API_KEY: {env: API_KEY}}
environments: {toy: {kind: toy, config: {token: "${{ secrets.API_KEY }}"}}}
steps: [{id: a, python: "things:use", environments: [toy]}]
"""
    )

    thing: Thing = toy.things[0]
    assert thing.request.config.token.reveal() == "SEKRET"
    for name, data in stored_in("store").items():
        assert b"SEKRET" not in data, name


def test_a_secret_in_clear_is_refused_before_anything_is_opened(toy: Toy) -> None:
    with pytest.raises(FlowFileError, match="must name a secret, not contain its value") as error:
        run(
            """
environments: {toy: {kind: toy, config: {token: in-clear, headers: "${{ execution.id }}"}}}
steps: [{id: a, python: "things:use", environments: [toy]}]
"""
        )

    assert [one.line for one in error.value.diagnostics if one.code == "E402"] == [4, 4]
    assert toy.opens == 0


def test_a_flow_built_in_python_declares_them_too(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    flow = Flow("it", environments={"toy": {"kind": "toy"}})
    flow.step("a", action={"python": "things:use"}, environments=["toy"])
    with Engine("store") as engine:
        assert engine.run(flow).status == "succeeded"

    assert (toy.opens, toy.releases) == (1, 1)


class Mine:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_objects_of_the_caller_reach_steps_and_are_not_touched(toy: Toy) -> None:
    Path("flow.yaml").write_text(
        f"""
flowengine: 1
id: it
{ONE}
steps:
  - {{id: a, python: "things:names", environments: [toy]}}
  - {{id: b, python: "things:names"}}
outputs: {{a: "${{{{ steps.a.output }}}}", b: "${{{{ steps.b.output }}}}"}}
"""
    )
    mine = Mine()
    with Engine("store", runtime_resources={"mine": mine}) as engine:
        result = engine.run("flow.yaml")

    assert result.outputs == {"a": ["mine", "toy"], "b": ["mine"]}
    assert not mine.closed
    assert (toy.opens, toy.checks, toy.releases) == (1, 0, 1)


def test_an_object_of_the_caller_cannot_have_the_name_of_an_environment(toy: Toy) -> None:
    Path("flow.yaml").write_text(
        f"flowengine: 1\nid: it\n{ONE}"
        'steps: [{id: a, python: "things:use", environments: [toy]}]\n'
    )
    with (
        Engine("store", runtime_resources={"toy": Mine()}) as engine,
        pytest.raises(UsageError, match="runtime_resources has 'toy', and step 'a'"),
    ):
        engine.run("flow.yaml", id="it")

    assert toy.opens == 0


def test_what_fails_to_close_does_not_change_how_an_execution_ended(toy: Toy) -> None:
    async def refuse(thing: Thing) -> None:
        if thing.request.spec.resource_key == "two":
            raise RuntimeError("stuck")

    toy.close = refuse
    result = run(
        """
environments: {one: {kind: toy}, two: {kind: toy}, three: {kind: toy}}
steps: [{id: a, python: "things:names", environments: [one, two, three]}]
"""
    )

    assert result.status == "succeeded"
    assert [one.request.spec.resource_key for one in toy.released] == ["three", "one"]
    assert warnings() == ["environment 'two' could not be closed (RuntimeError)"]


def warnings() -> list[str]:
    """Return the warnings of the execution, without the hint that follows each."""
    with Engine("store") as engine:
        return [one["message"].partition(";")[0] for one in engine.show("it")["warnings"]]


@pytest.mark.parametrize(
    ("scope", "end"),
    [
        ("step", "output: done"),
        ("region", "output: done"),
        ("execution", "fail: {type: Mine}"),
        ("execution", "cancel: execution"),
        ("execution", "approval: Go on?"),
    ],
)
def test_what_fails_to_close_is_in_the_journal(toy: Toy, scope: str, end: str) -> None:
    """The journal with the warning is replayed, and the execution continues."""

    async def refuse(thing: Thing) -> None:
        raise RuntimeError("SEKRET")

    toy.close = refuse
    result = run(
        f"""
environments: {{toy: {{kind: toy, scope: {scope}, on_wait: release}}}}
steps:
  - {{id: inner, group: [{{id: a, python: "things:use", environments: [toy]}}]}}
  - {{id: last, {end}}}
"""
    )
    toy.behave()

    assert warnings() == ["environment 'toy' could not be closed (RuntimeError)"]
    with Engine("store") as engine:
        assert engine.result("it").status == result.status
        if result.status == "waiting":
            [wait] = engine.waits().items
            ended = engine.approve(wait["id"]).result
            assert ended is not None
            assert ended.status == "succeeded"
        if result.error is not None and result.status == "failed":
            assert engine.retry("it").error == result.error
    assert warnings()


class Runner(Toy):
    """Runs a command until it is stopped, then takes a while to end."""

    def __init__(self) -> None:
        super().__init__("runner")
        self.loop: asyncio.AbstractEventLoop | None = None
        self.began = threading.Event()
        self.ended = False

    async def run(self, resource: Thing, context: StepContext, command: Command) -> dict[str, Any]:
        self.loop = asyncio.get_running_loop()
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            self.ended = True
        raise AssertionError


def test_a_command_runs_on_the_loop_of_its_environment_and_has_ended_when_its_step_has(
    toy: Toy,
) -> None:
    """On another loop, it would share connections with the work on that loop."""
    Path("flow.yaml").write_text(
        "flowengine: 1\nid: it\nenvironments: {box: {kind: runner}}\n"
        "steps: [{id: a, run: {script: x}, in: box}]\n"
    )
    runner = Runner()

    async def cancelled() -> None:
        async with Engine("store") as engine:
            running = asyncio.ensure_future(engine.run_async("flow.yaml", id="it"))
            assert await asyncio.to_thread(runner.began.wait, 60)
            await engine.cancel_async("it")
            assert (await running).status == "cancelled"
            assert runner.ended

    register_provider(runner)
    try:
        asyncio.run(cancelled())
    finally:
        unregister_provider(runner.kind)
    assert runner.loop is background().loop


def test_an_unused_environment_is_told_of(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    from flowengine.cli.program import main

    Path("flow.yaml").write_text(f"flowengine: 1\nid: it\n{ONE}steps: [{{id: a, output: 1}}]\n")

    assert main(["check", "--strict", "flow.yaml"]) == 3
    assert "the environment 'toy' is never used" in capsys.readouterr().err


def test_who_goes_on_is_not_known_where_the_store_cannot_be_asked(tmp_path: Path) -> None:
    """Workspaces are then kept. Their cleanup queries the store from another thread at any time."""
    with Engine(tmp_path / "store") as engine:
        host = engine._host
        assert not host._may_go_on("it")
        host.store.close()
        assert host._may_go_on("it")
